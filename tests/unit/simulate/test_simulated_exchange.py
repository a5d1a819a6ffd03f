"""What happens at an exchange of a simulated group, and what it takes."""

import dataclasses

from flexfloor.elastic.floor import UNLIMITED, RankMemory
from flexfloor.schedule.shrink import Step
from flexfloor.simulate.admit import Paged
from flexfloor.simulate.clock import clock_of
from flexfloor.simulate.elasticity import Elasticity
from flexfloor.simulate.group import Group
from flexfloor.simulate.rules import GroupRules
from flexfloor.simulate.workload import Workload


@dataclasses.dataclass(frozen=True)
class ShrinksTo:
    """A decision that always says the same."""

    size: int

    def may_change(self, standings, rungs, *, parts):
        return True

    def decide(self, standings, rungs, *, passes, may_part):
        return Step(size=min(self.size, len(standings)))


class ASecond:
    """Each pass and each shrink takes one."""

    def pass_seconds(self, load):
        return 0 * load.rows + 1.0

    def shrink_seconds(self, before, after, moved_tokens):
        return 1.0


def three_ranks(size):
    """Five responses of ten tokens, all on the first rank; one at a time, an exchange after each 4 passes."""
    work = Workload(prompt=[0] * 5, tokens=[10] * 5, prompt_tokens=1, cap=10)
    rules = GroupRules(admit=Paged(), max_live=1, most_joining=100, interval=4, rebalances=True)
    elasticity = Elasticity(
        ShrinksTo(size),
        [1, 2],
        memory=RankMemory(budget=UNLIMITED, dense=0, expert=1, training=0, kv_token=1, row=1, logits=1),
        num_experts=6,
        size=3,
        longest=11,
        kv_tokens_per_rank=100,
    )
    group = Group(work, [range(5), [], []], rules, room=100, elasticity=elasticity)
    group.run()
    return group


def test_queues_are_left_alone_where_the_group_shrinks():
    # Staying, others begin at pass 4 and end with pass 13. Shrinking then, the second rank begins at pass 8.
    assert sorted(three_ranks(3).ended.values()) == [9, 13, 13, 19, 25]
    group = three_ranks(2)
    assert [each.after_passes for each in group.shrinks] == [4]
    assert sorted(group.ended.values())[:2] == [9, 17]


def test_each_exchange_takes_its_time_before_a_shrink():
    group = three_ranks(2)
    assert group.exchanges == list(range(4, group.passes + 1, 4))
    plain, timed = clock_of(group, ASecond()), clock_of(group, ASecond(), exchange_seconds=0.5)
    assert timed.end == plain.end + 0.5 * len(group.exchanges)
    assert (plain.shrinks[0].start_s, timed.shrinks[0].start_s) == (4.0, 4.5)


def test_a_single_rank_exchanges_nothing():
    assert three_ranks(1).exchanges == [4]
