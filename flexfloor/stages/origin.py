"""Where a run's model and tokenizer came from: what an export writes beside weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flexfloor.config import Config


def origin_of(config: Config) -> dict[str, Any]:
    """Plain data for a checkpoint; paths are absolute where they are folders."""
    path, tokenizer = config.model.path, config.tokenizer.path
    return {
        "model_path": None if path is None else str(Path(path).expanduser().absolute()),
        "tokenizer_path": str(Path(tokenizer).absolute()) if Path(tokenizer).is_dir() else tokenizer,
        "max_positions": config.data.max_prompt_length + config.data.max_response_length,
    }
