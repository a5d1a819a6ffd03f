"""What can be found wrong before a rank is started: folders, tokenizer, prompts, scorer.

A run reads its inputs again on every rank; here they are read once in the starting process, so
that a bad one is reported on one screen within seconds.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from flexfloor.checks import require
from flexfloor.config import Config, can_validate
from flexfloor.data.demonstrations import demonstrate
from flexfloor.data.prompts import load_prompts
from flexfloor.data.tokenizer import load_tokenizer
from flexfloor.errors import ConfigError
from flexfloor.reward.load import load_scorer


def check_training(config: Config) -> None:
    """Raise `ConfigError` or `DataError` for what would stop `flexfloor train` on its ranks."""
    trainer, data = config.trainer, config.data
    ensure_writable("trainer.default_local_dir", Path(trainer.default_local_dir))
    if trainer.resume_from_path is not None:
        found = Path(trainer.resume_from_path).is_dir()
        require(found, "trainer.resume_from_path", trainer.resume_from_path, "a folder that exists")
    tokenizer = load_tokenizer(config.tokenizer.path)
    prompts = load_prompts(data, tokenizer, "train")
    if config.sft.steps > 0:
        demonstrate(prompts, tokenizer, data.max_response_length)
    load_scorer(config.reward, [*prompts, *load_prompts(data, tokenizer, "val")])


def check_generation(config: Config) -> None:
    """Raise `ConfigError` or `DataError` for what would stop `flexfloor rollout` on its ranks."""
    split = config.generate.split
    allowed = "train without data.val_files or data.val_size"
    require(split == "train" or can_validate(config.data), "generate.split", split, allowed)
    ensure_writable("generate.output", Path(config.generate.output).parent)
    load_scorer(config.reward, load_prompts(config.data, load_tokenizer(config.tokenizer.path), split))


def ensure_writable(field: str, folder: Path) -> None:
    """Create `folder` and try a file in it; `ConfigError` naming `field` and the folder when that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(f"{field}: cannot write in {folder.absolute()} ({error.strerror})") from error
