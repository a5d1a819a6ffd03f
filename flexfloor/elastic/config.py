"""Whether and how an expert group shrinks while it generates."""

from __future__ import annotations

from dataclasses import dataclass, field

from flexfloor.checks import require, require_choice

POLICIES = ("never", "idle", "greedy", "guided")


@dataclass(kw_only=True)
class ElasticConfig:
    """Release of ranks during a rollout, those of a replica together: one rank where parallel.tp is 1."""

    policy: str = "never"
    """`guided` weighs what each rung would cost in seconds and in rank-seconds, by what is expected of the
    unfinished responses (see schedule.objective); `greedy` goes to the smallest rung that can hold them all;
    both move them there. `idle` lets a rank go once it and those above it have none left; `never` keeps all
    ranks."""
    interval: int = 8
    """Passes from one decision to the next."""
    rungs: list[int] = field(default_factory=list)
    """Sizes, in replicas, that an expert group may shrink to; none given = every size from 1 up."""
    sequences_per_rank: int | None = None
    """Unfinished responses that a rung may give each of its replicas, at most rollout.max_live_sequences; not
    given = that for `guided`, and for `greedy` no more than one of the group began with, so that no pass
    grows by a shrink."""
    detach: bool | None = None
    """Whether ranks may part for good, each with a copy of all experts, once all of them have the memory: no
    exchange is left then, nothing moves any more, and each rank leaves at its own end. `guided` weighs it
    against every rung, the other policies do it where no rung is taken. Not given = for `guided`, where no
    update begins on released ranks (overlap.mode), which need an order of leaving.
    Not with parallel.tp above 1."""

    def __post_init__(self) -> None:
        require_choice("elastic.policy", self.policy, POLICIES)
        require(self.interval >= 1, "elastic.interval", self.interval, "at least 1 pass")
        fits = all(rung >= 1 for rung in self.rungs) and len(set(self.rungs)) == len(self.rungs)
        require(fits, "elastic.rungs", self.rungs, "different sizes of at least 1 replica")
        each = self.sequences_per_rank
        require(each is None or each >= 1, "elastic.sequences_per_rank", each, "at least 1, or null")


def check_rungs(elastic: ElasticConfig, ep_size: int, tp_size: int) -> None:
    """Raise `ConfigError` for what an expert group of `ep_size` ranks, `tp_size` to a replica, cannot do."""
    whole, replicas = "parallel.ep", ep_size // tp_size
    if tp_size > 1:
        whole = f"parallel.ep / parallel.tp = {ep_size} / {tp_size}"
    below = all(rung < replicas for rung in elastic.rungs)
    require(below, "elastic.rungs", elastic.rungs, f"sizes below {whole} = {replicas}")
    allowed = f"false with parallel.tp = {tp_size}: the ranks of a replica cannot part"
    require(not elastic.detach or tp_size == 1, "elastic.detach", elastic.detach, allowed)
