"""How a rollout's responses are batched, placed and rated, and what is kept to know it by."""

from __future__ import annotations

from dataclasses import dataclass

from flexfloor.checks import require, require_choice, require_range
from flexfloor.schedule.objective import OBJECTIVES

POLICIES = ("static", "longest_first", "flexfloor", "oracle")


@dataclass(kw_only=True)
class ScheduleConfig:
    """Plans from how long each prompt's responses were."""

    policy: str = "static"
    """`static` deals prompts in the order of the data and lets every rank keep what it got; `longest_first`
    starts each rank's longest first, by what past steps have shown; `flexfloor` also plans which rank gets
    which responses, and lets ranks with room take what waits on others; `oracle` does the same with the
    lengths themselves, where rollout.lengths_from forces them."""
    objective: str = "step_time"
    """What elastic.policy=guided goes for. `step_time`: the earliest end of rollout and training;
    `throughput`: the earliest end of the rollout; `occupancy`: the fewest occupied rank-seconds."""
    max_slowdown: float = 0.0
    """Share by which `occupancy` may prolong the rollout, at least the 1 % that no estimate can tell."""
    history_path: str | None = None
    """Length history of another run to begin with, a parquet file; a resumed run goes on with its own."""
    history_prompts: int = 200_000
    """Prompts whose lengths are kept; the least recently seen goes first. About 300 bytes each."""

    def __post_init__(self) -> None:
        require_choice("schedule.policy", self.policy, POLICIES)
        require_choice("schedule.objective", self.objective, OBJECTIVES)
        require_range("schedule.max_slowdown", self.max_slowdown, 0.0)
        given = self.history_path
        fits = given is None or given.endswith(".parquet")
        require(fits, "schedule.history_path", given, "a .parquet file, or null")
        size = self.history_prompts
        require(size >= 1, "schedule.history_prompts", size, "at least 1 prompt")
