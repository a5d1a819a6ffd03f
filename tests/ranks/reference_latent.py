"""DeepSeek-V3's attention and experts in plain PyTorch, float64, one unpadded sequence at a time.

Written from the report's formulas (arXiv 2412.19437, section 2.1) one head at a time, and with a share of
each expert for each token, 0 where it is not taken. It imports nothing of FlexFloor or Megatron, and only the
names and layouts of the weights are shared.
"""

import math

import torch

Q_RANK, KV_RANK, PLAIN, ROTATED, VALUE = 12, 8, 5, 4, 3
GROUPS, GROUPS_TAKEN, SCALING = 2, 1, 1.7
DENSE_LAYERS, DENSE_WIDTH, SHARED = 1, 20, 2


def settings():
    """The same as fields of the `model` section."""
    return {
        "q_lora_rank": Q_RANK,
        "kv_lora_rank": KV_RANK,
        "qk_nope_head_dim": PLAIN,
        "qk_rope_head_dim": ROTATED,
        "v_head_dim": VALUE,
        "first_k_dense_replace": DENSE_LAYERS,
        "ffn_hidden_size": DENSE_WIDTH,
        "num_shared_experts": SHARED,
        "moe_router_score_function": "sigmoid",
        "moe_router_num_groups": GROUPS,
        "moe_router_group_topk": GROUPS_TAKEN,
        "moe_router_topk_scaling_factor": SCALING,
        "moe_router_enable_expert_bias": True,
    }


def attention(w, x, *, heads, norm, theta):
    """[T, H] of one sequence; `w` by Megatron's names within a layer."""

    def weight(name):
        return w[f"self_attention.{name}.weight"]

    query = norm(x @ weight("linear_q_down_proj").T, weight("q_layernorm")) @ weight("linear_q_up_proj").T
    down = x @ weight("linear_kv_down_proj").T
    expanded = norm(down[:, :KV_RANK], weight("kv_layernorm")) @ weight("linear_kv_up_proj").T
    shared_key = _rotate(down[:, KV_RANK:], theta)
    length = len(x)
    query, expanded = query.view(length, heads, -1), expanded.view(length, heads, -1)
    attended = []
    for head in range(heads):
        q = torch.cat((query[:, head, :PLAIN], _rotate(query[:, head, PLAIN:], theta)), -1)
        k = torch.cat((expanded[:, head, :PLAIN], shared_key), -1)
        scores = q @ k.T / math.sqrt(PLAIN + ROTATED)
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        attended.append(scores.masked_fill(future, -math.inf).softmax(-1) @ expanded[:, head, PLAIN:])
    return torch.cat(attended, -1) @ weight("linear_proj").T


def _rotate(x, theta):
    # neighbouring channels are a complex number each, turned by the position times the pair's frequency;
    # angles in float32, as rotary embeddings are tabulated everywhere
    frequencies = 1.0 / theta ** (torch.arange(0, ROTATED, 2, dtype=torch.float32) / ROTATED)
    angles = torch.outer(torch.arange(len(x), dtype=torch.float32), frequencies)
    turn = torch.complex(angles.cos().double(), angles.sin().double())
    return torch.view_as_real(torch.view_as_complex(x.contiguous().view(len(x), -1, 2)) * turn).flatten(1)


def mixture(w, x, *, num_experts, top_k, swiglu, bias):
    """[T, H]: dense in the layers that have no router, else routed and shared experts."""
    if "mlp.router.weight" not in w:
        return swiglu(w, "mlp", x)
    scores = torch.sigmoid(x @ w["mlp.router.weight"].T)
    taken = torch.zeros_like(scores)
    for token, row in enumerate(scores.tolist()):
        taken[token, _choose([score + bias[expert] for expert, score in enumerate(row)], top_k)] = 1.0
    shares = SCALING * scores * taken / (scores * taken).sum(-1, keepdim=True)
    routed = [
        shares[:, expert, None] * swiglu(w, f"mlp.experts.local_experts.{expert}", x)
        for expert in range(num_experts)
    ]
    return sum(routed) + swiglu(w, "mlp.shared_experts", x)


def _choose(scores, top_k):
    """Experts of one token: the best of its best groups, which score the sum of their best experts."""
    size, counted = len(scores) // GROUPS, top_k // GROUPS_TAKEN
    groups = [range(start, start + size) for start in range(0, len(scores), size)]
    groups.sort(key=lambda group: -sum(sorted((scores[e] for e in group), reverse=True)[:counted]))
    allowed = [expert for group in groups[:GROUPS_TAKEN] for expert in group]
    return sorted(allowed, key=lambda expert: -scores[expert])[:top_k]
