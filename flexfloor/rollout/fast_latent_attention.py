"""Multi-head latent attention of the fast path: decoding attends on the cached latents themselves.

The key up-projection is applied to the query instead of to every cached token, and the value
up-projection to the attended latent: all heads then read one latent a token. Joining prompts, whose rows
are many and whose latents are at hand, expand keys and values as training does.

Shapes: T rows, B decoding rows, N heads of this rank, R latent channels, P rotated ones, D = Q + P query
channels, V value channels, C cached positions.

Source: DeepSeek-AI, "DeepSeek-V2", arXiv 2405.04434, section 2.1.2 (absorption).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from flexfloor.elastic.replica import Replica
from flexfloor.models.latent_attention import RolloutLatentAttention
from flexfloor.models.packed_attention import attend_packed
from flexfloor.models.rotary import split_pairs
from flexfloor.rollout.context import DecodingRows, RolloutContext
from flexfloor.rollout.kernels.plain import Operators
from flexfloor.rollout.linear import pack
from flexfloor.rollout.rotation import rotate


class FastLatentAttention:
    """One layer's attention; made when a rollout begins."""

    def __init__(self, attention: RolloutLatentAttention, replica: Replica, operators: Operators):
        self.operators = operators
        config = attention.config
        self.layer, self.config, self.scale = attention.layer_number - 1, config, attention.softmax_scale
        self.heads, self.rotated = attention.num_attention_heads_per_partition, config.qk_pos_emb_head_dim
        # All heads read the whole latent, and its rows are few: every rank computes all of them.
        kept = _whole(attention.linear_kv_down_proj.weight, config.kv_lora_rank + self.rotated, replica)
        down = [_rotary_rows_split(kept, 1, self.rotated)]
        self.query_latent = config.q_lora_rank
        if config.q_lora_rank is None:
            up = attention.linear_q_proj.weight
        else:
            up = attention.linear_q_up_proj.weight
            down.insert(0, _whole(attention.linear_q_down_proj.weight, config.q_lora_rank, replica))
            self.query_norm = attention.q_layernorm.weight
        self.down = pack(torch.cat(down))
        self.query_up = pack(_rotary_rows_split(up, self.heads, self.rotated))
        self.latent_norm, self.eps = attention.kv_layernorm.weight, attention.kv_layernorm.eps
        self.expansion = pack(attention.linear_kv_up_proj.weight)
        by_head = attention.linear_kv_up_proj.weight.unflatten(0, (self.heads, -1))  # [N, Q + V, R]
        self.key_up, value_up = by_head.split([config.qk_head_dim, config.v_head_dim], dim=1)  # [N, Q, R]
        self.value_up = value_up.transpose(1, 2)  # [N, R, V]
        self.projection = pack(attention.linear_proj.weight)

    def __call__(self, normed_TH: Tensor, cos: Tensor, sin: Tensor, context: RolloutContext) -> Tensor:
        """[T, H] of normalised rows, the part of this rank's heads; `cos` and `sin` are those of `rotate`."""
        plain, turned, latent = self._project(normed_TH, cos, sin)

        def decode(part: DecodingRows, planes: list[Tensor]) -> Tensor:
            absorbed = torch.bmm(plain[part.rows].transpose(0, 1), self.key_up).transpose(0, 1)  # [B, N, R]
            query = torch.cat((absorbed, turned[part.rows]), -1)
            planes = [planes[0], planes[0][..., : absorbed.size(-1)]]
            attended = self.operators.attend(query, planes, part, self.scale)
            return torch.bmm(attended.transpose(0, 1), self.value_up).transpose(0, 1)

        def prefill(rows: slice, lengths: list[int]) -> Tensor:
            key, value = self._expand(latent[rows])
            query = torch.cat((plain[rows], turned[rows]), -1)
            return attend_packed(query, key, value, lengths, scale=self.scale)

        attended = context.attend_with(self.layer, latent[None, :, None], decode=decode, prefill=prefill)
        return self.projection(attended.flatten(1))

    def _project(self, normed_TH: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries without position [T, N, Q], their rotated channels [T, N, P] and latents [T, R + P]."""
        config, eps = self.config, self.eps
        down = self.down(normed_TH)
        compressed, shared = down[:, self.query_latent or 0 :].split([config.kv_lora_rank, self.rotated], -1)
        query_input = normed_TH
        if self.query_latent:
            norm = self.query_norm
            query_input = F.rms_norm(down[:, : self.query_latent], norm.shape, norm, eps)
        query = self.query_up(query_input).unflatten(-1, (self.heads, -1))
        plain, turning = query.split([config.qk_head_dim, self.rotated], dim=-1)
        kept = F.rms_norm(compressed, self.latent_norm.shape, self.latent_norm, eps)
        latent = torch.cat((kept, rotate(shared[:, None], cos, sin)[:, 0]), -1)
        return plain, rotate(turning, cos, sin), latent

    def _expand(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """Keys [T, N, D] and values [T, N, V]."""
        config = self.config
        kept, shared = latent.split([config.kv_lora_rank, self.rotated], dim=-1)
        expanded = self.expansion(kept).unflatten(-1, (self.heads, -1))
        key, value = expanded.split([config.qk_head_dim, config.v_head_dim], dim=-1)
        return torch.cat((key, shared[:, None].expand(-1, self.heads, -1)), -1), value


def _whole(weight: Tensor, num_rows: int, replica: Replica) -> Tensor:
    """All rows of a weight of which each rank of the replica may hold its part."""
    return weight if weight.size(0) == num_rows else replica.joined(weight.detach(), 0)


def _rotary_rows_split(weight: Tensor, heads: int, rotated: int) -> Tensor:
    """`weight` [N * D, in] whose last `rotated` rows of each head give `split_pairs` of the channels."""
    by_head = weight.unflatten(0, (heads, -1))
    plain, turning = by_head.split([by_head.size(1) - rotated, rotated], dim=1)
    return torch.cat((plain, split_pairs(turning.transpose(1, 2)).transpose(1, 2)), 1).flatten(0, 1)
