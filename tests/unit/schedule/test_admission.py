"""Who generates: never more than the room holds, in order, and to the end, whatever is predicted."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flexfloor.schedule.admission import Admission, PassPlan
from flexfloor.schedule.prediction import greatest_length, near_future
from flexfloor.schedule.slots import Room, slot_sizes


@dataclass
class Response:
    """As the decision sees it, and the length that it does not know."""

    uid: str
    num_prompt_tokens: int
    max_new_tokens: int
    final: int
    num_tokens: int = 0


def generate(responses, room, predict, max_live):
    """Run to the end; who yielded, and how many were live in each pass, by the decision's own rules."""
    admission = Admission(room, predict, max_live=max_live)
    unfinished, num_live, yielded, passes = list(responses), 0, 0, []
    while unfinished:
        plan = admission.plan(unfinished[:num_live], unfinished[num_live:])
        assert plan.num_kept <= num_live and (plan.num_joining == 0 or plan.num_kept == num_live)
        yielded += num_live - plan.num_kept
        num_live = plan.num_kept + plan.num_joining
        assert 1 <= num_live <= max_live, "the first one always takes part"
        live = unfinished[:num_live]
        taken = [room.slot_size(each.num_prompt_tokens + each.num_tokens) for each in live]
        assert sum(taken) <= room.tokens
        passes.append(num_live)
        for each in live:
            each.num_tokens += 1
            assert each.num_tokens <= each.max_new_tokens
        ended = [each for each in live if each.num_tokens == each.final]
        num_live -= len(ended)
        unfinished = [each for each in unfinished if each.num_tokens < each.final]
        assert len(passes) <= sum(each.final for each in responses), "each pass brings the first one on"
    return yielded, passes


@st.composite
def workloads(draw):
    one = st.tuples(st.integers(1, 30), st.integers(1, 50), st.integers(1, 50))
    drawn = draw(st.lists(one, min_size=1, max_size=25))
    made = [
        Response(
            uid=str(i), num_prompt_tokens=prompt, max_new_tokens=max(most, final), final=min(most, final)
        )
        for i, (prompt, most, final) in enumerate(drawn)
    ]
    longest = max(each.num_prompt_tokens + each.max_new_tokens for each in made)
    room = Room(sizes=slot_sizes(longest), tokens=longest + draw(st.integers(0, 4 * longest)))
    return made, room, draw(st.integers(1, 30))


def now(uid, num_tokens, max_new_tokens):
    return num_tokens + 1


def at_random(uid, num_tokens, max_new_tokens):
    return int(np.random.default_rng(int(uid) + 100 * num_tokens).integers(num_tokens, max_new_tokens)) + 1


@settings(max_examples=150, deadline=None)
@given(workloads(), st.sampled_from([near_future, now, at_random, greatest_length]))
def test_everything_ends_in_order_within_the_room_whatever_is_predicted(workload, predict):
    generate(workload[0], workload[1], predict, workload[2])


@settings(max_examples=150, deadline=None)
@given(workloads())
def test_nothing_yields_when_no_prediction_is_too_short(workload):
    made, room, max_live = workload
    finals = {each.uid: each.final for each in made}
    assert generate(made, room, greatest_length, max_live)[0] == 0
    again = [Response(**{**vars(each), "num_tokens": 0}) for each in made]
    assert generate(again, room, lambda uid, n, most: finals[uid], max_live)[0] == 0


def claims(*found):
    return [
        Response(uid=str(i), num_prompt_tokens=prompt, max_new_tokens=20, final=20, num_tokens=tokens)
        for i, (prompt, tokens) in enumerate(found)
    ]


ROOM = Room(sizes=tuple(range(1, 31)), tokens=40)


def test_what_ends_early_makes_room_for_what_grows_late():
    # 10 + 4 tokens after 4 more passes, then gone; 10 + 20 after 20: at most 14 + 14 = 28, then 30
    finals = {"0": 5, "1": 20}
    admission = Admission(ROOM, lambda uid, n, most: finals[uid], max_live=9)
    assert admission.plan([], claims((10, 0), (10, 0))) == PassPlan(num_kept=0, num_joining=2)
    # both to the end: 29 + 29 tokens
    finals["0"] = 20
    assert admission.plan([], claims((10, 0), (10, 0))) == PassPlan(num_kept=0, num_joining=1)


def test_the_peak_is_the_last_pass_before_an_end():
    # after n passes both hold 9 + n: 40 tokens at 11 passes, 42 at 12
    for passes, joining in ((11, 2), (12, 1)):
        admission = Admission(ROOM, lambda uid, n, most, final=passes: final, max_live=9)
        assert admission.plan([], claims((10, 0), (10, 0))).num_joining == joining


def test_those_that_stand_last_yield_and_nothing_joins_then():
    live = claims((10, 5), (10, 5), (10, 1), (3, 0))
    assert Admission(ROOM, near_future, max_live=9).plan(live, claims((1, 0))) == PassPlan(
        num_kept=2, num_joining=0
    )
    assert Admission(ROOM, near_future, max_live=9).plan(live[:2], []) == PassPlan(num_kept=2, num_joining=0)


@pytest.mark.parametrize(("max_live", "joining"), [(1, 0), (2, 1), (5, 3)])
def test_no_more_are_live_than_allowed(max_live, joining):
    found = Admission(ROOM, now, max_live=max_live).plan(claims((5, 0)), claims(*[(5, 0)] * 3))
    assert found == PassPlan(num_kept=1, num_joining=joining)


@given(st.integers(1, 10_000), st.data())
def test_predictions_are_longer_than_now_and_no_longer_than_allowed(most, data):
    num_tokens = data.draw(st.integers(0, most - 1))
    for predict in (near_future, greatest_length):
        assert num_tokens < predict("p", num_tokens, most) <= most
