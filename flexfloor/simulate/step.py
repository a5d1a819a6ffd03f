"""One step of a policy: every expert group generates, then all ranks train what is left.

Invariants:
- world x wall time = sum over the ledger's states; occupied time is at most ranks x wall time.
- Every response of the step is generated and trained once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from flexfloor.ledger.balance import check_tiling
from flexfloor.ledger.metrics import Occupation, occupation
from flexfloor.ledger.types import StepRecord
from flexfloor.simulate.clock import Clock, clock_of
from flexfloor.simulate.group import Group
from flexfloor.simulate.lengths import StepLengths
from flexfloor.simulate.outcome import StepOutcome
from flexfloor.simulate.records import RankStory, record_of
from flexfloor.simulate.scenario import Scenario
from flexfloor.simulate.training import Overlap, overlapped

GRADIENT_BYTES = 4
"""Of one number, which training keeps beside its weight."""

ROUNDING = 1e-9
"""Relative, of sums of seconds."""


def outcome_of(
    scenario: Scenario, lengths: StepLengths, groups: Sequence[Group], *, step: int, opened_s: float
) -> StepOutcome:
    """Time a step whose groups have run.

    Args:
        opened_s: seconds of the run before it.
    """
    ended = sum(len(group.ended) for group in groups)
    assert ended == len(lengths.tokens), (ended, len(lengths.tokens))
    clocks = [clock_of(group, scenario.cost) for group in groups]
    generated_s = max(clock.end for clock in clocks)
    all_tokens = float(lengths.tokens.sum() + scenario.prompt_tokens * len(lengths.tokens))
    token_seconds = scenario.cost.train_seconds(1.0)
    beside = _beside(scenario, lengths, groups, clocks, generated_s)
    step_s = generated_s + (all_tokens - beside.tokens) * token_seconds / scenario.num_gpus
    records = _records(scenario, groups, clocks, beside, (step, opened_s, generated_s, step_s))
    check_tiling(records)
    held = occupation(records)
    training_s = all_tokens * token_seconds
    return StepOutcome(
        tokens=int(lengths.tokens.sum()),
        wall_s=held.wall_s,
        occupied_s=held.occupied_s,
        idle_s=held.idle_s,
        step_s=step_s,
        overlapped_tokens=beside.tokens,
        trained_tokens=all_tokens,
        training_s=training_s,
        hidden_s=beside.tokens * token_seconds,
        hideable_s=min(training_s, _freed(held, scenario.num_gpus)),
        plain_step_s=generated_s + training_s / scenario.num_gpus,
        preemptions=sum(replica.preemptions for group in groups for replica in group.replicas),
        recomputed_tokens=sum(replica.recomputed_tokens for group in groups for replica in group.replicas),
        shrinks=sum(len(clock.shrinks) for clock in clocks),
        detached_ranks=sum(len(clock.own_ends) for clock in clocks),
        shrink_s=sum(each.end_s - each.start_s for clock in clocks for each in clock.shrinks),
        rank_passes=scenario.tp * sum(group.rank_passes for group in groups),
        records=records,
    )


def _freed(held: Occupation, ranks: int) -> float:
    """Rank-seconds of generation that released ranks do not take; what is but rounding counts as none."""
    whole = ranks * held.wall_s
    return whole - held.occupied_s if whole - held.occupied_s > ROUNDING * whole else 0.0


def _beside(
    scenario: Scenario,
    lengths: StepLengths,
    groups: Sequence[Group],
    clocks: Sequence[Clock],
    generated_s: float,
) -> Overlap:
    """What released ranks train while others generate."""
    leased = _leases(scenario, clocks) if scenario.overlap else []
    if not leased:
        return Overlap(tokens=0.0, spans=())
    ended = np.zeros(len(lengths.tokens))
    for group, clock in zip(groups, clocks, strict=True):
        responses = np.fromiter(group.ended.keys(), dtype=np.int64, count=len(group.ended))
        passes = np.fromiter(group.ended.values(), dtype=np.int64, count=len(group.ended))
        ended[responses] = clock.ends[passes + 1]
    complete, tokens = np.zeros(len(lengths.uids)), np.zeros(len(lengths.uids))
    np.maximum.at(complete, lengths.prompt, ended)
    np.add.at(tokens, lengths.prompt, lengths.tokens + scenario.prompt_tokens)
    return overlapped(
        list(zip(complete.tolist(), tokens.tolist(), strict=True)),
        leased,
        end=generated_s,
        token_seconds=scenario.cost.train_seconds(1.0),
    )


def _leases(scenario: Scenario, clocks: Sequence[Clock]) -> list[tuple[float, int]]:
    """(second, ranks) that may train from then on."""
    least, size = least_lease(scenario), scenario.group_size
    since = [leased_from(size, least, clock, position) for clock in clocks for position in range(size)]
    replicas = sorted(Counter(at for at in since if at is not None).items())
    return [(at, count * scenario.tp) for at, count in replicas]


def leased_from(size: int, least: int, clock: Clock, position: int) -> float | None:
    """When a replica of a group of `size` may train: from when those released can hold all experts."""
    opened = (each for each in clock.shrinks if position >= each.after and size - each.after >= least)
    return next((each.end_s for each in opened), None)


def least_lease(scenario: Scenario) -> int:
    """Replicas of a lease that hold all weights and their gradients between them."""
    model, budget = scenario.model, scenario.hardware.memory_bytes * scenario.usable_share
    number = model.weight_bytes + GRADIENT_BYTES
    left = budget - model.dense_parameters * number / scenario.tp
    if scenario.held:
        left -= scenario.held.staying + scenario.held.activations
    routed = model.num_experts * model.expert_parameters * number
    return max(1, int(np.ceil(routed / (left * scenario.tp)))) if left > 0 else scenario.group_size + 1


def _records(
    scenario: Scenario,
    groups: Sequence[Group],
    clocks: Sequence[Clock],
    beside: Overlap,
    times: tuple[int, float, float, float],
) -> tuple[StepRecord, ...]:
    step, opened_s, generated_s, end_s = times
    least = least_lease(scenario)
    return tuple(
        record_of(
            number * scenario.ep + position * scenario.tp + part,
            step,
            RankStory(
                clock=clock,
                position=position,
                idle=group.idle[position],
                leased_s=leased_from(scenario.group_size, least, clock, position)
                if scenario.overlap
                else None,
            ),
            opened_s=opened_s,
            generated_s=generated_s,
            end_s=end_s,
            training=beside.spans,
        )
        for number, (group, clock) in enumerate(zip(groups, clocks, strict=True))
        for position in range(scenario.group_size)
        for part in range(scenario.tp)
    )
