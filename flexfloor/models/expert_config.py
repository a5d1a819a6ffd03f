"""The experts of a model and the router that chooses them, as fields of the `model` section."""

from __future__ import annotations

from dataclasses import dataclass

from flexfloor.checks import require, require_choice

SCORE_FUNCTIONS = ("softmax", "sigmoid")


@dataclass(kw_only=True)
class ExpertFields:
    """Dense layers, shared and routed experts, and the choice among the latter."""

    first_k_dense_replace: int = 0
    """So many of the first layers have one dense network instead of experts."""
    ffn_hidden_size: int = 512
    """Inner width of a dense layer's network."""
    num_shared_experts: int = 0
    """Experts that every token visits beside its routed ones, as one network of their summed width."""
    moe_ffn_hidden_size: int = 256
    """Inner width of one expert."""
    num_experts: int = 8
    moe_router_topk: int = 2
    """Experts that each token visits."""
    norm_topk_prob: bool = True
    """Divide the scores of a token's experts by their sum; false = as the softmax over all gives."""
    moe_router_score_function: str = "softmax"
    """`sigmoid` scores each expert by itself, as DeepSeek-V3 does."""
    moe_router_num_groups: int | None = None
    """The experts form so many groups, and a token's experts are taken from the best of them."""
    moe_router_group_topk: int | None = None
    """Groups that a token's experts may come from; a group scores the sum of its best
    moe_router_topk // moe_router_group_topk experts."""
    moe_router_group_experts: int | None = None
    """A group scores the sum of so many of its best experts instead; DeepSeek-V2 has 1, DeepSeek-V3 2."""
    moe_router_topk_scaling_factor: float | None = None
    """Multiplies the scores of the chosen experts."""
    moe_router_enable_expert_bias: bool = False
    """A bias of each expert counts in the choice and not in the score; for `sigmoid`."""
    moe_router_bias_update_rate: float = 0.0
    """Each update moves the biases by so much towards an even load; 0 keeps them, so that in RL nothing
    but the loss changes the policy."""

    def check_experts(self, num_layers: int) -> None:
        """Raise ConfigError naming the field that cannot be."""
        for name in ("moe_ffn_hidden_size", "ffn_hidden_size", "num_experts"):
            require(getattr(self, name) > 0, f"model.{name}", getattr(self, name), "a positive integer")
        shared = self.num_shared_experts
        require(shared >= 0, "model.num_shared_experts", shared, "0 or a positive integer")
        require(
            0 <= self.first_k_dense_replace < num_layers,
            "model.first_k_dense_replace",
            self.first_k_dense_replace,
            f"between 0 and model.num_layers - 1 = {num_layers - 1}",
        )
        require(
            1 <= self.moe_router_topk <= self.num_experts,
            "model.moe_router_topk",
            self.moe_router_topk,
            f"between 1 and model.num_experts = {self.num_experts}",
        )
        self._check_scores()
        self._check_groups()

    def _check_scores(self) -> None:
        score = self.moe_router_score_function
        require_choice("model.moe_router_score_function", score, SCORE_FUNCTIONS)
        require(
            self.moe_router_topk > 1 or not self.norm_topk_prob,
            "model.moe_router_topk",
            self.moe_router_topk,
            "2 or more unless model.norm_topk_prob=false: divided by itself, a probability teaches nothing",
        )
        require(
            score == "softmax" or self.norm_topk_prob or self.moe_router_topk == 1,
            "model.norm_topk_prob",
            self.norm_topk_prob,
            "true with moe_router_score_function=sigmoid and several experts: Megatron always divides there",
        )
        factor, rate = self.moe_router_topk_scaling_factor, self.moe_router_bias_update_rate
        require(factor is None or factor > 0, "model.moe_router_topk_scaling_factor", factor, "positive")
        require(rate >= 0, "model.moe_router_bias_update_rate", rate, "0 or positive")
        require(
            score == "sigmoid" or not self.moe_router_enable_expert_bias,
            "model.moe_router_enable_expert_bias",
            self.moe_router_enable_expert_bias,
            "false unless model.moe_router_score_function=sigmoid",
        )

    def _check_groups(self) -> None:
        groups, taken, chosen = self.moe_router_num_groups, self.moe_router_group_topk, self.moe_router_topk
        counted = self.moe_router_group_experts
        if groups is None or taken is None:
            require(
                groups is taken, "model.moe_router_group_topk", taken, "given with num_groups, or neither"
            )
            allowed = "null without moe_router_num_groups"
            require(counted is None, "model.moe_router_group_experts", counted, allowed)
            return
        require(
            groups > 0 and self.num_experts % groups == 0,
            "model.moe_router_num_groups",
            groups,
            f"a divisor of model.num_experts = {self.num_experts}",
        )
        allowed = f"between 1 and model.moe_router_num_groups = {groups}"
        require(1 <= taken <= groups, "model.moe_router_group_topk", taken, allowed)
        allowed = f"a divisor of model.moe_router_topk = {chosen}, unless moe_router_group_experts is given"
        fits = counted is not None or chosen % taken == 0
        require(fits, "model.moe_router_group_topk", taken, allowed)
        size = self.num_experts // groups
        fits = counted is None or 1 <= counted <= size
        require(fits, "model.moe_router_group_experts", counted, f"between 1 and a group's {size} experts")
        allowed = f"at most {taken} groups of {size} experts = {taken * size}"
        require(chosen <= taken * size, "model.moe_router_topk", chosen, allowed)

    @property
    def counted_group_experts(self) -> int | None:
        """Experts of a group whose scores make its own; None without groups."""
        if self.moe_router_group_topk is None:
            return None
        return self.moe_router_group_experts or self.moe_router_topk // self.moe_router_group_topk

    @property
    def shared_ffn_hidden_size(self) -> int | None:
        """Inner width of the shared experts together; None without any."""
        return self.num_shared_experts * self.moe_ffn_hidden_size or None
