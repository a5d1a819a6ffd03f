"""Qwen3-MoE: many small experts, heads of a size of their own, queries and keys normalised.

Source: Qwen Team, "Qwen3 Technical Report", arXiv 2505.09388. Its released models set
`norm_topk_prob`, a rotary base of 1e6 and a norm epsilon of 1e-6.
"""

from __future__ import annotations

from typing import ClassVar

from flexfloor.models.grouped_query_moe import GroupedQueryMoE


class Qwen3Moe(GroupedQueryMoE):
    """The Qwen3-MoE family."""

    qk_norm: ClassVar[bool] = True
