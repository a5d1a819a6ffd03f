import pytest

from flexfloor.errors import ConfigError
from flexfloor.reward.config import CustomRewardConfig, RewardConfig
from flexfloor.reward.load import load_scorer


def test_a_task_is_scored_by_itself(make_prompt):
    prompt = make_prompt(ground_truth="sun", data_source="reasoning_gym/spell_backward", metadata={})
    assert load_scorer(RewardConfig(), [prompt])(prompt, "sun", "eos") == 1.0


def test_the_users_function_scores_everything(make_prompt, tmp_path):
    (tmp_path / "score.py").write_text("def compute_score(data_source, solution_str, ground_truth): return 7")
    cfg = RewardConfig(custom_reward_function=CustomRewardConfig(path=str(tmp_path / "score.py")))
    prompts = [make_prompt(), make_prompt(data_source="reasoning_gym/spell_backward")]
    scorer = load_scorer(cfg, prompts)
    assert [scorer(prompt, "", "eos") for prompt in prompts] == [7, 7]


def test_a_source_without_a_scorer_is_named(make_prompt):
    task = make_prompt(data_source="reasoning_gym/spell_backward", metadata={})
    with pytest.raises(
        ConfigError, match=r"data source sums has no scorer .* reward.custom_reward_function.path"
    ):
        load_scorer(RewardConfig(), [task, make_prompt()])
