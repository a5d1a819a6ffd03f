"""How small an expert group may become before a rank's memory is full: bytes, and nothing but arithmetic.

What a rank of a rung needs is counted at its worst until the end of the rollout: each of its sequences at
the greatest length, and a pass in which everything that waits joins at once. What finished sequences
needed is no longer counted, so that the floor sinks as they finish.

Invariants:
- A rung that fits needs no more than the budget.
- A rung that fits also fits a larger budget, so that a larger budget never gives a larger floor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from flexfloor.schedule.even_out import even_out
from flexfloor.schedule.shrink import Standing, taken_over

UNLIMITED = 2**62
"""A budget in bytes that no machine reaches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What generating takes on the rank that has most of it."""

    sequences: int
    """Unfinished responses of the rank."""
    kv_tokens: int
    """That its cache may come to hold."""
    moved_tokens: int = 0
    """That it takes over in a shrink, and has twice while they are stored."""
    rows: int
    """Most rows of a pass, on all ranks of the group: each rank has them all before its experts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """Bytes on each rank of an expert group during a rollout."""

    budget: int
    """That all others may come to."""
    dense: int
    """Weights but the routed experts', with the copies that the rollout makes of them."""
    expert: int
    """One routed expert in all MoE layers, with its copies; the same for a guest and at home."""
    training: int
    """What training keeps meanwhile: gradients, state of the optimizer, a reference policy."""
    kv_token: int
    """One token in the cache."""
    row: int
    """Workspace of one row of a pass."""
    logits: int
    """Workspace of one sequence's logits and its sampling."""

    def needed(self, num_experts: int, need: Need) -> int:
        """Bytes of a rank that hosts so many experts."""
        a_pass = need.rows * self.row + need.sequences * self.logits
        passing = max(a_pass, need.moved_tokens * self.kv_token)
        held = self.dense + self.training + need.kv_tokens * self.kv_token
        return held + passing + num_experts * self.expert

    def hostable(self, need: Need) -> int:
        """Experts that a rank can host, its own among them."""
        return max(0, (self.budget - self.needed(0, need)) // self.expert)


def need_of_rung(standings: Sequence[Standing], rung: int, *, longest: int, kv_tokens_per_rank: int) -> Need:
    """What a rank of the fullest of the first `rung` replicas needs once the others have left.

    Args:
        standings: of the active replicas, by position.
        longest: tokens of the greatest sequence.
        kv_tokens_per_rank: room of a rank's cache.
    """
    taken = taken_over(standings, rung)
    held = [standing.unfinished + more for standing, more in zip(standings, taken, strict=False)]
    unfinished = sum(standing.unfinished for standing in standings)
    return Need(
        sequences=max(held),
        kv_tokens=min(kv_tokens_per_rank, max(held) * longest),
        moved_tokens=min(kv_tokens_per_rank, max(taken) * longest),
        # One that yields later is computed again, alone.
        rows=unfinished + sum(standing.waiting_tokens for standing in standings) + longest,
    )


def need_of_parting(
    standings: Sequence[Standing], size: int, *, longest: int, kv_tokens_per_rank: int
) -> Need:
    """What a rank of the fullest of the first `size` needs once they have evened out what is left, and part.

    Args: as for `need_of_rung`; `size` = the present one, or one to which the group would shrink first.
    """
    if size == len(standings):
        takes = Counter[int]()
        for each in even_out(standings):
            takes[each.target] += each.count
        most = max(takes.values(), default=0)
    else:
        most = max(taken_over(standings, size))
    need = need_of_rung(standings, size, longest=longest, kv_tokens_per_rank=kv_tokens_per_rank)
    held = -(-sum(standing.unfinished for standing in standings) // size)
    return replace(
        need,
        sequences=held,
        kv_tokens=min(kv_tokens_per_rank, held * longest),
        moved_tokens=min(kv_tokens_per_rank, most * longest),
    )


def fits(hosted: Sequence[int], num_ranks: int, hostable: int) -> bool:
    """Whether the first `num_ranks` ranks can host all experts.

    Args:
        hosted: experts of each active rank, by position; those that stay keep theirs.
        hostable: experts that a rank that stays can host.
    """
    return max(hosted[:num_ranks]) <= hostable and sum(hosted) <= num_ranks * hostable


def fitting_rungs(
    memory: RankMemory,
    hosted: Sequence[int],
    standings: Sequence[Standing],
    rungs: Sequence[int],
    *,
    longest: int,
    kv_tokens_per_rank: int,
) -> list[int]:
    """Those of `rungs` below the present size whose ranks have the memory; the smallest is the floor.

    Args:
        hosted: of the active ranks, by position; as many to each replica.
        standings: of the active replicas, by position.
    """
    found, replica_size = [], len(hosted) // len(standings)
    for rung in rungs:
        if rung < len(standings):
            need = need_of_rung(standings, rung, longest=longest, kv_tokens_per_rank=kv_tokens_per_rank)
            if fits(hosted, rung * replica_size, memory.hostable(need)):
                found.append(rung)
    return found
