"""Which sizes of a group may part, by the memory that their ranks would have."""

from types import SimpleNamespace

import pytest

from flexfloor.elastic.config import ElasticConfig
from flexfloor.elastic.floor import RankMemory
from flexfloor.elastic.ladder import Ladder
from flexfloor.elastic.placement import home_placement
from flexfloor.rollout.active_group import ActiveGroup
from flexfloor.schedule.shrink import Standing, Step
from flexfloor.schedule.slots import Room

EXPERTS, LONGEST = 8, 10


class Asked:
    """A guide that remembers which sizes it was told may part."""

    guidance = SimpleNamespace(explores=False)

    def decide(self, standings, rungs, *, passes, may_part):
        self.may_part = may_part
        return Step(size=2, parts=True), 1.25


def group_of_four(budget, index=0, detach=True):
    """As one of its ranks sees it, of which each has two responses of ten bytes beside a byte an expert."""
    memory = RankMemory(budget=budget, dense=0, expert=1, training=0, kv_token=1, row=0, logits=0)
    group = ActiveGroup.__new__(ActiveGroup)
    group.elastic, group.memory = ElasticConfig(policy="guided", detach=detach), memory
    group.index, group.size, group.replica_size = index, 4, 1
    group.room = Room(sizes=(LONGEST,), tokens=10**6)
    group.ladder = Ladder(position=0, groups={size: SimpleNamespace(size=lambda: 4) for size in (1, 2, 3, 4)})
    group.placement, group.guide = home_placement(EXPERTS, 4), Asked()
    return group


def decided(monkeypatch, group, told_by_first=None):
    """What the group does, when its first rank tells the others that, or what this one found."""
    monkeypatch.setattr(group, "exchange", lambda values: [told_by_first or values], raising=False)
    return group.decide([Standing(unfinished=2, kv_tokens=4, finished=0)] * 4)


def may_part(monkeypatch, budget, detach=True):
    """Sizes that the guide is told of."""
    group = group_of_four(budget, detach=detach)
    decided(monkeypatch, group)
    return sorted(group.guide.may_part)


@pytest.mark.parametrize(
    "budget, expected",
    [
        (2 * LONGEST + EXPERTS - 1, []),  # two responses at their longest, and one expert too few
        (2 * LONGEST + EXPERTS, [4]),
        # three ranks end with three responses at most, one of which is moved; two with four, two moved
        (3 * LONGEST + LONGEST + EXPERTS, [3, 4]),
        (4 * LONGEST + 2 * LONGEST + EXPERTS, [2, 3, 4]),
    ],
)
def test_a_size_may_part_if_each_of_its_ranks_can_hold_all_experts_beside_its_responses(
    monkeypatch, budget, expected
):
    assert may_part(monkeypatch, budget) == expected
    assert may_part(monkeypatch, budget - 1) == expected[1:]
    assert may_part(monkeypatch, budget, detach=False) == []


def test_the_first_rank_decides_and_the_others_do_as_it_says_without_asking(monkeypatch):
    first, other = group_of_four(budget=100), group_of_four(budget=100, index=1)
    other.guide.decide = None
    assert decided(monkeypatch, first) == Step(size=2, parts=True)
    assert first.guide.seconds_left == 1.25
    assert decided(monkeypatch, other, told_by_first=[3, 0, 2_500_000]) == Step(size=3, parts=False)
    assert other.guide.seconds_left == 2.5
