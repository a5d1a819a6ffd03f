"""Seconds, the ledger's account and the training stage of a simulated step, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfloor.ledger.balance import check_tiling
from flexfloor.ledger.metrics import occupation
from flexfloor.ledger.types import EARLY_UPDATE, State
from flexfloor.simulate.admit import Paged
from flexfloor.simulate.clock import Clock, ShrinkSpan, clock_of
from flexfloor.simulate.decision import SimpleRule
from flexfloor.simulate.elasticity import Elasticity
from flexfloor.simulate.group import Group
from flexfloor.simulate.records import RankStory, record_of
from flexfloor.simulate.rules import GroupRules
from flexfloor.simulate.step import leased_from
from flexfloor.simulate.training import overlapped
from flexfloor.simulate.workload import Workload
from tests.unit.simulate.test_simulated_group import AMPLE


class Costs:
    """A pass takes a second for each active rank, a shrink ten and one for each moved token."""

    def pass_seconds(self, load):
        return np.asarray(load.ranks, dtype=float)

    def shrink_seconds(self, before, after, moved_tokens):
        return 10.0 + moved_tokens

    def train_seconds(self, tokens):
        return tokens


def shrinking():
    """Two ranks with responses of 2 and 6 tokens, no prompts; after two passes rank 1's moves to rank 0."""
    work = Workload(prompt=[0, 1], tokens=[2, 6], prompt_tokens=0, cap=10)
    rules = GroupRules(admit=Paged(), max_live=8, most_joining=1000, interval=2)
    rule = SimpleRule(policy="greedy", sequences_per_rank=1, kv_tokens_per_rank=100)
    elasticity = Elasticity(
        rule, [1], memory=AMPLE, num_experts=2, size=2, longest=10, kv_tokens_per_rank=100
    )
    group = Group(work, [[0], [1]], rules, room=100, elasticity=elasticity)
    group.run()
    return group


def records(group, *, end_s, training=(), leased_s=None):
    """Rank 1 is leased from `leased_s` on."""
    clock = clock_of(group, Costs())
    leases = (None, leased_s)
    stories = [
        RankStory(clock=clock, position=rank, idle=group.idle[rank], leased_s=leases[rank]) for rank in (0, 1)
    ]
    return [
        record_of(rank, 0, story, opened_s=0.0, generated_s=clock.end, end_s=end_s, training=training)
        for rank, story in enumerate(stories)
    ]


def test_passes_and_a_shrink_in_seconds():
    """2 x 2 s, a shrink of 10 + 2 moved tokens, 4 x 1 s."""
    clock = clock_of(shrinking(), Costs())
    assert clock.ends.tolist() == [0.0, 2.0, 4.0, 17.0, 18.0, 19.0, 20.0]
    [span] = clock.shrinks
    assert (span.start_s, span.end_s, span.before, span.after) == (4.0, 16.0, 2, 1)


def test_the_ledger_of_a_shrink():
    """Rank 0 is occupied for 20 s and idle for none; rank 1 until the shrink ends at 16 s."""
    first, second = records(shrinking(), end_s=23.0)
    check_tiling([first, second])
    held = occupation([first, second])
    assert (held.wall_s, held.occupied_s, held.idle_s) == (20.0, 36.0, 0.0)
    assert second.released_s == 16.0 and first.released_s is None
    assert [(each.start_s, each.end_s, each.state) for each in second.intervals] == [
        (0.0, 4.0, State.GENERATING),
        (4.0, 16.0, State.SHRINKING),
        (16.0, 20.0, State.WAITING),
        (20.0, 23.0, State.TRAINING),
    ]
    assert second.intervals[2].is_released


def test_a_released_rank_trains_beside_generation():
    _, second = records(shrinking(), end_s=22.0, training=((15.0, 17.5), (18.0, 19.0)), leased_s=16.0)
    states = [(each.start_s, each.end_s, each.state) for each in second.intervals[2:]]
    assert states == [
        (16.0, 17.5, State.TRAINING),
        (17.5, 18.0, State.WAITING),
        (18.0, 19.0, State.TRAINING),
        (19.0, 20.0, State.WAITING),
        (20.0, 22.0, State.TRAINING),
    ]
    assert [each.stage for each in second.intervals if each.is_early] == [EARLY_UPDATE] * 2
    assert not second.intervals[-1].is_early


@pytest.mark.parametrize(("leased_s", "trained"), [(17.0, [(17.0, 17.5), (18.0, 19.0)]), (None, [])])
def test_a_rank_trains_only_once_it_is_leased(leased_s, trained):
    training = ((15.0, 17.5), (18.0, 19.0))
    found = records(shrinking(), end_s=22.0, training=training, leased_s=leased_s)
    check_tiling(found)
    first, second = ([(i.start_s, i.end_s) for i in rank.intervals if i.is_early] for rank in found)
    assert (first, second) == ([], trained)


def test_a_lease_opens_when_the_released_ranks_hold_all_experts():
    """Of 4 ranks the last is released at 5 s and two more at 9 s."""
    spans = (
        ShrinkSpan(start_s=4.0, end_s=5.0, before=4, after=3),
        ShrinkSpan(start_s=8.0, end_s=9.0, before=3, after=1),
    )
    clock = Clock(ends=np.array([0.0, 10.0]), shrinks=spans)
    opened = [[leased_from(4, least, clock, position) for position in range(4)] for least in (1, 2, 4)]
    assert opened == [[None, 9.0, 9.0, 5.0], [None, 9.0, 9.0, 9.0], [None] * 4]


def test_a_rank_of_a_fixed_group_is_idle_and_occupied_to_the_end():
    work = Workload(prompt=[0, 1], tokens=[5, 2], prompt_tokens=0, cap=10)
    group = Group(work, [[0], [1]], GroupRules(admit=Paged(), max_live=8, most_joining=1000), room=100)
    group.run()
    held = occupation(records(group, end_s=10.0))
    assert (held.wall_s, held.occupied_s, held.idle_s) == (10.0, 20.0, 6.0)


def test_training_beside_generation_by_hand():
    """Tokens: 10 at 0 s, 4 at 9 s. Ranks: two from 2 s, one more from 6 s. A second a token; end at 11 s.

    From 2 to 6 s eight tokens, two left: until 6.667 s three ranks train them; from 9 s four, until 10.333 s.
    """
    done = overlapped([(9.0, 4.0), (0.0, 10.0)], [(6.0, 1), (2.0, 2)], end=11.0, token_seconds=1.0)
    assert done.tokens == pytest.approx(14.0)
    expected = [(2.0, 6.0 + 2 / 3), (9.0, 9.0 + 4 / 3)]
    assert np.array(done.spans) == pytest.approx(np.array(expected))


times = st.floats(0.0, 20.0)


@given(
    st.lists(st.tuples(times, st.floats(0.0, 50.0)), max_size=8),
    st.lists(st.tuples(times, st.integers(1, 4)), max_size=4),
)
def test_no_token_is_trained_before_it_is_there_nor_without_time(complete, leased):
    end, seconds = 15.0, 0.5
    done = overlapped(complete, leased, end=end, token_seconds=seconds)
    there = sum(tokens for at, tokens in complete if at <= end)
    time = sum((end - at) * ranks for at, ranks in leased if at <= end)
    assert done.tokens <= there + 1e-9 and done.tokens * seconds <= time + 1e-9
    assert all(0 <= start < stop <= end for start, stop in done.spans)
    # Nobody waits while there is something to train: what is left at the end was not there, or had no time.
    if done.tokens < there - 1e-6 and leased and done.spans:
        assert max(stop for _, stop in done.spans) == pytest.approx(end)
