"""What a user asks `flexfloor convert` for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What a user asks for."""

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
