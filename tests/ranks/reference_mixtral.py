"""Mixtral and the GRPO loss in plain PyTorch, float64, one unpadded sequence at a time.

It imports nothing of FlexFloor or Megatron: only the names and layouts of the weights are shared
(Megatron keeps, for each key/value head, its query heads' rows, then its key's, then its value's).
"""

import math

import torch

HIDDEN, LAYERS, HEADS, KV_HEADS, EXPERTS, TOP_K, VOCAB = 16, 2, 4, 2, 4, 2, 32
HEAD_DIM, ROPE_THETA, NORM_EPS = HIDDEN // HEADS, 10_000.0, 1e-5


def logits_of(weights, token_ids):
    """[T, V] logits of one sequence of T tokens; weights by Megatron's names, experts by global number."""
    hidden = weights["embedding.word_embeddings.weight"][token_ids]
    for layer in range(LAYERS):
        w = {name.removeprefix(f"decoder.layers.{layer}."): value for name, value in weights.items()}
        hidden = hidden + _attention(w, _norm(hidden, w["input_layernorm.weight"]))
        hidden = hidden + _experts(w, _norm(hidden, w["pre_mlp_layernorm.weight"]))
    return _norm(hidden, weights["decoder.final_layernorm.weight"]) @ weights["output_layer.weight"].T


def _norm(x, weight):
    return weight * x / (x.pow(2).mean(-1, keepdim=True) + NORM_EPS).sqrt()


def _attention(w, x):
    length, per_group = len(x), HEADS // KV_HEADS
    mixed = (x @ w["self_attention.linear_qkv.weight"].T).view(length, KV_HEADS, per_group + 2, HEAD_DIM)
    query = _rotate(mixed[:, :, :per_group])
    key, value = _rotate(mixed[:, :, per_group : per_group + 1]), mixed[:, :, -1]
    scores = torch.einsum("sgpd,tgd->gpst", query, key[:, :, 0]) / math.sqrt(HEAD_DIM)
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    attended = torch.einsum("gpst,tgd->sgpd", scores.masked_fill(future, -math.inf).softmax(-1), value)
    return attended.reshape(length, HIDDEN) @ w["self_attention.linear_proj.weight"].T


def _rotate(x):
    # angles in float32, as rotary embeddings are tabulated everywhere
    frequencies = 1.0 / ROPE_THETA ** (torch.arange(0, HEAD_DIM, 2, dtype=torch.float32) / HEAD_DIM)
    angles = torch.outer(torch.arange(len(x), dtype=torch.float32), frequencies)[:, None, None]
    cos, sin = angles.cos().double(), angles.sin().double()
    first, second = x[..., : HEAD_DIM // 2], x[..., HEAD_DIM // 2 :]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def _experts(w, x):
    chosen, experts = (x @ w["mlp.router.weight"].T).topk(TOP_K, dim=-1)
    shares = chosen.softmax(-1)
    rows = []
    for token, token_shares, token_experts in zip(x, shares, experts.tolist(), strict=True):
        outputs = [_swiglu(w, f"mlp.experts.local_experts.{expert}", token) for expert in token_experts]
        rows.append(sum(share * output for share, output in zip(token_shares, outputs, strict=True)))
    return torch.stack(rows)


def _swiglu(w, name, x):
    gate, up = (w[f"{name}.linear_fc1.weight"] @ x).chunk(2)
    return w[f"{name}.linear_fc2.weight"] @ (torch.nn.functional.silu(gate) * up)


def token_distributions(weights, sample, temperature):
    """(log pi [R], entropy [R]) of a sample's response tokens."""
    tokens = torch.tensor([*sample["prompt"], *sample["response"]])
    logits = logits_of(weights, tokens)[len(sample["prompt"]) - 1 : -1]
    policy = torch.distributions.Categorical(logits=logits / temperature)
    return policy.log_prob(torch.tensor(sample["response"])), policy.entropy()


def grpo(weights, samples, *, mode, temperature, clip_low, clip_high, entropy_coeff, kl, max_response_length):
    """(loss, metrics) by the formulas; loss is tied to the weights; `kl` is (estimator, coefficient)."""
    losses, entropies, clipped, kls, ref_kls = [], [], [], [], []
    for sample in (s for s in samples if s["response"]):
        logprobs, entropy = token_distributions(weights, sample, temperature)
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


def likelihood(weights, samples):
    """Mean negative log-likelihood of all response tokens."""
    return -torch.cat([token_distributions(weights, s, 1.0)[0] for s in samples if s["response"]]).mean()
