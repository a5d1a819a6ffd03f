"""DeepSeek-V2 and V2-Lite: DeepSeek-V3's layers with experts scored by a softmax over all, without biases.

A token's experts come from the groups whose single best expert scores highest
(`model.moe_router_group_experts=1`); V2-Lite has one group, and queries without a latent.

Source: DeepSeek-AI, "DeepSeek-V2", arXiv 2405.04434.
"""

from __future__ import annotations

from flexfloor.models.deepseek_v3 import DeepseekV3


class DeepseekV2(DeepseekV3):
    """The DeepSeek-V2 family."""
