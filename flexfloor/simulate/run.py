"""Epochs of one policy on one scenario.

Invariants:
- The same scenario and policy give the same outcome.
- A policy sees of an epoch's lengths what it may know, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flexfloor.simulate.deal import in_order, longest_first
from flexfloor.simulate.elasticity import Elasticity, SimpleRule
from flexfloor.simulate.group import Group
from flexfloor.simulate.lengths import StepLengths
from flexfloor.simulate.outcome import StepOutcome
from flexfloor.simulate.policies import Dealt, Known, Policy
from flexfloor.simulate.rules import GroupRules
from flexfloor.simulate.scenario import Scenario
from flexfloor.simulate.step import outcome_of
from flexfloor.simulate.workload import Workload


def simulate(scenario: Scenario, policy: Policy, epochs: int) -> Iterator[StepOutcome]:
    """A step an epoch, over the same prompts; what one epoch taught is known in the next."""
    opened_s = 0.0
    for epoch in range(epochs):
        lengths = scenario.trace.step(epoch)
        groups = list(_groups(scenario, policy, lengths))
        for group in groups:
            group.run()
        outcome = outcome_of(scenario, lengths, groups, step=epoch, opened_s=opened_s)
        opened_s += outcome.step_s
        yield outcome


def _groups(scenario: Scenario, policy: Policy, lengths: StepLengths) -> Iterator[Group]:
    queues = _queues(scenario, policy, lengths)
    work = Workload(
        prompt=lengths.prompt.tolist(),
        tokens=lengths.tokens.tolist(),
        prompt_tokens=scenario.prompt_tokens,
        cap=scenario.trace.cap,
    )
    rules = GroupRules(
        admit=scenario.admit(policy.admission),
        max_live=scenario.max_live,
        most_joining=scenario.most_joining,
        interval=scenario.interval,
        rebalances=policy.rebalances,
    )
    for start in range(0, scenario.num_gpus, scenario.ep):
        own = queues[start : start + scenario.ep]
        elasticity = _elasticity(scenario, policy, max(map(len, own)))
        yield Group(work, own, rules, room=scenario.room, elasticity=elasticity)


def _queues(scenario: Scenario, policy: Policy, lengths: StepLengths) -> list[list[int]]:
    if policy.dealt is Dealt.IN_ORDER:
        return in_order(lengths, scenario.num_gpus)
    return longest_first(_expected(policy, lengths), scenario.num_gpus)


def _expected(policy: Policy, lengths: StepLengths) -> np.ndarray:
    if policy.known is Known.LENGTHS:
        return lengths.tokens.astype(float)
    return np.ones(len(lengths.tokens))


def _elasticity(scenario: Scenario, policy: Policy, most: int) -> Elasticity | None:
    """Args:
    most: responses that a rank of the group begins with.
    """
    if policy.shrink == "never":
        return None
    room = scenario.room
    rule = SimpleRule(
        policy=policy.shrink,
        sequences_per_rank=max(1, min(most, scenario.max_live)),
        kv_tokens_per_rank=room,
    )
    return Elasticity(
        rule,
        scenario.open_rungs(),
        memory=scenario.memory,
        num_experts=scenario.model.num_experts,
        size=scenario.ep,
        longest=scenario.longest,
        kv_tokens_per_rank=room,
    )
