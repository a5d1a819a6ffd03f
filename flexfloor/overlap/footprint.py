"""What a built model takes on a rank of a lease, in bytes.

Weights are read off the parameters, activations are estimated. A row that is routed may meet any rank, so
that one rank can get more of them than it sends: twice its share is counted.
"""

from __future__ import annotations

from megatron.core.models.gpt.gpt_model import GPTModel

from flexfloor.elastic.moe_layer import moe_layers
from flexfloor.models.activations import row_activation_bytes
from flexfloor.models.config import ModelConfig
from flexfloor.overlap.floor import LeaseMemory
from flexfloor.overlap.guests import gradient_dtype

SKEW = 2
"""How many times its share of the rows a rank's experts may get."""


def lease_memory(
    model: GPTModel,
    shape: ModelConfig,
    *,
    budget: int,
    training: int,
    rows: int,
    recompute: str,
    has_reference: bool,
) -> LeaseMemory:
    """What a rank of `model` takes, the same on all ranks of an expert group.

    Args:
        shape: what the model was built by.
        budget: bytes that this rank may hold.
        training: bytes that training keeps (`train.resident`).
        rows: of a lease's micro-batch, which the ranks of a replica share.
        recompute: what backward computes again (`activations.RECOMPUTE`).
        has_reference: whether a reference policy's experts come with the policy's.
    """
    layers = [layer.expert_weights() for layer in moe_layers(model)]
    some = [weight for layer in layers for weight in layer[min(layer)]]
    held = sum(weight.nbytes * (2 if has_reference else 1) for weight in some)
    tp_size = model.config.tensor_model_parallel_size
    vocab_size = model.embedding.word_embeddings.weight.size(0) * tp_size
    return LeaseMemory(
        budget=budget,
        weights=sum(weight.nbytes for weight in model.parameters()),
        training=training,
        guest=held + sum(weight.numel() * gradient_dtype(weight).itemsize for weight in some),
        row=SKEW * row_activation_bytes(shape, vocab_size, recompute, tp_size),
        rows=rows,
    )
