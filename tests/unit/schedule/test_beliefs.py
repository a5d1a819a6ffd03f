"""What a rollout tells of lengths: right on generated responses, and against draws that know no formula."""

import time
from math import erfc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from length_world import World, coverage, observe, ranks_of

from flexfloor.schedule.beliefs import Beliefs
from flexfloor.schedule.history import LengthHistory

LIMIT = 16384


def unseen(num_prompts=1, mean=6.5, sd=0.9, within=0.5, runaway=0.01):
    return Beliefs(
        log_mean=np.full(num_prompts, mean),
        log_sd=np.full(num_prompts, sd),
        within=within,
        runaway=runaway,
    )


def rollout(world, moment):
    """Lengths [P, n] of one visit, and tokens by the time that `moment` says."""
    lengths = world.visit(8)
    first = lengths.min(axis=1, keepdims=True)
    return lengths, np.broadcast_to(first if moment == "first" else np.minimum(moment, LIMIT), lengths.shape)


def ranks_during(moment, seen, at_limit, tell, seeds=6):
    """Ranks of the final lengths of unfinished responses, after `tell(beliefs, index, lengths, tokens)`."""
    found = []
    for seed in range(seeds):
        world = World(seed=seed, num_prompts=300, at_limit=at_limit)
        history = LengthHistory(LIMIT)
        for step in range(2):
            observe(history, world, world.visit(8), step, range(0, 150))
        asked = np.arange(0, 150) if seen else np.arange(150, 300)
        lengths, tokens = rollout(world, moment)
        lengths, tokens = lengths[asked], tokens[asked]
        index = np.broadcast_to(np.arange(150)[:, None], lengths.shape)
        beliefs = tell(history.predict([str(prompt) for prompt in asked]), index, lengths, tokens)
        alive = lengths > tokens
        found.append(
            ranks_of(beliefs, index[alive], tokens[alive], lengths[alive], LIMIT, np.random.default_rng(seed))
        )
    return np.concatenate(found)


def everything(beliefs, index, lengths, tokens):
    done = lengths <= tokens
    told = beliefs.finished(index[done], lengths[done], lengths[done] >= LIMIT)
    return told.alive(index[~done], tokens[~done])


def finished_alone(beliefs, index, lengths, tokens):
    done = lengths <= tokens
    return beliefs.finished(index[done], lengths[done], lengths[done] >= LIMIT)


@pytest.mark.parametrize("at_limit", [0.0, 0.03])
@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("moment", ["first", 1000, 4000])
def test_intervals_of_unfinished_responses_hold_what_they_say(moment, seen, at_limit):
    ranks = ranks_during(moment, seen, at_limit, everything)
    assert 0.75 <= coverage(ranks) <= 0.85
    assert abs(ranks.mean() - 0.5) < 0.03


def test_the_first_to_finish_alone_makes_its_siblings_look_short():
    naive = ranks_during("first", False, 0.0, finished_alone)
    assert not 0.75 <= coverage(naive) <= 0.85
    assert naive.mean() > 0.6  # real lengths lie above what is predicted
    assert abs(ranks_during("first", False, 0.0, everything).mean() - 0.5) < 0.03


def drawn(mean, sd, within, runaway, allowed, finished, alive, own, horizons):
    """P(own response is unfinished after the horizons), from draws of a group that agree with the rest."""
    rng = np.random.default_rng(0)
    mu = rng.normal(mean, sd, 3_000_000)
    weight = np.ones_like(mu)
    for length in finished:
        weight *= np.exp(-0.5 * ((np.log(length - 0.5) - mu) / within) ** 2)
    for tokens in alive:
        x = rng.normal(mu, within)
        weight *= (x > np.log(tokens)) | (rng.random(len(mu)) < runaway)
    length = np.ceil(np.exp(rng.normal(mu, within)))
    length[rng.random(len(mu)) < runaway] = allowed
    length = np.minimum(length, allowed)
    weight *= length > own
    return np.array([(weight * (length > own + more)).sum() for more in horizons]) / weight.sum()


