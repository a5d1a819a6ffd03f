"""A Mixtral-like model of upstream's own parts, small enough to train in a test, and one training step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from flexfloor import parallel

VOCAB_SIZE = 64
NUM_TOKENS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyTraining:
    """What a training step needs, on one rank."""

    ddp: Any
    optimizer: Any
    scheduler: Any
    groups: Any


def build(
    *,
    ep_size: int,
    dtype: torch.dtype = torch.float32,
    seed: int = 1,
    hidden_size: int = 32,
    shard_optimizer: bool = False,
) -> TinyTraining:
    """Model, optimizer and schedule with parallel state made for `ep_size`; all ranks call it."""
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

    torch.set_default_dtype(dtype)
    parallel.initialize(ep_size=ep_size, seed=seed, timeout_seconds=60)
    groups = parallel.groups()
    config = _config(ep_size, dtype, hidden_size)
    model = GPTModel(
        config,
        get_gpt_layer_local_spec(num_experts=4, moe_grouped_gemm=False, normalization="RMSNorm"),
        vocab_size=VOCAB_SIZE,
        max_sequence_length=NUM_TOKENS,
        position_embedding_type="rope",
        share_embeddings_and_output_weights=False,
        pg_collection=groups,
    )
    ddp_config = DistributedDataParallelConfig(
        grad_reduce_in_fp32=dtype is torch.bfloat16, use_distributed_optimizer=shard_optimizer
    )
    ddp = DistributedDataParallel(config, ddp_config, model, pg_collection=groups)
    ddp.broadcast_params()
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            optimizer="adam",
            lr=1e-2,
            min_lr=0.0,
            clip_grad=0.1,
            bf16=dtype is torch.bfloat16,
            params_dtype=dtype,
            use_distributed_optimizer=shard_optimizer,
        ),
        [ddp],
    )
    scheduler = OptimizerParamScheduler(
        optimizer,
        init_lr=0.0,
        max_lr=1e-2,
        min_lr=0.0,
        lr_warmup_steps=2,
        lr_decay_steps=10,
        lr_decay_style="cosine",
        start_wd=0.01,
        end_wd=0.01,
        wd_incr_steps=10,
        wd_incr_style="constant",
    )
    return TinyTraining(ddp=ddp, optimizer=optimizer, scheduler=scheduler, groups=groups)


def step(training: TinyTraining, number: int, input_ids: torch.Tensor | None = None) -> tuple[float, float]:
    """One update for step `number` on this rank's `input_ids` [rows, NUM_TOKENS], its own batch when None.

    Returns this rank's mean loss and the gradient norm of all.
    """
    from megatron.core.distributed import finalize_model_grads

    training.ddp.zero_grad_buffer()
    training.optimizer.zero_grad()
    if input_ids is None:
        generator = torch.Generator().manual_seed(100 * number + dist.get_rank())
        input_ids = torch.randint(0, VOCAB_SIZE, (2, NUM_TOKENS), generator=generator)
    position_ids = torch.arange(NUM_TOKENS)[None].expand_as(input_ids)
    hidden_ahead = torch.triu(torch.ones(1, 1, NUM_TOKENS, NUM_TOKENS, dtype=torch.bool), 1)
    loss = training.ddp(input_ids, position_ids, hidden_ahead, labels=input_ids)
    loss.sum().backward()
    num_tokens = torch.tensor(input_ids.numel(), dtype=torch.int)
    finalize_model_grads([training.ddp], num_tokens, pg_collection=training.groups)
    _, grad_norm, _ = training.optimizer.step()
    training.scheduler.step(1)
    return loss.mean().item(), grad_norm


def weights(training: TinyTraining) -> dict[str, torch.Tensor]:
    """Copies of this rank's parameters by name."""
    return {name: parameter.detach().clone() for name, parameter in training.ddp.module.named_parameters()}


def _config(ep_size: int, dtype: torch.dtype, hidden_size: int) -> Any:
    from megatron.core.transformer.transformer_config import TransformerConfig

    return TransformerConfig(
        num_layers=2,
        hidden_size=hidden_size,
        num_attention_heads=4,
        num_query_groups=2,
        ffn_hidden_size=64,
        moe_ffn_hidden_size=48,
        num_moe_experts=4,
        moe_router_topk=2,
        moe_router_load_balancing_type="none",
        moe_token_dispatcher_type="alltoall",
        expert_model_parallel_size=ep_size,
        add_bias_linear=False,
        gated_linear_unit=True,
        activation_func=F.silu,
        normalization="RMSNorm",
        hidden_dropout=0.0,
        attention_dropout=0.0,
        params_dtype=dtype,
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
        calculate_per_token_loss=True,
    )
