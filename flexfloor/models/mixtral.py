"""Mixtral: few large experts, and heads that divide the hidden size.

Source: Jiang et al., "Mixtral of Experts", arXiv 2401.04088.
"""

from __future__ import annotations

from flexfloor.models.grouped_query_moe import GroupedQueryMoE


class Mixtral(GroupedQueryMoE):
    """The Mixtral family."""
