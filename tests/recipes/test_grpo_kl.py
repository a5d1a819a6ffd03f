"""KL to the reference policy through the command line: what it reports, and that a resumed run keeps it."""

import pytest
from small_run import learned, metrics_of, run

KL = [
    "actor.use_kl_loss=true",
    "actor.kl_loss_coef=0.1",
    "algorithm.use_kl_in_reward=true",
    "algorithm.kl_coef=0.2",
    "actor.optim.lr=3e-3",
    "trainer.logger=[jsonl]",
]


def test_resuming_keeps_the_reference_and_equals_not_stopping(tmp_path):
    assert run(tmp_path / "whole", *KL, "trainer.total_training_steps=4") == 0
    for steps in (2, 4):
        shape = ["trainer.save_freq=2", f"trainer.total_training_steps={steps}"]
        assert run(tmp_path / "parts", *KL, *shape) == 0
    whole, parts = metrics_of(tmp_path / "whole"), metrics_of(tmp_path / "parts")
    for step in range(5):
        assert learned(parts[step]) == learned(whole[step]), step
    assert "timing_s/ref" not in whole[0]
    first, *later = (whole[step] for step in range(1, 5))
    assert first["timing_s/ref"] > 0
    # the policy that samples in the first step is the reference
    assert first["actor/kl_loss"] == pytest.approx(0, abs=1e-9)
    assert first["actor/reward_kl_penalty"] == pytest.approx(0, abs=1e-5)
    assert first["critic/rewards/mean"] == pytest.approx(first["critic/score/mean"], abs=1e-4)
    for metrics in later:
        assert metrics["actor/kl_loss"] > 1e-6
        assert abs(metrics["critic/rewards/mean"] - metrics["critic/score/mean"]) > 1e-6


def test_from_a_checkpoint_without_reference_its_policy_is_the_reference(tmp_path):
    shape = ["trainer.save_freq=1", "trainer.logger=[jsonl]", "actor.optim.lr=3e-3"]
    assert run(tmp_path, *shape, "trainer.total_training_steps=1") == 0
    recomputed = ["actor.old_logprobs=recompute", "actor.ppo_epochs=2"]
    assert run(tmp_path, *shape, *KL, *recomputed, "trainer.total_training_steps=3") == 0
    metrics = metrics_of(tmp_path)
    assert "actor/kl_loss" not in metrics[1]
    assert metrics[2]["actor/reward_kl_penalty"] == 0, "recomputed by the same pass"
    assert metrics[3]["actor/reward_kl_penalty"] != 0
