"""The rollout pass straight from the parameters, without Megatron's modules in between.

Equal to the reference path in float64 up to rounding. It knows layers of RMS norms, grouped-query
attention with or without normalised queries and keys, and SwiGLU experts with a softmax router;
`unsupported` says what of a model it does not know, and the reference path is taken instead.

Shapes: T rows, H hidden, N query heads, G key/value heads, D channels, K experts of a row.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor

from flexfloor import heartbeat
from flexfloor.elastic.exchange import RowCounts, gather_rows, return_rows
from flexfloor.elastic.experts import swiglu_experts
from flexfloor.elastic.load import ExpertLoad
from flexfloor.elastic.moe_layer import ElasticMoELayer
from flexfloor.elastic.router import softmax_topk
from flexfloor.models.attention import RolloutSelfAttention
from flexfloor.rollout.context import RolloutContext
from flexfloor.rollout.linear import pack


def unsupported(model: GPTModel) -> str | None:
    """What of `model` the fast path does not know; None when it knows all of it."""
    config = model.config
    checks = {
        "attention other than grouped-query": config.multi_latent_attention,
        "norm other than RMSNorm": config.normalization != "RMSNorm",
        "linear layers with bias": config.add_bias_linear,
        "experts other than SwiGLU": config.activation_func is not F.silu or not config.gated_linear_unit,
        "router other than top-k softmax": config.moe_router_score_function != "softmax"
        or bool(config.moe_router_topk_scaling_factor)
        or config.moe_router_num_groups is not None,
        "shared experts": config.moe_shared_expert_intermediate_size is not None,
        "tensor parallelism": config.tensor_model_parallel_size > 1,
        "a layer of another kind": not all(
            isinstance(layer.self_attention, RolloutSelfAttention) and isinstance(layer.mlp, ElasticMoELayer)
            for layer in model.decoder.layers
        ),
    }
    return next((what for what, found in checks.items() if found), None)


class FastPath:
    """Computes passes from the parameters that the model holds when the path is made."""

    @torch.inference_mode()
    def __init__(self, model: GPTModel, load: ExpertLoad, *, num_positions: int):
        """Args:
        load: counts the rows of each expert.
        num_positions: longest sequence, prompt and response, that a pass may hold.
        """
        self.model = model
        dtype = model.config.params_dtype
        freqs = model.rotary_pos_emb.get_emb(num_positions)[:, 0]  # [positions, 1, D]
        # Swapping the halves and negating the sine of the first one rotates pairs of channels.
        first, second = freqs.sin().to(dtype).chunk(2, -1)
        self.rotary = (freqs.cos().to(dtype), torch.cat((-first, second), -1))
        self.layers = [_Layer(layer, model.config, load) for layer in model.decoder.layers]
        tied = model.share_embeddings_and_output_weights
        self.output = pack(model.shared_embedding_or_output_weight() if tied else model.output_layer.weight)

    @torch.inference_mode()
    def logits(self, context: RolloutContext, rows: RowCounts) -> Tensor:
        """[wanted, V] logits of the pass's last rows."""
        model, T = self.model, len(context.rows)
        hidden_TH = F.embedding(context.rows.input_ids_T, model.embedding.word_embeddings.weight)
        cos, sin = (table[context.rows.position_ids_T] for table in self.rotary)
        for layer in self.layers:
            heartbeat.beat()
            if T:
                hidden_TH = hidden_TH + layer.attend(hidden_TH, cos, sin, context)
            hidden_TH = hidden_TH + layer.mix(hidden_TH, rows)
        wanted = hidden_TH[context.rows.last_rows]
        norm = model.decoder.final_layernorm
        wanted = F.rms_norm(wanted, wanted.shape[-1:], norm.weight, model.config.layernorm_epsilon)
        return self.output(wanted)


class _Layer:
    def __init__(self, layer: Any, config: TransformerConfig, load: ExpertLoad):
        self.index = layer.layer_number - 1
        self.attention_norm, self.mlp_norm = layer.input_layernorm.weight, layer.pre_mlp_layernorm.weight
        self.qkv = pack(layer.self_attention.linear_qkv.weight)
        self.projection = pack(layer.self_attention.linear_proj.weight)
        self.head_norm = _head_norm(layer.self_attention)
        self.router = layer.mlp.router.weight
        self.experts = {
            expert: (pack(up), pack(down)) for expert, (up, down) in layer.mlp.expert_weights().items()
        }
        self.config, self.load = config, load

    def attend(self, hidden_TH: Tensor, cos: Tensor, sin: Tensor, context: RolloutContext) -> Tensor:
        config = self.config
        G, D = config.num_query_groups, config.kv_channels
        per_group = config.num_attention_heads // G
        normed = F.rms_norm(hidden_TH, hidden_TH.shape[-1:], self.attention_norm, config.layernorm_epsilon)
        mixed = self.qkv(normed).view(-1, G, per_group + 2, D)
        turning = mixed[:, :, : per_group + 1]
        if self.head_norm is not None:
            turning = F.rms_norm(turning, (D,), eps=config.layernorm_epsilon) * self.head_norm
        rotated = _rotate(turning.reshape(-1, G * (per_group + 1), D), cos, sin)
        query, key = rotated.view(-1, G, per_group + 1, D).split([per_group, 1], dim=2)
        value = mixed[:, :, per_group + 1]
        attended = context.attend(self.index, query.reshape(-1, G * per_group, D), key[:, :, 0], value)
        return self.projection(attended.flatten(1))

    def mix(self, hidden_TH: Tensor, rows: RowCounts) -> Tensor:
        config = self.config
        normed = F.rms_norm(hidden_TH, hidden_TH.shape[-1:], self.mlp_norm, config.layernorm_epsilon)
        probs_TK, expert_TK = softmax_topk(F.linear(normed, self.router), config)
        self.load.add(self.index, expert_TK)
        if len(rows.counts) == 1:
            return swiglu_experts(normed, probs_TK, expert_TK, self.experts)
        gathered = gather_rows(normed, probs_TK, expert_TK, rows)
        partial = swiglu_experts(*gathered, self.experts)
        return return_rows(partial, rows)


def _head_norm(attention: RolloutSelfAttention) -> Tensor | None:
    """[N / G + 1, D] norm weights of a group's queries and, last, its key; None without such norms."""
    if not attention.config.qk_layernorm:
        return None
    per_group = attention.config.num_attention_heads // attention.config.num_query_groups
    return torch.stack([attention.q_layernorm.weight] * per_group + [attention.k_layernorm.weight])


def _rotate(x_TND: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
    return (x_TND * cos).addcmul_(x_TND.roll(x_TND.size(-1) // 2, -1), signed_sin)
