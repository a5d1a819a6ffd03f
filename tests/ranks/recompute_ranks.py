"""What `test_recompute` runs on its ranks: the same updates without and with recomputation."""

from collections import Counter
from contextlib import contextmanager

import early_ranks
import gradient_ranks as gradients
import grouped_ranks
import rollout_ranks
import torch

from flexfloor import parallel

WAYS = ("none", "moe", "full")
CASES = {
    "many": gradients.make_case(budget=16, kl=("k3", 0.7), entropy_coeff=0.1),
    "one row": gradients.CASES["one row"],
}
BIAS_RATE = 0.01


class Kept:
    """Most bytes that autograd keeps at one time, each storage once; the parameters' own are left out."""

    def __init__(self, model):
        self._known = {p.untyped_storage().data_ptr() for p in model.parameters()}
        self._users, self._bytes = Counter(), {}
        self.most = 0

    def watched(self):
        return torch.autograd.graph.saved_tensors_hooks(lambda x: _Use(self, x), lambda use: use.tensor)

    def enter(self, storage):
        if storage.data_ptr() not in self._known:
            self._users[storage.data_ptr()] += 1
            self._bytes[storage.data_ptr()] = storage.nbytes()
            self.most = max(self.most, sum(self._bytes.values()))

    def leave(self, storage):
        if storage.data_ptr() not in self._known:
            self._users[storage.data_ptr()] -= 1
            if not self._users[storage.data_ptr()]:
                del self._bytes[storage.data_ptr()]


class _Use:
    """One place that keeps a tensor."""

    def __init__(self, kept, tensor):
        self.kept, self.tensor = kept, tensor
        kept.enter(tensor.untyped_storage())

    def __del__(self):
        self.kept.leave(self.tensor.untyped_storage())


@contextmanager
def counted_layer(ddp):
    """How often attention and router of the last layer run in the block."""
    counts, layer = Counter(), ddp.module.decoder.layers[-1]
    parts = {"attention": layer.self_attention, "router": layer.mlp.router}
    handles = [
        module.register_forward_hook(lambda *_, part=part: counts.update([part]))
        for part, module in parts.items()
    ]
    yield counts
    for handle in handles:
        handle.remove()


def updates(ep_size, names, dtype):
    """By family, way and case: what an update leaves, and what it kept on the way."""
    found = {}
    for name in names:
        extra = {"moe_router_bias_update_rate": BIAS_RATE} if name == "deepseek_v3" else {}
        for way in WAYS:
            ddp, groups = gradients.build(ep_size, dtype, name, recompute=way, **extra)
            for case, asked in CASES.items():
                found[name, way, case] = _update(ddp, groups, asked)
            parallel.destroy()
    return found


def _update(ddp, groups, asked):
    kept = Kept(ddp.module)
    with kept.watched(), counted_layer(ddp) as with_gradient:
        step = gradients.make_step(ddp, groups, asked)
        metrics = step.update(gradients.as_samples(asked["samples"], "grpo"))
    read = gradients.named(ddp, lambda p: p.main_grad)
    with counted_layer(ddp) as without_gradient:
        compared = gradients.recompute(ddp, groups, budget=16)
    return {
        "metrics": metrics,
        "gradients": read,
        "biases": [bias.tolist() for name, bias in ddp.module.named_buffers() if "expert_bias" in name],
        "most bytes": kept.most,
        "calls": dict(with_gradient),
        "calls without gradient": dict(without_gradient),
        "logprobs": compared,
        "counted": _counted(ddp, groups, step),
    }


def _counted(ddp, groups, step):
    """Rows of each expert that this rank counts for biases in a pass over its share of nine samples."""
    from flexfloor.train.metrics import TokenSums

    mine = gradients.as_samples(gradients.NINE, "grpo")[groups.dp_cp.rank() :: groups.dp_cp.size()]
    step.begin()
    step.accumulate([mine], TokenSums())
    router = ddp.module.decoder.layers[-1].mlp.router
    return None if router.expert_bias is None else router.local_tokens_per_expert.tolist()


def kept_by_forward(num_layers, way, rows):
    """Bytes that one forward pass over one sequence keeps, up to its last hidden states; and the width."""
    from dataclasses import replace

    from flexfloor.models.attention import PackedRows

    config = replace(rollout_ranks.model_config("float64"), num_layers=num_layers)
    model = rollout_ranks.built(config, recompute=way)
    packed = PackedRows.of(torch.arange(rows), torch.tensor([0, rows]))
    kept = Kept(model)
    with kept.watched():
        hidden = model.decoder(
            torch.ones(rows, 1, config.hidden_size, dtype=torch.float64, requires_grad=True),
            attention_mask=None,
            rotary_pos_emb=model.rotary_pos_emb(rows),
            packed_seq_params=packed,
        )
    assert hidden.requires_grad
    parallel.destroy()
    return kept.most


def kept_by_way(rows):
    """By way: what each further layer keeps; what a pass and its way back keep; what is estimated of that."""
    return {
        way: (
            (kept_by_forward(6, way, rows) - kept_by_forward(2, way, rows)) / 4,
            *kept_and_estimated(way, rows),
        )
        for way in WAYS
    }


def kept_and_estimated(way, rows):
    """Bytes of a pass over one sequence and its way back, without the allocator's share in the estimate."""
    from dataclasses import replace

    from flexfloor.models.activations import ACTIVATION_FACTOR, row_activation_bytes
    from flexfloor.train.batch import pack
    from flexfloor.train.forward import forward_logprobs

    config = replace(rollout_ranks.model_config("float32"), num_layers=6, hidden_size=64)
    model = rollout_ranks.built(config, recompute=way)
    kept, sample = Kept(model), {"prompt": [3], "response": [5] * rows}
    sample |= {"old_logprobs": [], "ref_logprobs": [], "advantage": 0.0}
    batch = pack(gradients.as_samples([sample], "sft"), "token-mean", torch.device("cpu"))
    with kept.watched():
        logprobs, _ = forward_logprobs(model, batch, 1.0)
        logprobs.sum().backward()
    parallel.destroy()
    estimated = rows * row_activation_bytes(config, rollout_ranks.VOCAB, way) / ACTIVATION_FACTOR
    return kept.most, estimated


def early_steps(folder):
    """A step of the recipe without early update; with it, layers recomputed; and MoE layers, in groups."""
    found = []
    for way, overlap, grouped in (("none", "off", False), ("full", "on", False), ("moe", "on", True)):
        grouped_ranks.group_experts(grouped)
        words = ("parallel.ep=2", "trainer.total_training_steps=1", f"overlap={overlap}")
        words += ("recipe=tiny-deepseek", "model.num_experts=12", "model.num_layers=3")
        words += (f"model.moe_router_bias_update_rate={BIAS_RATE}", f"actor.recompute={way}")
        words += ("actor.use_kl_loss=true", "actor.kl_loss_coef=0.3", "actor.old_logprobs=recompute")
        case = early_ranks.Case(words=words, releases=(1,) if overlap == "on" else ())
        found += early_ranks.run_cases([case], f"{folder}/{way}")
    return found
