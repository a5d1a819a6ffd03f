"""Settings of the update: how advantages are formed, how the loss is summed, how weights move.

Each default stands on its field; a value out of range raises `ConfigError` that names the field.

Invariants:
- Neither packing (`micro_batch_tokens`) nor recomputation (`recompute`) changes which samples are trained, or
  the gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from flexfloor.checks import require, require_choice, require_range
from flexfloor.models.activations import RECOMPUTE

LOSS_AGG_MODES = ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")
LR_DECAY_STYLES = ("constant", "linear", "cosine")
OLD_LOGPROBS = ("rollout", "recompute")
KL_NAMES = {"k1": "k1", "k2": "k2", "k3": "k3", "kl": "k1", "mse": "k2", "low_var_kl": "k3"}
"""Schulman's name of each estimator by the names it may be asked for: his and verl's."""


@dataclass(kw_only=True)
class OptimConfig:
    """AdamW, gradient clipping and the learning-rate schedule; all steps are optimizer steps."""

    lr: float = 1e-3
    min_lr: float = 0.0
    """What linear and cosine decay end at."""
    weight_decay: float = 0.0
    """Of matrices; norm weights and biases are spared."""
    betas: list[float] = field(default_factory=lambda: [0.9, 0.95])
    eps: float = 1e-8
    clip_grad: float = 1.0
    """Largest gradient norm over all parameters; 0 turns clipping off."""
    lr_warmup_steps: int = 0
    """Steps below the full rate; the first takes lr / (lr_warmup_steps + 1)."""
    lr_decay_style: str = "constant"
    lr_decay_steps: int | None = None
    """Step at which decay has ended, warm-up included; needed unless constant."""

    def check(self, prefix: str) -> None:
        """Raise `ConfigError` for a value out of range; `prefix` is this section's dotted name."""
        require_range(f"{prefix}.lr", self.lr, above=0)
        require_range(f"{prefix}.min_lr", self.min_lr, 0, self.lr)
        require_range(f"{prefix}.weight_decay", self.weight_decay, 0)
        good_betas = len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas)
        require(good_betas, f"{prefix}.betas", self.betas, "two numbers, each >= 0 and < 1")
        require_range(f"{prefix}.eps", self.eps, above=0)
        require_range(f"{prefix}.clip_grad", self.clip_grad, 0)
        require_range(f"{prefix}.lr_warmup_steps", self.lr_warmup_steps, 0)
        require_choice(f"{prefix}.lr_decay_style", self.lr_decay_style, LR_DECAY_STYLES)
        if self.lr_decay_steps is not None:
            require_range(f"{prefix}.lr_decay_steps", self.lr_decay_steps, above=self.lr_warmup_steps)
        elif self.lr_decay_style != "constant":
            require(False, f"{prefix}.lr_decay_steps", None, f"set when lr_decay_style={self.lr_decay_style}")


@dataclass(kw_only=True)
class ActorConfig:
    """The policy's update: mini-batches, clipped loss, aggregation, optimizer."""

    ppo_mini_batch_size: int = 16
    """Prompts (groups) to one optimizer step."""
    ppo_epochs: int = 1
    """Passes over the samples of one rollout."""
    micro_batch_tokens: int = 4096
    """Most rows of one packed forward pass on a rank; a longer sequence gets a pass of its own."""
    recompute: str = "none"
    """Activations that backward computes again instead of forward keeping them: `none`, those of `moe` layers
    (Megatron's selective recomputation of that module) or of `full` layers, but their inputs."""
    offload_optimizer: bool = False
    """On GPUs master weights and moments lie on the host but for updates and checkpoints; on CPUs nothing."""
    clip_ratio_low: float = 0.2
    clip_ratio_high: float = 0.2
    """The ratio is clipped to 1 - low and 1 + high."""
    loss_agg_mode: str = "token-mean"
    """How token losses become one number (`flexfloor.train.losses.aggregate`)."""
    entropy_coeff: float = 0.0
    """Weight of the entropy bonus; the entropy is reported at 0 too."""
    use_kl_loss: bool = False
    """Add `kl_loss_coef` times the KL to the reference policy, aggregated like the loss."""
    kl_loss_coef: float = 0.001
    """0 only reports it."""
    kl_loss_type: str = "k3"
    """Estimator (`flexfloor.train.losses.kl`): k1, k2, k3, or verl's kl, mse, low_var_kl."""
    old_logprobs: str = "rollout"
    """`rollout` takes the sampler's own; `recompute` runs the training model once more."""
    optim: OptimConfig = field(default_factory=OptimConfig)

    def __post_init__(self) -> None:
        for name in ("ppo_mini_batch_size", "ppo_epochs", "micro_batch_tokens"):
            require_range(f"actor.{name}", getattr(self, name), 1)
        require_choice("actor.recompute", self.recompute, RECOMPUTE)
        require_range("actor.clip_ratio_low", self.clip_ratio_low, above=0, below=1)
        require_range("actor.clip_ratio_high", self.clip_ratio_high, above=0)
        require_choice("actor.loss_agg_mode", self.loss_agg_mode, LOSS_AGG_MODES)
        finite = math.isfinite(self.entropy_coeff)
        require(finite, "actor.entropy_coeff", self.entropy_coeff, "a finite number")
        require_range("actor.kl_loss_coef", self.kl_loss_coef, 0)
        require_choice("actor.kl_loss_type", self.kl_loss_type, KL_NAMES)
        require_choice("actor.old_logprobs", self.old_logprobs, OLD_LOGPROBS)
        self.optim.check("actor.optim")


@dataclass(kw_only=True)
class AlgorithmConfig:
    """How rewards become advantages."""

    adv_estimator: str = "grpo"
    norm_adv_by_std_in_grpo: bool = True
    """Without it only the group's mean is taken off (Dr. GRPO)."""
    filter_groups: bool = False
    """Train only groups whose scores differ; in the others every advantage is 0, or comes from KL alone."""
    use_kl_in_reward: bool = False
    """Take `kl_coef` times log pi_old - log pi_ref, summed over the response, off its score."""
    kl_coef: float = 0.001

    def __post_init__(self) -> None:
        require_range("algorithm.kl_coef", self.kl_coef, 0)
        require_choice("algorithm.adv_estimator", self.adv_estimator, ("grpo",))
