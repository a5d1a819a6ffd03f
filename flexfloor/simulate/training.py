"""How much of the training stage fits beside generation: finished groups on released ranks.

Work is counted in tokens and taken as divisible: gradients are sums, so any rank may take any part. The
responses of a prompt can be trained once all of them have ended. Ranks of an expert group can train once
those that it released hold all experts between them.

Invariants:
- No token is trained before its group was complete, nor twice.
- Released ranks train whenever there is something for them, and never more than they have time for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """What was trained before generation ended."""

    tokens: float
    spans: tuple[tuple[float, float], ...]
    """(from, to) in seconds in which all ranks that could train did."""


def overlapped(
    complete: Sequence[tuple[float, float]],
    leased: Sequence[tuple[float, int]],
    *,
    end: float,
    token_seconds: float,
) -> Overlap:
    """Args:
    complete: (second, tokens) of each prompt whose responses have all ended.
    leased: (second, ranks) of each lot of ranks that may train from then on.
    end: second in which generation ends.
    token_seconds: of forward and backward over a token on one rank.
    """
    events = sorted([(at, tokens, 0) for at, tokens in complete] + [(at, 0.0, n) for at, n in leased])
    now = backlog = trained = 0.0
    ranks, spans = 0, []
    for at, tokens, more in [*events, (end, 0.0, 0)]:
        at = min(at, end)
        busy = min(at - now, backlog * token_seconds / ranks) if ranks else 0.0
        if now + busy > now:
            done = min(backlog, busy * ranks / token_seconds)
            backlog, trained = backlog - done, trained + done
            spans.append((now, min(now + busy, at)))
        now, backlog, ranks = at, backlog + tokens, ranks + more
    return Overlap(tokens=trained, spans=_merged(spans))


def _merged(spans: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    merged: list[tuple[float, float]] = []
    for start, end in spans:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return tuple(merged)
