"""How much memory a run takes, estimated from its configuration: plain arithmetic, before any model exists.

An estimate, for the question whether a run can be meant for this machine: it counts what grows with the
model and the batch, and is within a third of the 1.5 GiB a rank that the demo was seen to take. Norms and
routers count as cut by `parallel.tp` like the rest of the dense weights, though each rank has them whole.
"""

from __future__ import annotations

from dataclasses import dataclass

from flexfloor.config import Config
from flexfloor.doctor.parameters import dense_parameters, expert_parameters
from flexfloor.models.activations import row_activation_bytes
from flexfloor.models.config import DTYPE_BYTES
from flexfloor.rollout.kv_shape import model_kv_bytes_per_token

PROCESS_BYTES = 450 * 1024**2
"""A rank with Torch, Megatron-Core and the tokenizer imported, before there is a model."""
GRADIENT_BYTES = 4
"""Of a parameter, summed in float32."""
OPTIMIZER_BYTES = 12
"""Of a parameter: master weight and two moments in float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemory:
    """Bytes on each GPU of a run, by what they are for."""

    dense: int
    """Weights of all but the routed experts: the rank's part of its replica's."""
    experts: int
    """Weights of the rank's routed experts."""
    gradients: int
    """Sums in float32, of every weight that the rank holds."""
    optimizer: int
    """The rank's share of master weights and Adam's two moments, in float32."""
    cache: int
    """KV cache of a rollout."""
    activations: int
    """Forward and backward of a micro-batch, logits included."""
    offloads_optimizer: bool
    """Whether the optimizer's share lies on the host until an update begins."""

    @property
    def staying(self) -> int:
        """What the optimizer has on the GPU during a rollout."""
        return 0 if self.offloads_optimizer else self.optimizer

    @property
    def training(self) -> int:
        """What training keeps during a rollout."""
        return self.gradients + self.staying

    @property
    def state(self) -> int:
        """What is there all the time."""
        return self.dense + self.experts + self.training

    @property
    def most(self) -> int:
        """Of a whole step: a rollout's cache goes before the update begins, for which the optimizer comes."""
        return self.state + max(self.cache, self.activations + self.optimizer - self.staying)


def gpu_memory(config: Config, *, vocab_size: int, world_size: int, ep: int) -> GpuMemory:
    """What a GPU holds, with Megatron's distributed optimizer, which shares its state out over copies.

    Args:
        vocab_size: rows of the embedding.
        world_size: ranks of the run.
        ep: of them, those that share one set of experts.
    """
    model, itemsize, tp = config.model, DTYPE_BYTES[config.model.dtype], config.parallel.tp
    dense = dense_parameters(model, vocab_size) // tp
    routed = expert_parameters(model) * model.num_experts
    return GpuMemory(
        dense=dense * itemsize,
        experts=routed // ep * itemsize,
        gradients=(dense + routed // ep) * GRADIENT_BYTES,
        # Each of the tp parts is shared out over its world_size / tp copies.
        optimizer=(dense * tp // world_size + routed // world_size) * OPTIMIZER_BYTES,
        cache=kv_bytes(config),
        activations=activation_bytes(config, vocab_size),
        offloads_optimizer=config.actor.offload_optimizer,
    )


def rank_bytes(config: Config, *, vocab_size: int, world_size: int, is_cpu_host: bool) -> int:
    """Bytes that one rank takes in training.

    Args:
        vocab_size: rows of the embedding.
        world_size: ranks of the run.
        is_cpu_host: whether the rank's process itself counts, and no optimizer state is shared out.
    """
    model, ep, tp = config.model, config.parallel.ep, config.parallel.tp
    if not is_cpu_host:
        return gpu_memory(config, vocab_size=vocab_size, world_size=world_size, ep=ep).most
    experts = expert_parameters(model) * model.num_experts // ep
    # weight, gradient, Adam's two moments, and the rollout's copy in another layout
    state = (dense_parameters(model, vocab_size) // tp + experts) * DTYPE_BYTES[model.dtype] * 5
    return state + kv_bytes(config) + activation_bytes(config, vocab_size) + PROCESS_BYTES


def kv_bytes(config: Config) -> int:
    """Bytes of the KV cache of one rank: its live sequences at full length, within the budget."""
    model, data, rollout = config.model, config.data, config.rollout
    per_token = model_kv_bytes_per_token(model, config.parallel.tp)
    longest = data.max_prompt_length + data.max_response_length
    return min(rollout.kv_budget_bytes, rollout.max_live_sequences * longest * per_token)


def activation_bytes(config: Config, vocab_size: int) -> int:
    """Bytes on a rank of forward and backward of one micro-batch of its replica, logits included.

    Rows of a sequence are never parted over micro-batches.
    """
    rows = max(
        config.actor.micro_batch_tokens, config.data.max_prompt_length + config.data.max_response_length
    )
    tp = config.parallel.tp
    return rows * row_activation_bytes(config.model, vocab_size, config.actor.recompute, tp)
