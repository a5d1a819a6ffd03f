"""A bfloat16 model routes and compares in float32: what rounding must not reach, on one CPU rank."""

import grouped_ranks
import numpy as np
import pytest
import rollout_ranks as ranks
import torch
import torch.nn.functional as F

from flexfloor.elastic.moe_layer import moe_layers
from flexfloor.launch import run_ranks


def watched(name, grouped):
    """What a pass of training and one of each rollout path leave at the router and behind it."""
    from flexfloor.rollout import fast_mlp
    from flexfloor.train.forward import forward_logprobs

    grouped_ranks.group_experts(grouped)
    model = ranks.new_model(1, "bfloat16", name)
    types, differences = set(), []

    def checked(hidden, weight, logits):
        types.add(str(logits.dtype))
        exact = F.linear(hidden.float(), weight.float()).view(logits.shape)
        differences.append((logits.detach() - exact.detach()).abs().max().item() if logits.numel() else 0.0)
        return logits

    for layer in moe_layers(model):
        gating, weight = layer.router.gating, layer.router.weight
        layer.router.gating = lambda x, gating=gating, weight=weight: checked(x, weight, gating(x))
    real = fast_mlp.router_logits
    fast_mlp.router_logits = lambda x, weight, config: checked(x, weight, real(x, weight, config))
    batch = _batch()
    logprobs, entropy = forward_logprobs(model, batch, 1.0)
    logprobs.sum().backward()
    nothing, _ = forward_logprobs(model, _batch(0), 1.0)
    found = {path: ranks.generate(model, path=path, deal="by prompt")[0] for path in ("fast", "reference")}
    buffers = {n.rpartition(".")[2]: str(b.dtype) for n, b in model.named_buffers() if b.is_floating_point()}
    fast_mlp.router_logits = real
    return {
        "weights": {str(weight.dtype) for weight in model.parameters()},
        "types": types,
        "differences": differences,
        "logprobs": {str(logprobs.dtype), str(entropy.dtype), str(nothing.dtype)},
        "buffers": buffers,
        "trained": _trained(model, found["fast"]),
    }


def _batch(num_samples=3):
    from flexfloor.train.batch import pack

    return pack(_samples(num_samples), "token-mean", torch.device("cpu"))


def _samples(count):
    from flexfloor.train.types import Sample

    return [
        Sample(
            uid=f"{i}",
            response_index=0,
            prompt_ids=np.arange(2, 5 + i),
            response_ids=np.arange(7, 12),
            advantage=1.0,
        )
        for i in range(count)
    ]


def _trained(model, responses):
    """Differences of the trainer's log-probabilities from the sampler's."""
    from flexfloor.train.batch import pack
    from flexfloor.train.forward import forward_logprobs
    from flexfloor.train.types import Sample

    prompts = {request.uid: request.prompt_ids for request in ranks.requests()}
    found = []
    for (uid, index), each in responses.items():
        sample = Sample(
            uid=uid,
            response_index=index,
            prompt_ids=np.array(prompts[uid]),
            response_ids=np.array(each.token_ids),
            advantage=0.0,
        )
        with torch.no_grad():
            logprobs, _ = forward_logprobs(model, pack([sample], "token-mean", torch.device("cpu")), 1.0)
        found.append((logprobs - torch.tensor(each.logprobs)).abs().mean().item())
    return found


@pytest.mark.parametrize(("name", "grouped"), [("mixtral", True), ("deepseek_v3", False)])
def test_routing_and_logprobs_are_float32(name, grouped):
    [found] = run_ranks(watched, 1, name, grouped, threads_per_rank=1, total_timeout_seconds=120)
    assert found["weights"] == {"torch.bfloat16"}
    assert found["types"] == {"torch.float32"}
    assert len(found["differences"]) > 8 and max(found["differences"]) < 1e-4
    assert found["logprobs"] == {"torch.float32"}
    assert set(found["buffers"].values()) <= {"torch.float32"}
    if name == "deepseek_v3":
        assert {"expert_bias", "local_tokens_per_expert"} <= found["buffers"].keys()
    assert np.mean(found["trained"]) < 0.05
