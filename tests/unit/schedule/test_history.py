"""What is predicted of lengths holds on lengths that were generated, and nothing observed breaks it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from length_world import World, coverage, fresh_ranks, observe

from flexfloor.schedule import history as history_module
from flexfloor.schedule.history import LengthHistory

LIMIT = 16384
SHAPES = {
    "measured": {},
    "narrow": {"sd": 0.316},
    "wide": {"sd": 1.398},
    "3 % at the limit": {"at_limit": 0.03},
    "5 % at the limit": {"at_limit": 0.05},
}


def uids(world):
    return [str(prompt) for prompt in range(world.num_prompts)]


def ranks_after(shape, visits, n, unseen=False, seeds=8):
    """Ranks of real lengths in predictions after `visits` visits of n responses, over several worlds."""
    found = []
    for seed in range(seeds):
        world = World(seed=seed, num_prompts=200, **SHAPES[shape])
        history = LengthHistory(LIMIT)
        seen = range(100) if unseen else range(200)
        for step in range(visits):
            observe(history, world, world.visit(n), step, seen)
        asked = range(100, 200) if unseen else range(200)
        lengths = world.visit(8)[list(asked)]
        beliefs = history.predict([str(prompt) for prompt in asked])
        found.append(fresh_ranks(beliefs, lengths, LIMIT, world.rng))
    return np.concatenate(found)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("visits, n, unseen", [(2, 8, True), (1, 1, False), (1, 8, False), (3, 8, False)])
def test_eighty_percent_intervals_hold_eighty_percent(shape, visits, n, unseen):
    ranks = ranks_after(shape, visits, n, unseen)
    assert 0.75 <= coverage(ranks) <= 0.85
    assert abs(ranks.mean() - 0.5) < 0.04


@pytest.mark.parametrize("n, promised", [(1, 0.66), (8, 0.76)])
def test_predictions_go_with_what_comes_as_closely_as_they_can(n, promised):
    # one response with another, and the mean of eight with one: 0.648 / sqrt(var(a) var(b)), see length_world
    found = []
    for seed in range(6):
        world = World(seed=seed, num_prompts=400)
        history = LengthHistory(LIMIT)
        observe(history, world, world.visit(n), 0)
        logs = np.log(world.visit(1)[:, 0])
        found.append(np.corrcoef(history.predict(uids(world)).log_mean, logs)[0, 1])
    assert np.mean(found) == pytest.approx(promised, abs=0.025)


def test_what_was_seen_draws_away_from_what_prompts_are_like():
    history = LengthHistory(LIMIT)
    for prompt in range(50):
        history.observe(f"other {prompt}", [1000 + 10 * prompt] * 4, [False] * 4, 0)
    for responses in (1, 4):
        history.observe(f"seen {responses}", [100] * responses, [False] * responses, 0)
    beliefs = history.predict(["never", "seen 1", "seen 4"])
    never, once, often = beliefs.mean(LIMIT)
    assert 1000 < never < 1600
    assert 90 < often < once < never
    assert beliefs.log_sd[0] > beliefs.log_sd[1] > beliefs.log_sd[2]


def test_truncated_responses_are_not_lengths():
    """More than half meet a limit of 1,000; taken for lengths, the next ones would end before it."""
    found = {}
    for censored in (True, False):
        world = World(seed=0, num_prompts=300, limit=1000)
        history = LengthHistory(1000)
        for prompt, lengths in enumerate(world.visit(8)):
            history.observe(str(prompt), lengths, (lengths == 1000) & censored, 0)
        lengths, beliefs = world.visit(8), history.predict(uids(world))
        at_limit = beliefs.survival(np.arange(300), np.zeros(300, dtype=int), np.array([999]), 1000).mean()
        ranks = fresh_ranks(beliefs, lengths, 1000, world.rng)
        found[censored] = (coverage(ranks), at_limit - (lengths == 1000).mean(), history.prior().mean)
    assert 0.75 <= found[True][0] <= 0.85
    assert abs(found[True][1]) < 0.05
    assert found[True][2] == pytest.approx(7.056, abs=0.25)
    assert found[False][1] < -0.1 and found[False][2] < 6.7


def test_a_poisoned_history_stays_finite_and_recovers():
    world = World(seed=1, num_prompts=200)
    history = LengthHistory(LIMIT)
    for step in range(3):
        observe(history, world, 100 * world.visit(8), step)
    wrong = history.predict(uids(world))
    assert np.isfinite(wrong.log_mean).all() and wrong.quantile(0.9, LIMIT).max() <= LIMIT
    for step in range(3, 6):
        observe(history, world, world.visit(8), step)
    ranks = fresh_ranks(history.predict(uids(world)), world.visit(8), LIMIT, world.rng)
    assert 0.7 <= coverage(ranks) <= 0.95


def test_a_few_poisoned_prompts_do_not_spoil_the_others():
    world = World(seed=2, num_prompts=200)
    clean, poisoned = LengthHistory(LIMIT), LengthHistory(LIMIT)
    for step in range(3):
        lengths = world.visit(8)
        observe(clean, world, lengths, step)
        lengths = lengths.copy()
        lengths[:10] = np.maximum(lengths[:10] // 100, 1) if step == 1 else lengths[:10]
        observe(poisoned, world, lengths, step)
    off = clean.predict(uids(world)).log_mean - poisoned.predict(uids(world)).log_mean
    assert np.median(np.abs(off[10:])) < 0.1 and np.abs(off[10:]).max() < 0.5
    assert np.abs(off[:10]).max() < 1.0


def test_older_visits_of_a_prompt_count_less():
    # six visits around 300, three around 600: each new one leaves 0.7 of what the ones before weigh, so that
    # the last three have 2.19 of 3.20 and the mean is 300 * 2 ** 0.685 = 482; all alike would make it 378
    world, history = World(seed=7, num_prompts=200), LengthHistory(LIMIT)
    noise = np.exp(np.random.default_rng(0).normal(0, 0.3, (9, 8)))
    for step in range(9):
        observe(history, world, world.visit(8), step)
        history.observe("it", np.ceil((300 if step < 6 else 600) * noise[step]), [False] * 8, step)
    assert 440 < np.exp(history.predict(["it"]).log_mean[0]) < 540


def test_a_prompt_that_takes_to_meeting_the_limit_is_expected_there():
    world, history = World(seed=8, num_prompts=200), LengthHistory(LIMIT)
    for step in range(6):
        observe(history, world, world.visit(8), step)
        lengths = np.full(8, 300 if step < 4 else LIMIT)
        history.observe("it", lengths, lengths == LIMIT, step)
    at_limit = history.predict(["it"]).survival(np.array([0]), np.array([0]), np.array([LIMIT - 1]), LIMIT)
    assert at_limit[0, 0] > 0.5


def test_a_policy_that_grows_longer_is_followed_before_a_prompt_is_seen_again():
    """Every step responses get 10 % longer, and each prompt is seen every fourth step."""
    world = World(seed=3, num_prompts=400)
    world.checkpoint = 0.0
    history = LengthHistory(LIMIT)
    off = []
    for step in range(20):
        world.mean = 6.0 + 0.1 * step
        asked = range(step % 4, 400, 4)
        lengths = world.visit(8)
        real = np.log(lengths[list(asked)]).mean()
        off.append(history.predict([str(prompt) for prompt in asked]).log_mean.mean() - real)
        observe(history, world, lengths, step, asked)
    assert -0.25 < np.mean(off[8:]) < 0.05  # last seen four steps ago, at 0.4 less


def test_the_least_recently_seen_prompt_goes_first():
    history = LengthHistory(LIMIT, max_prompts=300)
    for prompt in range(1000):
        history.observe("always", [50], [False], prompt // 50)
        history.observe(str(prompt), [500], [False], prompt // 50)
        assert len(history) <= 300
    known = set(history.state()["uids"])
    assert known == {"always"} | {str(prompt) for prompt in range(701, 1000)}
    always = history.state()["uids"].index("always")
    assert history.state()["records"]["visits"][always] == pytest.approx(
        (1 - 0.7**20) / 0.3
    )  # never forgotten
    smaller = LengthHistory.from_state(history.state(), LIMIT, max_prompts=10)
    assert smaller.state()["uids"] == history.state()["uids"][-10:]


def same(some, other):
    return all(
        np.array_equal(getattr(some, name), getattr(other, name))
        for name in ("log_mean", "log_sd", "within", "runaway")
    )


def test_state_goes_on_as_the_history_would_have(tmp_path):
    from flexfloor.train.plain_data import read_plain, write_plain

    world = World(seed=4, num_prompts=60, at_limit=0.05)
    history = LengthHistory(LIMIT, 50)
    for step in range(3):
        observe(history, world, world.visit(8), step)
    half = world.visit(8)
    observe(history, world, half, 3, range(30))
    write_plain(tmp_path / "extra", history.state())
    again = LengthHistory.from_state(read_plain(tmp_path / "extra"), LIMIT, 50)
    later = world.visit(8)
    for each in (history, again):
        observe(each, world, half, 3, range(30, 60))
        observe(each, world, later, 4)
    assert same(history.predict(uids(world)), again.predict(uids(world)))
    assert history.state()["uids"] == again.state()["uids"]


def test_asking_changes_nothing():
    world = World(seed=5, num_prompts=40)
    asked, quiet = LengthHistory(LIMIT), LengthHistory(LIMIT)
    for step in range(4):
        lengths = world.visit(4)
        for prompt in range(40):
            observe(asked, world, lengths, step, [prompt])
            asked.predict(["3", "never"])
        observe(quiet, world, lengths, step)
    assert same(asked.predict(uids(world)), quiet.predict(uids(world)))


def test_nothing_observed_gives_a_wide_prior_by_the_limit():
    for limit in (1, 16, 4096, 65536):
        beliefs = LengthHistory(limit).predict(["a", "b"])
        low, high = beliefs.quantile(0.1, limit), beliefs.quantile(0.9, limit)
        assert (low >= 1).all() and (high <= limit).all()
        assert limit < 16 or (high >= 8 * low).all()
    assert len(LengthHistory(16).predict([]).log_mean) == 0
    history = LengthHistory(16)
    history.observe("none", [], [], 0)
    assert len(history) == 0


def test_equal_lengths_are_expected_again():
    history = LengthHistory(LIMIT)
    for step in range(5):
        for prompt in range(200):
            history.observe(str(prompt), [300] * 8, [False] * 8, step)
    beliefs = history.predict(["0", "never"])
    assert beliefs.mean(LIMIT) == pytest.approx([300, 300], rel=0.1)
    assert (beliefs.quantile(0.9, LIMIT) < 1.35 * beliefs.quantile(0.1, LIMIT)).all()


def test_everything_truncated_is_expected_at_the_limit():
    history = LengthHistory(2048)
    for step in range(3):
        for prompt in range(50):
            history.observe(str(prompt), [2048] * 4, [True] * 4, step)
    beliefs = history.predict(["0", "never"])
    assert np.isfinite(beliefs.log_mean).all()
    assert (beliefs.mean(2048) > 1900).all()
    assert (beliefs.quantile(0.2, 2048) == 2048).all()


LENGTHS = st.lists(st.integers(1, 10**7), min_size=1, max_size=6)


@settings(max_examples=60)
@given(
    visits=st.lists(st.tuples(st.integers(0, 5), LENGTHS, st.booleans(), st.integers(0, 3)), max_size=12),
    limit=st.integers(1, 10**6),
)
def test_whatever_is_observed_predictions_are_finite_and_within_the_limit(visits, limit):
    history = LengthHistory(limit, max_prompts=4)
    step = 0
    for uid, lengths, cut, passed in visits:
        step += passed
        history.observe(str(uid), lengths, [cut] * len(lengths), step)
        assert len(history) <= 4
    beliefs = history.predict([str(uid) for uid in range(7)])
    for q in (0.01, 0.5, 0.99):
        quantile = beliefs.quantile(q, limit)
        assert ((quantile >= 1) & (quantile <= limit)).all()
    mean = beliefs.mean(limit)
    assert ((mean >= 1) & (mean <= limit)).all()
    assert np.isfinite(beliefs.log_sd).all() and (beliefs.log_sd > 0).all()


def test_the_prior_is_read_off_the_prompts_seen_last(monkeypatch):
    monkeypatch.setattr(history_module, "LATEST", 20)
    history = LengthHistory(LIMIT)
    for prompt in range(100):
        history.observe(str(prompt), [10_000], [False], 0)
    for prompt in range(100, 120):
        history.observe(str(prompt), [100], [False], 1)
    assert history.predict(["never"]).quantile(0.5, LIMIT)[0] < 300
