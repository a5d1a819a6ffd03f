import pytest
from omegaconf import OmegaConf

from flexfloor.errors import ConfigError
from flexfloor.reward.config import CustomRewardConfig, RewardConfig


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RewardConfig(num_workers=0), "reward.num_workers=0, allowed: 1 or more"),
        (lambda: RewardConfig(timeout_seconds=0.0), "reward.timeout_seconds=0.0, allowed: above 0"),
        (lambda: RewardConfig(timeout_seconds=float("nan")), "reward.timeout_seconds=nan"),
        (lambda: CustomRewardConfig(name="my score"), "reward.custom_reward_function.name='my score'"),
    ],
)
def test_a_bad_setting_is_named_with_what_is_allowed(make, words):
    with pytest.raises(ConfigError) as error:
        make()
    assert words in str(error.value)


def test_the_schema_is_composable():
    overrides = {"custom_reward_function": {"path": "score.py", "kwargs": {"bonus": 2}}, "num_workers": 3}
    config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(RewardConfig), overrides))
    custom = CustomRewardConfig(path="score.py", kwargs={"bonus": 2})
    assert config == RewardConfig(custom_reward_function=custom, num_workers=3)
