"""Multi-head latent attention over packed sequences, for training and for a rollout step.

A token is kept as its latent: the normalised compression of keys and values, and the rotated key channels
that all heads share. Here keys and values are always expanded from latents, as in training; the fast
rollout path attends on the latents themselves.

Under tensor parallelism a rank attends with its own heads and knows every row's whole latent. What comes back
to a latent there is the part of the rank's own heads; the parts are summed behind the norms.

Shapes: T rows, N heads of this rank, R channels of the key-value latent, P rotated channels, D channels of a
query, V of a value, B decoding sequences, C cached positions.

Invariants:
- A row attends to rows of its own sequence at its own or an earlier position, and to no other.
- T = 0 works and stays tied to the graph, so that a rank without rows takes part in backward.

Source: DeepSeek-AI, "DeepSeek-V2", arXiv 2405.04434, section 2.1.
"""

from __future__ import annotations

from typing import Any

import torch
from megatron.core.tensor_parallel.mappings import all_gather_last_dim_from_tensor_parallel_region
from megatron.core.transformer.multi_latent_attention import MLASelfAttention
from torch import Tensor, nn

from flexfloor.models.attention import PackedRows
from flexfloor.models.megatron_config import LatentConfig
from flexfloor.models.norm import RowsNorm
from flexfloor.models.packed_attention import attend_packed
from flexfloor.models.rotary import angles_and_scale, rotate_rows, split_pairs
from flexfloor.rollout.context import DecodingRows, RolloutContext


class RolloutLatentAttention(MLASelfAttention):
    """Megatron's projections around attention over packed rows or over the rollout's cache of latents."""

    def __init__(self, config: LatentConfig, *args: Any, **kwargs: Any):
        super().__init__(config, *args, **kwargs)
        if config.q_lora_rank is None:
            # Upstream normalises both latents or none, and 0.19 knows no query without a norm beside it.
            self.kv_layernorm = RowsNorm(config=config, hidden_size=config.kv_lora_rank)
        else:
            self.q_layernorm.eps = config.latent_norm_eps
            _take_whole_rows(self.linear_q_up_proj)
        self.kv_layernorm.eps = config.latent_norm_eps
        _take_whole_rows(self.linear_kv_up_proj)
        if config.rope_type == "yarn":
            # Tables for upstream's fused kernels, of the original length in every layer.
            del self.rotary_pos_emb.cos_cached, self.rotary_pos_emb.sin_cached

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None,
        inference_context: RolloutContext | None = None,
        packed_seq_params: PackedRows | None = None,
        **unused: object,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend.

        Args:
            hidden_states: [T, 1, H].
            attention_mask: not looked at: packed rows are causal within their sequence.
            inference_context: the rollout step, or None when training.
            packed_seq_params: the packed rows, when there is no inference context.

        Returns: ([T, 1, H], bias or None), as Megatron's layer expects.
        """
        if inference_context is None:
            assert packed_seq_params is not None, "packed rows are needed"
            query, latent = self._project(
                hidden_states, packed_seq_params.position_ids_T, packed_seq_params.max_seqlen_q
            )
            key, value = self.expand(latent)
            attended = self.core_attention(query, key, value, None, packed_seq_params=packed_seq_params)
        else:
            attended = self._attend_cached(hidden_states, inference_context)
        return self.linear_proj(attended.flatten(1)[:, None])

    def expand(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """Keys [..., N, D] and values [..., N, V] of latents [..., R + P]."""
        config = self.config
        compressed, rotated = latent.split([config.kv_lora_rank, config.qk_pos_emb_head_dim], dim=-1)
        expanded, _ = self.linear_kv_up_proj(compressed)
        heads = (self.num_attention_heads_per_partition, config.qk_head_dim + config.v_head_dim)
        key, value = expanded.unflatten(-1, heads).split([config.qk_head_dim, config.v_head_dim], dim=-1)
        shared = rotated.unsqueeze(-2).expand(*key.shape[:-1], -1)
        return torch.cat((key, shared), -1), value

    def _project(self, hidden_states: Tensor, position_ids_T: Tensor, longest: int) -> tuple[Tensor, Tensor]:
        """Queries [T, N, D] and latents [T, R + P], rotated; positions lie below `longest`."""
        config = self.config
        angles, scale = angles_and_scale(self.rotary_pos_emb(max(longest, 1)))
        freqs = angles[:, 0, 0][position_ids_T]
        heads = (self.num_attention_heads_per_partition, self.q_head_dim)
        query = self._query(hidden_states[:, 0]).unflatten(-1, heads)
        plain, turning = query.split([config.qk_head_dim, config.qk_pos_emb_head_dim], dim=-1)
        query = torch.cat((plain, rotate_rows(split_pairs(turning), freqs, scale)), -1)
        combined = self._lower(self.linear_kv_down_proj, hidden_states[:, 0])
        compressed, key = combined.split([config.kv_lora_rank, config.qk_pos_emb_head_dim], dim=-1)
        rotated = rotate_rows(split_pairs(key)[:, None], freqs, scale)[:, 0]
        return query, torch.cat((self.kv_layernorm(compressed), rotated), -1)

    def _query(self, hidden_TH: Tensor) -> Tensor:
        if self.config.q_lora_rank is None:
            return self.linear_q_proj(hidden_TH)[0]
        compressed = self._lower(self.linear_q_down_proj, hidden_TH)
        return self.linear_q_up_proj(self.q_layernorm(compressed))[0]

    def _lower(self, projection: nn.Module, hidden_TH: Tensor) -> Tensor:
        """Whole latents of all rows; the ranks of a replica each compute some of their channels."""
        channels, _ = projection(hidden_TH)
        return all_gather_last_dim_from_tensor_parallel_region(channels, group=self.pg_collection.tp)

    def _attend_cached(self, hidden_states: Tensor, context: RolloutContext) -> Tensor:
        """[T, N, V] over what each row's sequence holds in the cache."""
        query, latent = self._project(hidden_states, context.rows.position_ids_T, context.max_sequence_length)

        def decode(part: DecodingRows, planes: list[Tensor]) -> Tensor:
            key, value = self.expand(planes[0][:, 0])
            scores = torch.einsum("bnd,bcnd->bnc", query[part.rows], key) * self.softmax_scale
            return torch.einsum("bnc,bcnv->bnv", (scores + part.bias_BC[:, None]).softmax(-1), value)

        def prefill(rows: slice, lengths: list[int]) -> Tensor:
            key, value = self.expand(latent[rows])
            return attend_packed(query[rows], key, value, lengths, scale=self.softmax_scale)

        if not query.size(0):
            return query.new_empty(0, query.size(1), self.config.v_head_dim)
        return context.attend_with(
            self.layer_number - 1, latent[None, :, None], decode=decode, prefill=prefill
        )


def _take_whole_rows(projection: Any) -> None:
    """Let a column-parallel layer take all rows, and hand back the part of the gradient that is its own."""
    projection.sequence_parallel = projection.allreduce_dgrad = False
    projection.disable_grad_reduce = True
