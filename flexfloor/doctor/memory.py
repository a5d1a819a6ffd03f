"""How much memory a run takes, estimated from its configuration: plain arithmetic, before any model exists.

An estimate, for the question whether a run can be meant for this machine: it counts what grows with the
model and the batch, and is within a third of the 1.5 GiB a rank that the demo was seen to take.
"""

from __future__ import annotations

from flexfloor.config import Config
from flexfloor.doctor.parameters import dense_parameters, expert_parameters
from flexfloor.models.activations import row_activation_bytes
from flexfloor.models.config import DTYPE_BYTES
from flexfloor.rollout.kv_shape import model_kv_bytes_per_token

PROCESS_BYTES = 450 * 1024**2
"""A rank with Torch, Megatron-Core and the tokenizer imported, before there is a model."""


def rank_bytes(config: Config, *, vocab_size: int, world_size: int, is_cpu_host: bool) -> int:
    """Bytes that one rank takes in training.

    Args:
        vocab_size: rows of the embedding.
        world_size: ranks of the run.
        is_cpu_host: whether the rank's process itself counts, and no optimizer state is shared out.
    """
    model, ep = config.model, config.parallel.ep
    dense = dense_parameters(model, vocab_size)
    experts = expert_parameters(model) * model.num_experts // ep
    if is_cpu_host:
        # weight, gradient, Adam's two moments, and the rollout's copy in another layout
        state = (dense + experts) * DTYPE_BYTES[model.dtype] * 5
    else:
        # weight, gradient in float32; master weight and two moments shared out over the copies
        state = (dense + experts) * (DTYPE_BYTES[model.dtype] + 4)
        state += 12 * (dense // world_size + experts * ep // world_size)
    return state + kv_bytes(config) + activation_bytes(config, vocab_size) + PROCESS_BYTES * is_cpu_host


def kv_bytes(config: Config) -> int:
    """Bytes of the KV cache of one rank: its live sequences at full length, within the budget."""
    model, data, rollout = config.model, config.data, config.rollout
    per_token = model_kv_bytes_per_token(model)
    longest = data.max_prompt_length + data.max_response_length
    return min(rollout.kv_budget_bytes, rollout.max_live_sequences * longest * per_token)


def activation_bytes(config: Config, vocab_size: int) -> int:
    """Bytes that forward and backward of one micro-batch take, logits included."""
    return config.actor.micro_batch_tokens * row_activation_bytes(config.model, vocab_size)
