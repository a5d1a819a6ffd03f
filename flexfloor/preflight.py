"""What can be found wrong before a rank is started: folders, tokenizer, prompts, scorer.

A run reads its inputs again on every rank; here they are read once in the starting process, so
that a bad one is reported on one screen within seconds.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from flexfloor import device
from flexfloor.checks import require
from flexfloor.config import Config, TrainerConfig, can_validate, is_rank
from flexfloor.data.demonstrations import demonstrate
from flexfloor.data.prompts import load_prompts
from flexfloor.data.sampler import PromptSampler
from flexfloor.data.tokenizer import embedding_rows, load_tokenizer
from flexfloor.errors import ConfigError
from flexfloor.models.registry import family_path
from flexfloor.models.tp_fit import check_vocabulary_fit
from flexfloor.reward.load import load_scorer
from flexfloor.schedule.history_file import read_history
from flexfloor.stages.own_checkpoints import finds_checkpoint
from flexfloor.stages.replay import Replay
from flexfloor.train.checkpoint_folder import complaint, has_run_state, is_sealed


def check_host(config: Config) -> None:
    """Raise `ConfigError` for a setting that this machine cannot train with."""
    allowed = "float32 or float64 on a host without an accelerator, whose optimizer keeps no float32 copies"
    trainable = config.model.dtype != "bfloat16" or not device.is_cpu_host()
    require(trainable, "model.dtype", config.model.dtype, allowed)
    family_path(config.model.family)


def check_training(config: Config) -> None:
    """Raise `ConfigError` or `DataError` for what would stop `flexfloor train` on its ranks."""
    if config.launch.kind == "local" or is_rank():
        check_host(config)
    data = config.data
    ensure_writable("trainer.default_local_dir", Path(config.trainer.default_local_dir))
    _check_resume(config.trainer)
    _check_state(config.trainer)
    _check_weights(config)
    tokenizer = load_tokenizer(config.tokenizer.path)
    check_vocabulary_fit(embedding_rows(config.model.vocab_size, tokenizer), config.parallel.tp)
    prompts = load_prompts(data, tokenizer, "train")
    PromptSampler(len(prompts), data.train_batch_size, shuffle=data.shuffle, seed=data.seed)
    if config.sft.steps > 0:
        allowed = f"at most the number of training prompts, {len(prompts)}"
        require(config.sft.batch_size <= len(prompts), "sft.batch_size", config.sft.batch_size, allowed)
        demonstrate(prompts, tokenizer, data.max_response_length)
    load_scorer(config.reward, [*prompts, *load_prompts(data, tokenizer, "val")])
    _check_schedule(config)


def check_generation(config: Config) -> None:
    """Raise `ConfigError` or `DataError` for what would stop `flexfloor rollout` on its ranks."""
    split = config.generate.split
    allowed = "train without data.val_files or data.val_size"
    require(split == "train" or can_validate(config.data), "generate.split", split, allowed)
    ensure_writable("generate.output", Path(config.generate.output).parent)
    _check_resume(config.trainer)
    _check_weights(config)
    family_path(config.model.family)
    tokenizer = load_tokenizer(config.tokenizer.path)
    check_vocabulary_fit(embedding_rows(config.model.vocab_size, tokenizer), config.parallel.tp)
    load_scorer(config.reward, load_prompts(config.data, tokenizer, split))


def ensure_writable(field: str, folder: Path) -> None:
    """Create `folder` and try a file in it; `ConfigError` naming `field` and the folder when that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(f"{field}: cannot write in {folder.absolute()} ({error.strerror})") from error


def _check_schedule(config: Config) -> None:
    """Files that the schedule begins with."""
    history, lengths = config.schedule.history_path, config.rollout.lengths_from
    if history is not None:
        read_history(Path(history), config.data.max_response_length)
    if lengths is not None:
        Replay(Path(lengths)).require_steps(config.trainer.total_training_steps)


def _check_weights(config: Config) -> None:
    """Files that the model is taken from: whether they are all there and whole."""
    path = config.model.path
    if path is not None and not finds_checkpoint(config.trainer):
        from flexfloor.models.weights.stored import read_index

        folder = Path(path).expanduser()
        if is_sealed(folder):
            reason = complaint(folder)
            require(reason is None, "model.path", path, f"a whole folder of weights; {reason}")
        else:
            read_index(folder)


def _check_resume(trainer: TrainerConfig) -> None:
    path = trainer.resume_from_path
    if path is not None:
        require(Path(path).is_dir(), "trainer.resume_from_path", path, "a folder that exists")
        reason = complaint(Path(path))
        require(reason is None, "trainer.resume_from_path", path, f"a whole checkpoint; {reason}")


def _check_state(trainer: TrainerConfig) -> None:
    """Whether a run can go on from what it is told to, and not only begin with its weights."""
    path = trainer.resume_from_path
    if path is not None:
        allowed = f"a run's checkpoint; this holds weights alone, with which model.path={path} begins a run"
        require(has_run_state(Path(path)), "trainer.resume_from_path", path, allowed)
