"""Megatron's gradient buffers, optimizer and learning-rate schedule, set up for sums of token losses.

Gradients are summed, never averaged, over micro-batches and ranks, in Megatron's buffers; the
division by the mini-batch's denominator happens once (`calculate_per_token_loss`). On a CPU host
every rank holds the whole optimizer state of its parameters; on GPUs Megatron's distributed
optimizer shards it.

Invariants:
- The gradient norm counts each dense parameter once and each expert once, for every EP and TP size.
- The first update already moves the weights: warm-up starts above a rate of 0.
"""

from __future__ import annotations

from typing import Any

import torch
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.optimizer import MegatronOptimizer, OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.utils import get_model_config

from flexfloor.device import is_cpu_host
from flexfloor.errors import CheckpointError
from flexfloor.train.config import OptimConfig


def build_ddp(model: torch.nn.Module, groups: ProcessGroupCollection) -> DistributedDataParallel:
    """Wrap a Megatron model in gradient buffers that sum over the data-parallel ranks."""
    config = get_model_config(model)
    assert config.calculate_per_token_loss, "the model's config averages gradients over ranks"
    ddp_config = DistributedDataParallelConfig(
        grad_reduce_in_fp32=config.params_dtype in (torch.bfloat16, torch.float16),
        # an expert without tokens has no gradient, and reducing during backward waits for each one
        overlap_grad_reduce=False,
        use_distributed_optimizer=not is_cpu_host(),
    )
    return DistributedDataParallel(config, ddp_config, model, pg_collection=groups)


def build_optimizer(
    ddp: DistributedDataParallel, optim: OptimConfig, groups: ProcessGroupCollection
) -> MegatronOptimizer:
    """Build AdamW over the wrapped model's parameters, with clipping by the global gradient norm."""
    params_dtype = get_model_config(ddp).params_dtype
    config = OptimizerConfig(
        optimizer="adam",
        lr=optim.lr,
        min_lr=optim.min_lr,
        weight_decay=optim.weight_decay,
        adam_beta1=optim.betas[0],
        adam_beta2=optim.betas[1],
        adam_eps=optim.eps,
        clip_grad=optim.clip_grad,
        params_dtype=params_dtype,
        bf16=params_dtype is torch.bfloat16,
        use_distributed_optimizer=ddp.ddp_config.use_distributed_optimizer,
    )
    return get_megatron_optimizer(config, [ddp], use_gloo_process_groups=False, pg_collection=groups)


def build_scheduler(optimizer: MegatronOptimizer, optim: OptimConfig) -> OptimizerParamScheduler:
    """Build the schedule of learning rates; it counts optimizer steps."""
    warmup = optim.lr_warmup_steps
    return OptimizerParamScheduler(
        optimizer,
        # Megatron's warm-up reaches lr after `warmup` steps from here; 0 would waste the first update
        init_lr=optim.lr / (warmup + 1),
        max_lr=optim.lr,
        min_lr=optim.min_lr,
        lr_warmup_steps=warmup,
        # a constant rate never looks at it, but it must lie behind the warm-up
        lr_decay_steps=optim.lr_decay_steps or warmup + 1,
        lr_decay_style=optim.lr_decay_style,
        start_wd=optim.weight_decay,
        end_wd=optim.weight_decay,
        wd_incr_steps=0,
        wd_incr_style="constant",
        # On resume the settings of this run hold, and only the number of steps made is restored.
        use_checkpoint_opt_param_scheduler=False,
        override_opt_param_scheduler=True,
    )


def restore_schedule(scheduler: OptimizerParamScheduler, state: dict[str, Any]) -> None:
    """Put `scheduler` where its `state_dict` was `state`.

    Raises:
        CheckpointError: the two schedules are not the same.
    """
    scheduler.num_steps = 0  # upstream adds the steps it loads to those already made
    try:
        scheduler.load_state_dict(state)
    except AssertionError as error:  # the way upstream says that the two schedules differ
        raise CheckpointError(f"the learning-rate schedule is another one: {error}") from error
