"""What a built model takes on a rank during a rollout on the fast path, in bytes.

Weights and copies are read off the parameters. The workspace of a pass is a bound by its widest points:
the rows of all ranks before and inside of the experts, and a rank's own in the attention.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor

from flexfloor.elastic.expert_banks import Pair, is_even
from flexfloor.elastic.floor import RankMemory
from flexfloor.elastic.moe_layer import moe_layers
from flexfloor.rollout.kv_shape import kv_shape
from flexfloor.rollout.linear import packed_bytes

SAMPLING_COPIES = 4
"""Of a sequence's logits, in float64 at most: scaled, narrowed, their probabilities, their noise."""
NOT_PACKED = ("word_embeddings", "router")
MADE_WHOLE = "_down_proj"
"""Latents' weights, of which a rank of a replica takes all rows."""


def rank_memory(model: GPTModel, *, budget: int, training: int) -> RankMemory:
    """What a rank of `model` takes, the same on all ranks of an expert group.

    Args:
        budget: bytes that this rank may hold.
        training: bytes that training keeps meanwhile.
    """
    config = model.config
    routed = [layer.expert_weights() for layer in moe_layers(model)]
    homes = {id(weight) for layer in routed for pair in layer.values() for weight in pair}
    some = min(routed[0])
    copied = _bytes_in_banks(routed) if _is_grouped(model) else packed_bytes
    itemsize = config.params_dtype.itemsize
    vocab_size = model.embedding.word_embeddings.weight.size(0) * config.tensor_model_parallel_size
    return RankMemory(
        budget=budget,
        dense=_dense_bytes(model, homes),
        expert=sum(w.nbytes + copied(w) for layer in routed for w in layer[some]),
        training=training,
        kv_token=kv_shape(config).bytes_per_token(itemsize),
        row=row_numbers(config) * itemsize,
        logits=vocab_size * (itemsize + SAMPLING_COPIES * 8),
    )


def _is_grouped(model: GPTModel) -> bool:
    return moe_layers(model)[0].computes_in_groups


def _bytes_in_banks(routed: Sequence[Mapping[int, Pair]]) -> Callable[[Tensor], int]:
    """Bytes that a bank takes beside a weight: none where the experts of each layer lie evenly."""
    is_view = all(is_even(experts) for experts in routed)
    return lambda weight: 0 if is_view else weight.nbytes


def row_numbers(config: TransformerConfig) -> int:
    """Numbers that one row of a pass takes at most: in the experts, or before and after its attention.

    Of heads and dense columns a rank has its own; a routed expert is whole.
    """
    hidden, inner = config.hidden_size, config.moe_ffn_hidden_size or config.ffn_hidden_size
    tp_size = config.tensor_model_parallel_size
    shared = config.moe_shared_expert_intermediate_size or 0
    routed = config.moe_router_topk * (4 * hidden + 6 * inner) + 4 * hidden
    heads = 8 * config.num_attention_heads * max(config.kv_channels, _latent_channels(config))
    dense = 4 * max(shared, config.ffn_hidden_size)
    return 4 * hidden + max(routed, heads // tp_size, dense // tp_size)


def _latent_channels(config: TransformerConfig) -> int:
    if not config.multi_latent_attention:
        return 0
    return config.kv_lora_rank + config.qk_head_dim + config.qk_pos_emb_head_dim + config.v_head_dim


def _dense_bytes(model: GPTModel, homes: set[int]) -> int:
    tied, tp_size = model.share_embeddings_and_output_weights, model.config.tensor_model_parallel_size
    total = 0
    for name, weight in model.named_parameters():
        if id(weight) not in homes:
            is_copied = (
                weight.dim() == 2 and (tied or NOT_PACKED[0] not in name) and NOT_PACKED[1] not in name
            )
            total += weight.nbytes + (packed_bytes(weight) if is_copied else 0)
            if tp_size > 1 and MADE_WHOLE in name:
                total += weight.nbytes * tp_size
    return total
