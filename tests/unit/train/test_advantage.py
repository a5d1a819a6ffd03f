"""GRPO advantages against values derived by hand."""

import numpy as np
import pytest

from flexfloor.errors import ConfigError, RewardError
from flexfloor.train.advantage import STD_EPSILON, filter_groups, group_advantages, grpo_advantages


def test_two_groups_by_hand():
    # group a: rewards 1, 3: mean 2, population std 1; group b: 0, 0, 6: mean 2, std sqrt(8)
    rewards, uids = [1.0, 0.0, 3.0, 0.0, 6.0], ["a", "b", "a", "b", "b"]
    got = grpo_advantages(rewards, uids, [0, 0, 1, 1, 2])
    one, root8 = 1 + STD_EPSILON, np.sqrt(8) + STD_EPSILON
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, [-1 / one, -2 / root8, 1 / one, -2 / root8, 4 / root8], rtol=1e-14)


def test_without_std_only_the_mean_is_taken_off():
    got = grpo_advantages([1.0, 3.0, 8.0], ["a"] * 3, range(3), norm_by_std=False)
    np.testing.assert_array_equal(got, [-3.0, -1.0, 4.0])


@pytest.mark.parametrize("reward", [0.1, 1 / 3, 1e-30, 1e30, -0.7])
@pytest.mark.parametrize("n", [2, 3, 7, 11])
@pytest.mark.parametrize("norm_by_std", [True, False])
def test_equal_rewards_give_exactly_zero(reward, n, norm_by_std):
    got = grpo_advantages([reward] * n, ["a"] * n, range(n), norm_by_std=norm_by_std)
    assert (got == 0.0).all()


def test_float32_rewards_are_normalised_in_float64():
    rewards = np.array([0.1, 0.3, 0.8], dtype=np.float32)
    exact = rewards.astype(np.float64)
    expected = (exact - exact.mean()) / (exact.std() + STD_EPSILON)
    np.testing.assert_allclose(group_advantages(rewards), expected, rtol=1e-14)


@pytest.mark.parametrize("seed", range(20))
def test_order_of_responses_does_not_matter_to_the_bit(seed):
    rng = np.random.default_rng(seed)
    rewards = rng.normal(size=13)
    order = rng.permutation(13)
    np.testing.assert_array_equal(group_advantages(rewards)[order], group_advantages(rewards[order]))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), None])
def test_reward_that_is_no_number_names_prompt_and_response(bad):
    with pytest.raises(RewardError, match=r"'q7'.*response 3"):
        grpo_advantages([1.0, bad, 0.0], ["q7"] * 3, [2, 3, 4])


def test_group_of_one_is_refused():
    with pytest.raises(ConfigError, match=r"rollout\.n = 1.*'b'"):
        grpo_advantages([1.0, 2.0, 5.0], ["a", "a", "b"], [0, 1, 0])


def test_filter_keeps_groups_whose_rewards_differ():
    keep = filter_groups([1, 0, 1, 0, 1, 0], ["a", "b", "a", "b", "c", "c"])
    np.testing.assert_array_equal(keep, [False, False, False, False, True, True])


def test_filter_may_leave_nothing():
    assert not filter_groups([1, 1], ["a", "a"]).any()
    assert len(filter_groups([], [])) == 0
