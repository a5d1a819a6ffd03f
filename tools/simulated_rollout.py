"""The rollouts of `schedule_measured` as the simulator sees them: the same queues, lengths and costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from bench_rollout import MODELS, PROMPT_TOKENS
from schedule_measured import INTERVAL, LONGEST, SHRINKS, SIBLINGS, Bench, objective_of

from flexfloor.schedule.frontier import horizons
from flexfloor.simulate.clock import clock_of
from flexfloor.simulate.engine_group import EngineSettings, Guiding, engine_group
from flexfloor.simulate.group import Group
from flexfloor.simulate.lengths import StepLengths
from flexfloor.simulate.outlook import BelievedOutlook, KnownOutlook, Outlook
from flexfloor.simulate.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """One rollout."""

    wall_s: float
    occupied_s: float
    """Sum over ranks of the time to their release, or to the end."""
    passes: int
    """Of the first rank."""
    rank_steps: int


def predict(
    bench: Bench, policy: str, forced: np.ndarray, exchange_seconds: float, has_slots: bool = True
) -> Predicted:
    """By the bench's costs.

    Args:
        exchange_seconds: of each exchange of standings, with what is decided by it.
        has_slots: as the engine's caches have; else tokens are counted, as `flexfloor simulate` does.
    """
    group = _group(bench, policy, forced, has_slots)
    group.run()
    clock = clock_of(group, bench.costs, exchange_seconds=exchange_seconds)
    left = (clock.left(rank) for rank in range(bench.replicas.count))
    alone = group.parted.alone if group.parted else {}
    return Predicted(
        wall_s=clock.end,
        occupied_s=sum(clock.end if each is None else each for each in left),
        passes=group.passes + (alone[0].log.count if 0 in alone else 0),
        rank_steps=group.rank_passes,
    )


def _group(bench: Bench, policy: str, forced: np.ndarray, has_slots: bool) -> Group:
    lengths = StepLengths(
        uids=tuple(bench.uids),
        prompt=np.repeat(np.arange(len(bench.uids)), SIBLINGS),
        tokens=forced.reshape(-1),
        truncated=forced.reshape(-1) == LONGEST,
    )
    work = Workload(
        prompt=lengths.prompt.tolist(),
        tokens=lengths.tokens.tolist(),
        prompt_tokens=PROMPT_TOKENS,
        cap=LONGEST,
    )
    settings = EngineSettings(
        policy=SHRINKS[policy],
        interval=INTERVAL,
        kv_tokens=bench.replicas.kv_tokens,
        max_live=bench.replicas.sequences,
        num_experts=MODELS["mixtral"].num_experts,
        detach=bench.may_part(policy),
        has_slots=has_slots,
    )
    guiding = None
    if SHRINKS[policy] == "guided":
        outlooks = [_outlook(bench, policy, lengths) for _ in range(bench.replicas.count)]
        guiding = Guiding(outlooks=outlooks, costs=bench.costs, rebalances=True, **objective_of(policy))
    return engine_group(work, bench.queues(policy, forced), settings, guiding)


def _outlook(bench: Bench, policy: str, lengths: StepLengths) -> Outlook:
    far = horizons(PROMPT_TOKENS + LONGEST)
    if policy == "lengths known":
        return KnownOutlook(lengths, far)
    return BelievedOutlook(bench.beliefs(), lengths, far, LONGEST)