@pytest.mark.parametrize(
    "finished, alive, own",
    [
        ([], [], 0),
        ([], [], 700),
        ([300], [300] * 3, 300),
        ([120, 150], [400, 900], 400),
        ([2000], [100], 100),
        ([], [3000] * 3, 3000),
    ],
)
def test_survival_is_that_of_draws(finished, alive, own):
    horizons, allowed = np.array([0, 50, 200, 500, 1000, 2500, 3999]), 4000
    beliefs = unseen().finished(np.zeros(len(finished)), np.array(finished), np.zeros(len(finished), bool))
    told = beliefs.alive(np.zeros(len(alive) + 1), np.array([*alive, own]))
    expected = drawn(6.5, 0.9, 0.5, 0.01, allowed, finished, alive, own, horizons)
    curve = told.survival(np.array([0]), np.array([own]), horizons, allowed)[0]
    assert np.abs(curve - expected).max() < 0.03
    # one that `alive` was not told of is the same: nothing of it was counted
    others = beliefs.alive(np.zeros(len(alive)), np.array(alive))
    if own not in alive:
        assert others.survival(np.array([0]), np.array([own]), horizons, allowed)[0] == pytest.approx(
            curve, abs=1e-5
        )


def test_a_bound_that_says_nothing_changes_nothing():
    for sd in (0.02, 0.9):
        told = unseen(sd=sd, mean=8.0).alive(np.array([0]), np.array([1]))
        assert told.prompt_means() == pytest.approx((8.0, sd), rel=1e-3)


def test_a_bound_moves_a_mean_as_far_as_a_plain_integral_says():
    mu = np.linspace(0, 15, 20_001)
    density = np.exp(-0.5 * ((mu - 6.5) / 0.9) ** 2)
    for tokens in (500, 3000, 10_000):
        bound = [0.01 + 0.99 * 0.5 * erfc((np.log(tokens) - each) / 0.5 / np.sqrt(2)) for each in mu]
        weight = density * np.array(bound) ** 2
        mean = (weight * mu).sum() / weight.sum()
        sd = np.sqrt((weight * (mu - mean) ** 2).sum() / weight.sum())
        told = unseen().alive(np.array([0, 0]), np.array([tokens, tokens]))
        assert told.prompt_means() == pytest.approx((mean, sd), rel=0.02)


def test_a_truncated_sibling_counts_as_one_that_is_longer():
    told = unseen().finished(np.array([0]), np.array([2000]), np.array([True]))
    assert told.prompt_means()[0] == pytest.approx(
        unseen().alive(np.array([0]), np.array([2000])).prompt_means()[0]
    )
    assert told.quantile(0.5, 9000)[0] > unseen().quantile(0.5, 9000)[0]
    ended = unseen().finished(np.array([0]), np.array([2000]), np.array([False]))
    assert told.mean(9000)[0] > ended.mean(9000)[0]


def test_the_order_in_which_responses_are_told_changes_nothing():
    index, lengths = np.array([0, 1, 0, 2, 1]), np.array([100, 7, 3000, 50, 900])
    cut = np.array([False, False, True, False, False])
    together = unseen(3).finished(index, lengths, cut)
    apart = unseen(3)
    for at in (4, 2, 0, 3, 1):
        apart = apart.finished(index[at : at + 1], lengths[at : at + 1], cut[at : at + 1])
    rows = np.array([2, 0, 1, 0])
    tokens = np.array([30, 200, 10, 500])
    back = np.array([3, 1, 0, 2])
    horizons = np.array([1, 10, 100, 1000])
    curves = together.alive(rows, tokens).survival(rows, tokens, horizons, 4000)
    again = apart.alive(rows[back], tokens[back]).survival(rows[back], tokens[back], horizons, 4000)
    assert again == pytest.approx(curves[back], abs=1e-12)


