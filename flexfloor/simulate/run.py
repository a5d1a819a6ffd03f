"""Epochs of one policy on one scenario.

Invariants:
- The same scenario and policy give the same outcome.
- A policy sees of an epoch's lengths what it may know, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flexfloor.schedule.forecast import Replicas, Wanted
from flexfloor.schedule.frontier import Limits, horizons
from flexfloor.schedule.guided import GuidedShrink
from flexfloor.schedule.objective import NO_EARLY_TRAINING, Training, early_training
from flexfloor.schedule.plan import plan_queues
from flexfloor.simulate.deal import in_order, longest_first
from flexfloor.simulate.decision import Decision, Guided, SimpleRule
from flexfloor.simulate.elasticity import Elasticity
from flexfloor.simulate.group import Group
from flexfloor.simulate.knowledge import FromHistory, Knowledge, NoKnowledge, OfOracle
from flexfloor.simulate.lengths import StepLengths
from flexfloor.simulate.outcome import StepOutcome
from flexfloor.simulate.outlook import Outlook
from flexfloor.simulate.policies import Dealt, Known, Policy
from flexfloor.simulate.rules import GroupRules
from flexfloor.simulate.scenario import Scenario
from flexfloor.simulate.step import least_lease, outcome_of
from flexfloor.simulate.telling import Telling, Together
from flexfloor.simulate.workload import Workload


def simulate(scenario: Scenario, policy: Policy, epochs: int) -> Iterator[StepOutcome]:
    """A step an epoch, over the same prompts; what one epoch taught is known in the next."""
    opened_s = 0.0
    knowledge = _knowledge(policy, scenario.trace.cap)
    for epoch in range(epochs):
        lengths = scenario.trace.step(epoch)
        groups = list(_groups(scenario, policy, knowledge, lengths))
        for group in groups:
            group.run()
        knowledge.learn(lengths, epoch)
        outcome = outcome_of(scenario, lengths, groups, step=epoch, opened_s=opened_s)
        opened_s += outcome.step_s
        yield outcome


def _knowledge(policy: Policy, cap: int) -> Knowledge:
    if policy.known is Known.LENGTHS:
        return OfOracle(cap)
    return FromHistory(cap) if policy.known is Known.HISTORY else NoKnowledge()


def _groups(
    scenario: Scenario, policy: Policy, knowledge: Knowledge, lengths: StepLengths
) -> Iterator[Group]:
    wanted = knowledge.wanted(lengths, scenario.prompt_tokens)
    queues = _queues(scenario, policy, wanted, lengths)
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
    for start in range(0, scenario.num_replicas, scenario.group_size):
        own = queues[start : start + scenario.group_size]
        yield Group(
            work,
            own,
            rules,
            room=scenario.room,
            elasticity=_elasticity(scenario, policy, wanted, max(map(len, own))),
            telling=_telling(knowledge.outlook(lengths)),
        )


def _telling(outlook: Outlook | None) -> Telling | None:
    return None if outlook is None else Together(outlook)


def _queues(
    scenario: Scenario, policy: Policy, wanted: Wanted, lengths: StepLengths
) -> Sequence[Sequence[int]]:
    if policy.dealt is not Dealt.PLANNED:
        queues = in_order(lengths, scenario.num_replicas)
        return queues if policy.dealt is Dealt.IN_ORDER else longest_first(queues, wanted)
    replicas = Replicas(
        count=scenario.num_replicas,
        group_size=scenario.group_size,
        sequences=scenario.max_live,
        kv_tokens=scenario.room,
    )
    plan = plan_queues(wanted, replicas, scenario.cost)
    return [queue.tolist() for queue in plan.queues]


def _elasticity(scenario: Scenario, policy: Policy, wanted: Wanted, most: int) -> Elasticity | None:
    """Args:
    most: responses that a replica of the group begins with.
    """
    if policy.shrink == "never":
        return None
    return Elasticity(
        _decision(scenario, policy, wanted, most),
        scenario.open_rungs(),
        memory=scenario.memory,
        num_experts=scenario.model.num_experts,
        size=scenario.group_size,
        longest=scenario.longest,
        kv_tokens_per_rank=scenario.room,
        replica_size=scenario.tp,
        detach=scenario.may_part(policy.shrink),
    )


def _decision(scenario: Scenario, policy: Policy, wanted: Wanted, most: int) -> Decision:
    if policy.shrink == "guided":
        rule = GuidedShrink(
            scenario.cost,
            horizons(scenario.trace.cap),
            Limits(sequences=scenario.max_live, kv_tokens=scenario.room),
            objective=policy.objective,
            max_slowdown=policy.max_slowdown,
            training=training_of_released(scenario, wanted),
        )
        return Guided(rule)
    return SimpleRule(
        policy=policy.shrink,
        sequences_per_rank=max(1, min(most, scenario.max_live)),
        kv_tokens_per_rank=scenario.room,
    )


def training_of_released(scenario: Scenario, wanted: Wanted) -> Training:
    """What an expert group's released replicas may train beside generation, in seconds of a replica."""
    size, least = scenario.group_size, least_lease(scenario)
    most_released = size - min(scenario.open_rungs(), default=size)
    if not scenario.overlap or least > most_released:
        return NO_EARLY_TRAINING
    # The GPUs of a replica share its rows.
    rows = (wanted.lengths + wanted.prompt_tokens[:, None]).sum(axis=1) / scenario.tp
    groups = scenario.num_gpus // scenario.ep
    return early_training(rows, scenario.cost, ranks=size, ep_groups=groups, least=least)
