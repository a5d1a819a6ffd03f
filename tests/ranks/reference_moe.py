"""Mixtral, Qwen3-MoE, DeepSeek-V3 and the GRPO loss in plain float64 PyTorch, one sequence at a time.

It imports nothing of FlexFloor or Megatron: only the names and layouts of the weights are shared
(Megatron keeps, for each key/value head, its query heads' rows, then its key's, then its value's).
"""

import math
from dataclasses import dataclass

import reference_latent as latent
import torch

HIDDEN, LAYERS, HEADS, KV_HEADS, EXPERTS, TOP_K, VOCAB = 16, 2, 4, 2, 4, 2, 32
NORM_EPS = 1e-5


@dataclass(frozen=True, kw_only=True)
class Family:
    """What sets a family apart."""

    head_dim: int | None = HIDDEN // HEADS
    rope_theta: float = 10_000.0
    qk_norm: bool = False
    norm_topk_prob: bool = True
    is_latent: bool = False

    @property
    def num_moe_layers(self):
        return LAYERS - (latent.DENSE_LAYERS if self.is_latent else 0)

    def settings(self):
        """Fields of the `model` section that describe the family."""
        own = {name: getattr(self, name) for name in ("head_dim", "rope_theta", "norm_topk_prob")}
        return own | (latent.settings() if self.is_latent else {})


EXPERT_BIAS = [0.3, -0.2, 0.1, -0.4]
"""Of the family that has such biases, in every layer; kept by updates of rate 0."""
FAMILIES = {
    "mixtral": Family(),
    "qwen3_moe": Family(head_dim=6, rope_theta=1e6, qk_norm=True),
    "qwen3_moe, shares as they are": Family(head_dim=6, rope_theta=1e6, qk_norm=True, norm_topk_prob=False),
    "deepseek_v3": Family(head_dim=None, is_latent=True),
}


def logits_of(family, weights, token_ids):
    """[T, V] logits of one sequence of T tokens; weights by Megatron's names, experts by global number."""
    hidden = weights["embedding.word_embeddings.weight"][token_ids]
    for layer in range(LAYERS):
        w = {name.removeprefix(f"decoder.layers.{layer}."): value for name, value in weights.items()}
        hidden = hidden + _attend(family, w, _norm(hidden, w["input_layernorm.weight"]))
        hidden = hidden + _mix(family, w, _norm(hidden, w["pre_mlp_layernorm.weight"]))
    return _norm(hidden, weights["decoder.final_layernorm.weight"]) @ weights["output_layer.weight"].T


def _attend(family, w, x):
    if family.is_latent:
        return latent.attention(w, x, heads=HEADS, norm=_norm, theta=family.rope_theta)
    return _attention(family, w, x)


def _mix(family, w, x):
    if family.is_latent:
        return latent.mixture(w, x, num_experts=EXPERTS, top_k=TOP_K, swiglu=_swiglu, bias=EXPERT_BIAS)
    return _experts(family, w, x)


def _norm(x, weight):
    return weight * x / (x.pow(2).mean(-1, keepdim=True) + NORM_EPS).sqrt()


def _attention(family, w, x):
    length, per_group, dim = len(x), HEADS // KV_HEADS, family.head_dim
    mixed = (x @ w["self_attention.linear_qkv.weight"].T).view(length, KV_HEADS, per_group + 2, dim)
    query, key, value = mixed[:, :, :per_group], mixed[:, :, per_group : per_group + 1], mixed[:, :, -1]
    if family.qk_norm:
        query = _norm(query, w["self_attention.q_layernorm.weight"])
        key = _norm(key, w["self_attention.k_layernorm.weight"])
    query, key = _rotate(family, query), _rotate(family, key)
    scores = torch.einsum("sgpd,tgd->gpst", query, key[:, :, 0]) / math.sqrt(dim)
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    attended = torch.einsum("gpst,tgd->sgpd", scores.masked_fill(future, -math.inf).softmax(-1), value)
    return attended.reshape(length, HEADS * dim) @ w["self_attention.linear_proj.weight"].T


