"""Self-attention over packed sequences, for training and for a rollout step.

Sequences lie end to end on one axis of T rows: there is no padding, so nothing padded is routed,
attended or trained. Rotary positions are given row by row. In a rollout step the context attends
through its KV cache; otherwise `PackedCoreAttention` attends within each packed sequence.

Shapes: T rows, N query heads, G key/value heads, D channels of a head, S sequences.

Invariants:
- A row attends to rows of its own sequence at its own or an earlier position, and to no other.
- T = 0 works and stays tied to the graph, so that a rank without rows takes part in backward.
"""

from __future__ import annotations

from dataclasses import dataclass

from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer.attention import SelfAttention
from megatron.core.transformer.module import MegatronModule
from torch import Tensor

from flexfloor.models.packed_attention import attend_packed
from flexfloor.models.rotary import rotate_rows
from flexfloor.rollout.context import RolloutContext


@dataclass(kw_only=True)
class PackedRows(PackedSeqParams):
    """Megatron's packed-sequence description with what a row-wise rotary embedding needs."""

    position_ids_T: Tensor
    """[T] position of each row within its sequence."""
    lengths: list[int]
    """Rows of each sequence, in order; they sum to T."""

    @classmethod
    def of(cls, position_ids_T: Tensor, cu_seqlens: Tensor) -> PackedRows:
        """Rows whose sequence boundaries are `cu_seqlens` [S + 1], as in FlashAttention's varlen form."""
        lengths = cu_seqlens.diff().tolist()
        longest = max(lengths, default=0)
        return cls(
            qkv_format="thd",
            cu_seqlens_q=cu_seqlens,
            cu_seqlens_kv=cu_seqlens,
            max_seqlen_q=longest,
            max_seqlen_kv=longest,
            position_ids_T=position_ids_T,
            lengths=lengths,
        )


class RolloutSelfAttention(SelfAttention):
    """Megatron's projections around attention over packed rows or over the rollout's KV cache."""

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None,
        inference_context: RolloutContext | None = None,
        rotary_pos_emb: Tensor | None = None,
        packed_seq_params: PackedRows | None = None,
        **unused: object,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend.

        Args:
            hidden_states: [T, 1, H].
            attention_mask: not looked at: packed rows are causal within their sequence.
            inference_context: the rollout step, or None when training.
            rotary_pos_emb: [positions, 1, 1, D] angles.
            packed_seq_params: the packed rows, when there is no inference context.

        Returns: ([T, 1, H], bias or None), as Megatron's layer expects.
        """
        query, key, value = self._project_rows(hidden_states)
        rows = packed_seq_params if inference_context is None else inference_context.rows
        assert rows is not None and rotary_pos_emb is not None, "packed rows and rotary angles are needed"
        freqs = rotary_pos_emb[:, 0, 0][rows.position_ids_T]
        query, key = rotate_rows(query, freqs), rotate_rows(key, freqs)
        if inference_context is None:
            attended = self.core_attention(query, key, value, None, packed_seq_params=packed_seq_params)
        else:
            attended = inference_context.attend(self.layer_number - 1, query, key, value)
        return self.linear_proj(attended.flatten(1)[:, None])

    def _project_rows(self, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        # Megatron's own reshape infers a size by -1, which has no answer for zero rows.
        if hidden_states.size(0):
            query, key, value = self.get_query_key_value_tensors(hidden_states)
            return query[:, 0], key[:, 0], value[:, 0]
        mixed, _ = self.linear_qkv(hidden_states)
        heads_per_group = self.num_attention_heads_per_partition // self.num_query_groups_per_partition
        dim = self.hidden_size_per_attention_head
        mixed = mixed.view(0, self.num_query_groups_per_partition, heads_per_group + 2, dim)
        query, key, value = mixed.split([heads_per_group, 1, 1], dim=2)
        query = query.reshape(0, self.num_attention_heads_per_partition, dim)
        key = key[:, :, 0]
        # A family that norms no queries and keys has identities in their place, or from 0.19 on None.
        query = query if self.q_layernorm is None else self.q_layernorm(query)
        key = key if self.k_layernorm is None else self.k_layernorm(key)
        return query, key, value[:, :, 0]


class PackedCoreAttention(MegatronModule):
    """Megatron's core-attention slot, filled by `attend_packed`."""

    def __init__(self, config, layer_number, attn_mask_type, attention_type, softmax_scale=None, **unused):
        super().__init__(config)
        self.softmax_scale = softmax_scale

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None = None,
        *,
        packed_seq_params: PackedRows,
        **unused: object,
    ) -> Tensor:
        """[T, N, D] queries on [T, G, D] keys and values to [T, N, D]."""
        return attend_packed(query, key, value, packed_seq_params.lengths, scale=self.softmax_scale)
