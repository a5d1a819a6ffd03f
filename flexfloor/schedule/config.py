"""What the schedule knows of lengths before a run begins, and how much it keeps."""

from __future__ import annotations

from dataclasses import dataclass

from flexfloor.checks import require


@dataclass(kw_only=True)
class ScheduleConfig:
    """Plans from how long each prompt's responses were."""

    history_path: str | None = None
    """Length history of another run to begin with, a parquet file; a resumed run goes on with its own."""
    history_prompts: int = 200_000
    """Prompts whose lengths are kept; the least recently seen goes first. About 300 bytes each."""

    def __post_init__(self) -> None:
        given = self.history_path
        fits = given is None or given.endswith(".parquet")
        require(fits, "schedule.history_path", given, "a .parquet file, or null")
        size = self.history_prompts
        require(size >= 1, "schedule.history_prompts", size, "at least 1 prompt")