def _rotate(family, x):
    # angles in float32, as rotary embeddings are tabulated everywhere
    dim = family.head_dim
    frequencies = 1.0 / family.rope_theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    angles = torch.outer(torch.arange(len(x), dtype=torch.float32), frequencies)[:, None, None]
    cos, sin = angles.cos().double(), angles.sin().double()
    first, second = x[..., : dim // 2], x[..., dim // 2 :]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def _experts(family, w, x):
    shares, experts = (x @ w["mlp.router.weight"].T).softmax(-1).topk(TOP_K, dim=-1)
    if family.norm_topk_prob:
        shares = shares / shares.sum(-1, keepdim=True)
    parts = []
    for expert in range(EXPERTS):
        share = torch.where(experts == expert, shares, 0.0).sum(-1, keepdim=True)
        parts.append(share * _swiglu(w, f"mlp.experts.local_experts.{expert}", x))
    return sum(parts)


def _swiglu(w, name, x):
    gate, up = (x @ w[f"{name}.linear_fc1.weight"].T).chunk(2, -1)
    return (torch.nn.functional.silu(gate) * up) @ w[f"{name}.linear_fc2.weight"].T


def token_distributions(family, weights, sample, temperature):
    """(log pi [R], entropy [R]) of a sample's response tokens."""
    tokens = torch.tensor([*sample["prompt"], *sample["response"]])
    logits = logits_of(family, weights, tokens)[len(sample["prompt"]) - 1 : -1]
    policy = torch.distributions.Categorical(logits=logits / temperature)
    return policy.log_prob(torch.tensor(sample["response"])), policy.entropy()


def grpo(
    family,
    weights,
    samples,
    *,
    mode,
    temperature,
    clip_low,
    clip_high,
    entropy_coeff,
    kl,
    max_response_length,
):
    """(loss, metrics) by the formulas; loss is tied to the weights; `kl` is (estimator, coefficient)."""
    losses, entropies, clipped, kls, ref_kls = [], [], [], [], []
    for sample in (s for s in samples if s["response"]):
        logprobs, entropy = token_distributions(family, weights, sample, temperature)
        old, advantage = torch.tensor(sample["old_logprobs"], dtype=torch.float64), sample["advantage"]
        ratio = (logprobs - old).exp()
        unclipped, limited = ratio * advantage, ratio.clip(1 - clip_low, 1 + clip_high) * advantage
        losses.append(-torch.min(unclipped, limited))
        entropies.append(entropy)
        clipped.append((limited < unclipped).double())
        kls.append(old - logprobs)
        ref_kls.append(
            kl_of(kl[0] if kl else "k3", logprobs, torch.tensor(sample["ref_logprobs"], dtype=torch.float64))
        )
    pg_loss = aggregate(losses, mode, max_response_length)
    loss = pg_loss - entropy_coeff * aggregate(entropies, mode, max_response_length)
    ref_kl = aggregate(ref_kls, mode, max_response_length)
    loss = loss + (kl[1] * ref_kl if kl else 0)
    means = {"entropy": entropies, "pg_clipfrac": clipped, "ppo_kl": kls}
    metrics = {name: torch.cat(values).mean().item() for name, values in means.items()}
    return loss, metrics | {"pg_loss": pg_loss.item()} | ({"kl_loss": ref_kl.item()} if kl else {})


def kl_of(kind, logprobs, ref_logprobs):
    """Schulman's estimates of KL(pi, pi_ref), by ratios of probabilities."""
    ratio = ref_logprobs.exp() / logprobs.exp()
    return {"k1": -ratio.log(), "k2": ratio.log() ** 2 / 2, "k3": ratio - 1 - ratio.log()}[kind]


def aggregate(values, mode, max_response_length):
    """The four aggregation modes over a list of [R] tensors, one a sequence."""
    if mode == "token-mean":
        return torch.cat(values).mean()
    if mode == "seq-mean-token-mean":
        return torch.stack([value.mean() for value in values]).mean()
    per_sequence = torch.stack([value.sum() for value in values]).mean()
    return per_sequence / max_response_length if mode == "seq-mean-token-sum-norm" else per_sequence


def likelihood(family, weights, samples):
    """Mean negative log-likelihood of all response tokens."""
    answered = [sample for sample in samples if sample["response"]]
    return -torch.cat([token_distributions(family, weights, each, 1.0)[0] for each in answered]).mean()
