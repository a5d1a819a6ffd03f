"""What a user asks `flexfloor convert` for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MAKE_SPACE = "Free space there, or choose another --out"
"""What helps where no space is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """A Hugging Face folder to be one of a checkpoint's weights."""

    hf: Path
    out: Path
    """Folder to be made."""
    dtype: str | None = None
    """Of the parameters; None = the narrowest that holds those of the files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A run's checkpoint to be a Hugging Face folder."""

    checkpoint: Path
    """One checkpoint, or a run, of which the newest is taken."""
    out: Path
    """Folder to be made."""
    hf: Path | None = None
    """Hugging Face folder with tokenizer and longest sequence; None = those that the run used."""
    dtype: str | None = None
    """Of the parameters in the files; None = the checkpoint's."""
    fused_experts: bool = False
    max_shard_bytes: int = 5 * 10**9
