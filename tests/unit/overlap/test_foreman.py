"""What a lease does next."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flexfloor.overlap.complete import CompleteGroups
from flexfloor.overlap.events import Compare, Ended, Grow, Open, Over, Posted, Scored, Shrunk, Train
from flexfloor.overlap.foreman import Foreman
from flexfloor.overlap.placement import lease_placement
from flexfloor.train.types import Sample

EP, EXPERTS, N = 4, 8, 2


def posted(*keys, tokens=3):
    responses = [
        Scored(uid=uid, response_index=index, token_ids=(1,) * tokens, logprobs=(0.0,) * tokens, score=1.0)
        for uid, index in keys
    ]
    return Posted(responses=tuple(responses))


def opening(rung, ep_index=0):
    return Shrunk(ep_index=ep_index, rung=rung, opened=lease_placement(EXPERTS, EP, rung))


def shrunk(rung, ep_index=0):
    return Shrunk(ep_index=ep_index, rung=rung, opened=None)


def samples_of(group):
    return [
        Sample(
            uid=each.uid,
            response_index=each.response_index,
            prompt_ids=np.array([7]),
            response_ids=np.array(each.token_ids),
            old_logprobs=np.array(each.logprobs),
        )
        for each in group
    ]


def new_foreman(uids="ab", *, num_ep_groups=1, compares=False, round_tokens=100, make=samples_of, **sizes):
    return Foreman(
        CompleteGroups(uids, N),
        make,
        ep_index=0,
        **{"ep_size": EP} | sizes,
        num_ep_groups=num_ep_groups,
        round_tokens=round_tokens,
        compares=compares,
    )


def keys_of(order):
    return sorted((sample.uid, sample.response_index) for sample in order.samples)


def test_nothing_is_ordered_before_ranks_can_hold_all_experts():
    foreman = new_foreman()
    foreman.note([shrunk(3), posted(("a", 0), ("a", 1))])
    assert foreman.next_order() is None
    foreman.note([opening(2)])
    assert foreman.next_order() == Open(rung=2, placement=lease_placement(EXPERTS, EP, 2))
    assert keys_of(foreman.next_order()) == [("a", 0), ("a", 1)]
    assert foreman.next_order() is None


def test_a_lease_that_opens_late_opens_where_the_experts_were_sent_and_grows_then():
    foreman = new_foreman()
    foreman.note([opening(2), shrunk(1)])
    first, second = foreman.next_order(), foreman.next_order()
    assert isinstance(first, Open) and first.rung == 2
    assert isinstance(second, Grow) and second.rung == 1
    # Position 1 keeps its own experts, 2 and 3; guests of position 0 stay where they were.
    assert [second.placement.hosts_of[expert] for expert in (2, 3)] == [(1,), (1,)]
    assert second.placement.hosts_of[:2] == first.placement.hosts_of[:2]


def test_growth_comes_before_more_work():
    foreman = new_foreman()
    foreman.note([opening(3)])
    assert isinstance(foreman.next_order(), Open)
    foreman.note([posted(("a", 0), ("a", 1)), shrunk(1)])
    assert foreman.next_order().rung == 1
    assert isinstance(foreman.next_order(), Train)


def test_the_shrinks_of_another_expert_group_are_none_of_this_one():
    foreman = new_foreman(num_ep_groups=2)
    foreman.note([opening(2, ep_index=1)])
    assert foreman.next_order() is None


def test_the_end_comes_when_all_expert_groups_have_generated_whatever_is_left():
    foreman = new_foreman(num_ep_groups=2)
    foreman.note([opening(2), Ended(ep_index=0), posted(("a", 0), ("a", 1))])
    assert isinstance(foreman.next_order(), Open)
    assert isinstance(foreman.next_order(), Train)
    foreman.note([posted(("b", 0), ("b", 1)), Ended(ep_index=1)])
    assert foreman.next_order() == Over()


def test_experts_that_were_sent_are_taken_even_if_generation_has_ended_meanwhile():
    foreman = new_foreman()
    foreman.note([opening(2), Ended(ep_index=0)])
    assert isinstance(foreman.next_order(), Open)
    assert foreman.next_order() == Over()


def test_the_end_comes_to_ranks_that_never_were_a_lease():
    foreman = new_foreman()
    foreman.note([shrunk(3), Ended(ep_index=0)])
    assert foreman.next_order() == Over()


def test_samples_are_compared_before_they_are_trained():
    foreman = new_foreman(compares=True)
    foreman.note([opening(2), posted(("a", 0), ("a", 1), ("b", 0), ("b", 1))])
    foreman.next_order()
    order = foreman.next_order()
    assert isinstance(order, Compare) and len(order.samples) == 4
    assert foreman.next_order() is None
    foreman.compared(order.samples[:2])
    assert keys_of(foreman.next_order()) == [("a", 0), ("a", 1)]


def test_a_group_of_which_nothing_is_trained_is_no_work():
    foreman = new_foreman(make=lambda group: [])
    foreman.note([opening(2), posted(("a", 0), ("a", 1))])
    foreman.next_order()
    assert foreman.next_order() is None


@given(st.data())
def test_every_complete_group_is_trained_once_and_nothing_else(data):
    """Responses, shrinks and looks at the log in any order; the end comes last."""
    uids = "abcdef"
    foreman = new_foreman(uids[:4], round_tokens=data.draw(st.integers(1, 20)))
    rungs = sorted(data.draw(st.sets(st.sampled_from([3, 2, 1]), min_size=1)), reverse=True)
    opens = data.draw(st.integers(0, len(rungs) - 1))
    keys = data.draw(st.permutations([(uid, index) for uid in uids for index in range(N)]))
    keys = keys[: data.draw(st.integers(0, len(keys)))]
    events = [posted(key, tokens=data.draw(st.integers(1, 9))) for key in keys]
    places = sorted(data.draw(st.integers(0, len(events))) for _ in rungs)
    for index, (place, rung) in reversed(list(enumerate(zip(places, rungs, strict=True)))):
        events.insert(place, opening(rung) if index == opens else shrunk(rung))
    trained, lease, orders = [], None, []
    for event in [*events, None]:
        if event is not None:
            foreman.note([event])
        if event is None or data.draw(st.booleans()):
            while (order := foreman.next_order()) is not None:
                orders.append(order)
    for order in orders:
        if isinstance(order, Open | Grow):
            assert (lease is None) == isinstance(order, Open)
            assert lease is None or order.rung < lease
            lease = order.rung
            assert all(host >= lease for hosts in order.placement.hosts_of for host in hosts)
        else:
            assert lease is not None
            trained += keys_of(order)
    complete = [uid for uid in uids[:4] if all((uid, index) in keys for index in range(N))]
    assert sorted(trained) == sorted((uid, index) for uid in complete for index in range(N))
    assert lease == rungs[-1]
    foreman.note([Ended(ep_index=0)])
    assert foreman.next_order() == Over()


def test_a_round_is_asked_for_all_ranks_of_the_lease():
    foreman = new_foreman("abc", round_tokens=4)
    foreman.note([opening(2), *(posted((uid, 0), (uid, 1)) for uid in "abc")])
    foreman.next_order()
    # Samples of three rows: one to each of two ranks at a time.
    assert [len(foreman.next_order().samples) for _ in range(3)] == [2, 2, 2]
    assert foreman.next_order() is None


def test_rungs_count_replicas_and_placements_ranks():
    # Three replicas of two ranks, each rank with two experts.
    foreman = new_foreman("abc", round_tokens=4, ep_size=6, replica_size=2)
    opened = lease_placement(12, 6, 4)
    foreman.note([Shrunk(ep_index=0, rung=2, opened=opened), *(posted((uid, 0), (uid, 1)) for uid in "abc")])
    assert foreman.next_order() == Open(rung=2, placement=opened)
    assert len(foreman.next_order().samples) == 1, "of three rows: one replica takes one"
    foreman.note([shrunk(1)])
    order = foreman.next_order()
    assert order.rung == 1 and order.placement.hosts_of[:4] == opened.hosts_of[:4]
    assert order.placement.hosts_of[4:] == ((2,), (2,), (3,), (3,), (4,), (4,), (5,), (5,))
    assert len(foreman.next_order().samples) == 2
