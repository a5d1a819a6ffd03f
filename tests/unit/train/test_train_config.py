"""Bad values of the update's settings name field, value and what is allowed."""

import pytest

from flexfloor.errors import ConfigError
from flexfloor.train.config import ActorConfig, AlgorithmConfig, OptimConfig


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: ActorConfig(ppo_mini_batch_size=0), "actor.ppo_mini_batch_size = 0"),
        (lambda: ActorConfig(ppo_epochs=0), "actor.ppo_epochs = 0"),
        (lambda: ActorConfig(micro_batch_tokens=-1), "actor.micro_batch_tokens = -1"),
        (lambda: ActorConfig(recompute="selective"), "actor.recompute = 'selective'"),
        (lambda: ActorConfig(clip_ratio_low=1.0), "actor.clip_ratio_low = 1.0"),
        (lambda: ActorConfig(clip_ratio_high=0.0), "actor.clip_ratio_high = 0.0"),
        (lambda: ActorConfig(loss_agg_mode="mean"), "actor.loss_agg_mode = 'mean'"),
        (lambda: ActorConfig(entropy_coeff=float("nan")), "actor.entropy_coeff = nan"),
        (lambda: ActorConfig(kl_loss_coef=-0.1), "actor.kl_loss_coef = -0.1"),
        (lambda: ActorConfig(kl_loss_type="k4"), "actor.kl_loss_type = 'k4'"),
        (lambda: AlgorithmConfig(kl_coef=float("inf")), "algorithm.kl_coef = inf"),
        (lambda: ActorConfig(old_logprobs="sampler"), "actor.old_logprobs = 'sampler'"),
        (lambda: ActorConfig(optim=OptimConfig(lr=0.0)), "actor.optim.lr = 0.0"),
        (lambda: AlgorithmConfig(adv_estimator="gae"), "algorithm.adv_estimator = 'gae'"),
        (lambda: OptimConfig(min_lr=1.0).check("sft.optim"), "sft.optim.min_lr = 1.0"),
        (lambda: OptimConfig(betas=[0.9]).check("sft.optim"), "sft.optim.betas = [0.9]"),
        (lambda: OptimConfig(betas=[0.9, 1.0]).check("x"), "x.betas = [0.9, 1.0]"),
        (lambda: OptimConfig(clip_grad=-1.0).check("x"), "x.clip_grad = -1.0"),
        (lambda: OptimConfig(lr_decay_style="wsd").check("x"), "x.lr_decay_style = 'wsd'"),
        (lambda: OptimConfig(lr_decay_style="cosine").check("x"), "x.lr_decay_steps = null"),
        (lambda: OptimConfig(lr_warmup_steps=5, lr_decay_steps=5).check("x"), "x.lr_decay_steps = 5"),
    ],
)
def test_bad_value_names_the_field(build, field):
    with pytest.raises(ConfigError) as error:
        build()
    assert str(error.value).startswith(field) and "must be" in str(error.value)


def test_defaults_are_valid():
    assert ActorConfig().optim.lr > 0
    assert AlgorithmConfig().norm_adv_by_std_in_grpo
