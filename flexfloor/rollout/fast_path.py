"""The rollout pass straight from the parameters, without Megatron's modules in between.

Equal to the reference path in float64 up to rounding. It knows layers of RMS norms, grouped-query
attention with or without normalised queries and keys, latent attention, SwiGLU networks, and SwiGLU
experts with Megatron's top-k router; `unsupported` says what of a model it does not know, and the
reference path is taken instead. Attention and what follows it give the part of this rank's heads and columns,
which the layer sums over the replica.

Shapes: T rows, H hidden.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.mlp import MLP
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor

from flexfloor import heartbeat
from flexfloor.elastic.exchange import RowCounts
from flexfloor.elastic.load import ExpertLoad
from flexfloor.elastic.moe_layer import ElasticMoELayer
from flexfloor.elastic.replica import Replica
from flexfloor.models.attention import RolloutSelfAttention
from flexfloor.models.latent_attention import RolloutLatentAttention
from flexfloor.models.rotary import angles_and_scale
from flexfloor.rollout.context import RolloutContext
from flexfloor.rollout.fast_attention import FastAttention
from flexfloor.rollout.fast_latent_attention import FastLatentAttention
from flexfloor.rollout.fast_mlp import FastDense, FastExperts
from flexfloor.rollout.fast_vocabulary import FastEmbedding, FastOutput
from flexfloor.rollout.kernels.plain import Operators
from flexfloor.rollout.rotation import rotary_tables


def unsupported(model: GPTModel) -> str | None:
    """What of `model` the fast path does not know; None when it knows all of it."""
    config = model.config
    checks = {
        "norm other than RMSNorm": config.normalization != "RMSNorm",
        "linear layers with bias": config.add_bias_linear,
        "experts other than SwiGLU": config.activation_func is not F.silu or not config.gated_linear_unit,
        "a gate of the shared experts": bool(getattr(config, "moe_shared_expert_gate", False)),
        "a layer of another kind": not all(_knows(layer) for layer in model.decoder.layers),
    }
    return next((what for what, found in checks.items() if found), None)


def _knows(layer: Any) -> bool:
    attention, mlp = layer.self_attention, layer.mlp
    is_known = isinstance(attention, RolloutSelfAttention | RolloutLatentAttention)
    return is_known and isinstance(mlp, ElasticMoELayer | MLP)


class FastPath:
    """Computes passes from the parameters that the model holds when the path is made."""

    @torch.inference_mode()
    def __init__(
        self,
        model: GPTModel,
        load: ExpertLoad,
        replica: Replica,
        operators: Operators,
        *,
        num_positions: int,
    ):
        """Args:
        load: counts the rows of each expert.
        replica: of the ranks that the model's heads, columns and words are spread over.
        num_positions: longest sequence, prompt and response, that a pass may hold.
        """
        self.model, self.operators = model, operators
        angles, scale = angles_and_scale(_rotary(model).get_emb(num_positions))
        self.rotary = rotary_tables(angles[:, 0], model.config.params_dtype, scale)  # [positions, 1, D]
        self.layers, num_moe_layers = [], 0
        for layer in model.decoder.layers:
            self.layers.append(_Layer(layer, model.config, load, num_moe_layers, replica, operators))
            num_moe_layers += isinstance(layer.mlp, ElasticMoELayer)
        self.embed, self.output = FastEmbedding(model, replica), FastOutput(model, replica)

    @torch.inference_mode()
    def host(self, guests: Mapping[int, Sequence[tuple[Tensor, ...]]]) -> None:
        """Compute further experts here.

        Args:
            guests: by expert, for each MoE layer: (gate-and-up [2F, H], down [H, F]).
        """
        mixes = [layer.mix for layer in self.layers if isinstance(layer.mix, FastExperts)]
        for index, mix in enumerate(mixes):
            mix.host({expert: weights[index] for expert, weights in guests.items()})

    @torch.inference_mode()
    def logits(self, context: RolloutContext, rows: RowCounts) -> Tensor:
        """[wanted, V] logits of the pass's last rows."""
        model = self.model
        hidden_TH = self.embed(context.rows.input_ids_T)
        cos, sin = (table[context.rows.position_ids_T] for table in self.rotary)
        part_TH = None
        for layer in self.layers:
            heartbeat.beat()
            hidden_TH, part_TH = layer(hidden_TH, part_TH, cos, sin, context, rows)
        last_rows, norm = context.rows.last_rows, model.decoder.final_layernorm
        part_TH = None if part_TH is None else part_TH[last_rows]
        eps = model.config.layernorm_epsilon
        _, wanted = self.operators.add_norm(hidden_TH[last_rows], part_TH, norm.weight, eps)
        return self.output(wanted)


class _Layer:
    def __init__(
        self,
        layer: Any,
        config: TransformerConfig,
        load: ExpertLoad,
        load_layer: int,
        replica: Replica,
        operators: Operators,
    ):
        self.eps, self.replica, self.operators = config.layernorm_epsilon, replica, operators
        self.attention_norm, self.mlp_norm = layer.input_layernorm.weight, layer.pre_mlp_layernorm.weight
        self.attend: FastLatentAttention | FastAttention = (
            FastLatentAttention(layer.self_attention, replica, operators)
            if config.multi_latent_attention
            else FastAttention(layer.self_attention, operators)
        )
        self.mix: FastDense | FastExperts = (
            FastExperts(layer.mlp, load, load_layer, replica, operators)
            if isinstance(layer.mlp, ElasticMoELayer)
            else FastDense(layer.mlp, operators)
        )

    def __call__(
        self,
        hidden_TH: Tensor,
        part_TH: Tensor | None,
        cos: Tensor,
        sin: Tensor,
        context: RolloutContext,
        rows: RowCounts,
    ) -> tuple[Tensor, Tensor]:
        """The rows, and what is still to be added to them; both given as the layer before left them."""
        if hidden_TH.size(0):
            hidden_TH, normed = self.operators.add_norm(hidden_TH, part_TH, self.attention_norm, self.eps)
            part_TH = self.replica.summed(self.attend(normed, cos, sin, context))
        hidden_TH, normed = self.operators.add_norm(hidden_TH, part_TH, self.mlp_norm, self.eps)
        return hidden_TH, self.replica.summed(self.mix(normed, rows))


def _rotary(model: GPTModel) -> Any:
    """Megatron's rotary embedding: one of the model, or one alike in each layer of latent attention."""
    if model.config.multi_latent_attention:
        return model.decoder.layers[0].self_attention.rotary_pos_emb
    return model.rotary_pos_emb