def test_a_prompt_says_nothing_of_another():
    told = unseen(3).finished(np.array([1]), np.array([5]), np.array([False]))
    told = told.alive(np.array([1, 2]), np.array([900, 9000]))
    before, after = unseen(3).quantile(0.5, LIMIT), told.quantile(0.5, LIMIT)
    assert before[0] == after[0] and after[1] < before[1] and after[2] > before[2]


def test_measurements_outweigh_a_prior_that_is_wrong_by_a_hundred():
    wrong = unseen(2, mean=np.log(1e5), sd=0.1)
    told = wrong.finished(np.array([0] * 4), np.array([900, 1000, 1100, 1000]), np.zeros(4, bool))
    right, still = told.quantile(0.5, LIMIT)
    assert 700 < right < 2500 and still == LIMIT
    low = unseen(1, mean=np.log(10), sd=0.1).alive(np.zeros(8), np.full(8, 1000))
    curve = low.survival(np.array([0]), np.array([1000]), np.array([100, 1000]), LIMIT)
    assert (curve > 0.3).all()


def test_many_responses_are_answered_at_once():
    world = World(seed=0, num_prompts=1024)
    lengths = world.visit(8).ravel()
    index = np.repeat(np.arange(1024), 8)
    tokens = np.minimum(lengths - 1, 700)
    horizons = np.arange(24) * 400
    told = unseen(1024).alive(index, tokens)
    seconds = []
    for _ in range(7):
        start = time.perf_counter()
        curves = told.survival(index, tokens, horizons, LIMIT)
        seconds.append(time.perf_counter() - start)
    assert curves.shape == (8192, 24)
    assert min(seconds) < 0.2  # 0.02 on a quiet core


EVENTS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 10**6), st.sampled_from(["ended", "cut", "alive"])),
    max_size=12,
)


@settings(max_examples=200)
@given(
    events=EVENTS,
    mean=st.floats(-2, 14),
    sd=st.floats(0.02, 3),
    within=st.floats(0.02, 2),
    runaway=st.floats(1e-6, 0.9),
    allowed=st.integers(1, 10**6),
)
def test_whatever_is_told_curves_fall_from_one_to_nothing(events, mean, sd, within, runaway, allowed):
    beliefs = unseen(4, mean, sd, within, runaway)
    done = [event for event in events if event[2] != "alive"]
    index, lengths = np.array([e[0] for e in done], dtype=int), np.array([e[1] for e in done], dtype=int)
    beliefs = beliefs.finished(index, lengths, np.array([e[2] == "cut" for e in done], dtype=bool))
    living = [event for event in events if event[2] == "alive"]
    index, tokens = np.array([e[0] for e in living], dtype=int), np.array([e[1] for e in living], dtype=int)
    beliefs = beliefs.alive(index, tokens)
    rows, now = np.append(index, [0, 3]), np.append(tokens, [0, 0])
    horizons = np.array([0, 1, 7, 100, allowed, 2 * 10**6])
    curves = beliefs.survival(rows, now, horizons, allowed)
    assert np.isfinite(curves).all() and ((curves >= 0) & (curves <= 1 + 1e-9)).all()
    assert (np.diff(curves, axis=1) <= 1e-9).all() and (curves[:, -2:] == 0).all()
    assert curves[-1, 0] == 1.0
    assert ((beliefs.mean(allowed) >= 1) & (beliefs.mean(allowed) <= allowed)).all()


def test_no_prompt_and_no_response():
    nothing = unseen(0)
    assert nothing.quantile(0.5, 10).shape == (0,) and nothing.mean(10).shape == (0,)
    none = np.empty(0, dtype=int)
    told = unseen(2).finished(none, none, none.astype(bool)).alive(none, none)
    assert told.survival(none, none, np.array([1, 2]), 10).shape == (0, 2)
