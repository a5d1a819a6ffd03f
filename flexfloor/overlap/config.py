"""Whether released ranks begin with the update while others still generate."""

from __future__ import annotations

from dataclasses import dataclass

from flexfloor.checks import require, require_choice
from flexfloor.elastic.config import ElasticConfig

MODES = ("off", "on", "auto")
SHARE = 4
"""A lease's micro-batch is this part of an update's, unless something else is said."""


@dataclass(kw_only=True)
class OverlapConfig:
    """Early training on released ranks."""

    mode: str = "off"
    """`on` whenever released ranks can hold all experts and their gradients; `auto` where that is also likely
    to save time; `off` never."""
    micro_batch_tokens: int | None = None
    """Most rows of a lease's forward pass on a rank: what ranks that have generated may have to wait for; not
    given = a quarter of actor.micro_batch_tokens."""

    def __post_init__(self) -> None:
        require_choice("overlap.mode", self.mode, MODES)
        rows = self.micro_batch_tokens
        allowed = "at least 1, or null"
        require(rows is None or rows >= 1, "overlap.micro_batch_tokens", rows, allowed)

    def rows(self, micro_batch_tokens: int) -> int:
        """Of a lease's forward pass, where an update's has so many."""
        return self.micro_batch_tokens or max(1, micro_batch_tokens // SHARE)


def obstacle(elastic: ElasticConfig, ep_size: int, tp_size: int) -> str:
    """Why no rank can begin early under these settings, in words; empty if it can."""
    if elastic.policy == "never":
        return "elastic.policy=never releases no rank"
    if elastic.detach:
        return "elastic.detach=true lets ranks go in no order, so that they form no lease"
    if ep_size == tp_size == 1:
        return "parallel.ep=1 has no rank to release"
    if ep_size == tp_size:
        return f"parallel.ep={ep_size} is one replica of parallel.tp={tp_size} ranks, which is not released"
    return ""


def check_overlap(overlap: OverlapConfig, elastic: ElasticConfig, ep_size: int, tp_size: int) -> None:
    """Raise `ConfigError` where early training is asked for and cannot be."""
    reason = obstacle(elastic, ep_size, tp_size)
    require(overlap.mode != "on" or not reason, "overlap.mode", overlap.mode, f"off or auto: {reason}")


def may_detach(overlap: OverlapConfig, elastic: ElasticConfig, ep_size: int, tp_size: int) -> bool:
    """Whether ranks may part."""
    if elastic.detach is None:
        is_free = tp_size == 1 and not is_wanted(overlap, elastic, ep_size, tp_size)
        return elastic.policy == "guided" and is_free
    return elastic.detach


def is_wanted(overlap: OverlapConfig, elastic: ElasticConfig, ep_size: int, tp_size: int) -> bool:
    """Whether leases may be opened at all."""
    return overlap.mode != "off" and not obstacle(elastic, ep_size, tp_size)
