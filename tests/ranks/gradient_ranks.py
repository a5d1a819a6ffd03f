"""The cases of `test_gradients` and what each rank runs for them."""

import numpy as np
import reference_moe as reference
import torch

TEMPERATURE, CLIP_LOW, CLIP_HIGH, MAX_RESPONSE_LENGTH = 0.8, 0.2, 0.3, 12
ADAM = {"lr": 1e-2, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.1, "clip_grad": 0.05}


def make_samples(count, seed=0):
    """Samples of uneven lengths whose ratios fall on both sides of both clips."""
    rng, ref_rng = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    samples = []
    for index in range(count):
        prompt, response = rng.integers(1, 6), rng.integers(1, MAX_RESPONSE_LENGTH + 1)
        samples.append(
            {
                "prompt": rng.integers(0, reference.VOCAB, prompt).tolist(),
                "response": rng.integers(0, reference.VOCAB, response).tolist(),
                "old_logprobs": (-np.log(reference.VOCAB) + rng.normal(0, 0.4, response)).tolist(),
                "ref_logprobs": (-np.log(reference.VOCAB) + ref_rng.normal(0, 0.7, response)).tolist(),
                "advantage": float(rng.normal() + 0.1 * index),
            }
        )
    return samples


NINE, ONE = make_samples(9), make_samples(1, seed=1)
EMPTY = {"prompt": [3, 4], "response": [], "old_logprobs": [], "ref_logprobs": [], "advantage": 2.0}
SHUFFLED = [NINE[i] for i in (4, 8, 1, 0, 7, 3, 6, 2, 5)]
MODES = ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]


def make_case(samples=NINE, *, budget=1000, mode="token-mean", entropy_coeff=0.0, kl=None, kind="grpo"):
    """`kl` is the estimator and its coefficient."""
    return {
        "samples": samples,
        "budget": budget,
        "mode": mode,
        "entropy_coeff": entropy_coeff,
        "kl": kl,
        "kind": kind,
    }


CASES = {
    **{f"{mode}, many micro-batches": make_case(budget=16, mode=mode) for mode in MODES},
    **{f"{mode}, shuffled, one": make_case(SHUFFLED, mode=mode) for mode in MODES},
    "every sample alone": make_case(budget=1),
    "entropy bonus": make_case(budget=30, entropy_coeff=0.3, mode="seq-mean-token-mean"),
    **{f"kl k3, {mode}": make_case(budget=16, mode=mode, kl=("k3", 0.7)) for mode in MODES},
    "kl k1": make_case(budget=30, kl=("k1", 0.7), mode="seq-mean-token-mean"),
    "kl k2 and entropy": make_case(SHUFFLED, entropy_coeff=0.3, kl=("k2", 0.4), mode="seq-mean-token-sum"),
    "kl reported only": make_case(budget=30, kl=("k3", 0.0)),
    "one sample": make_case(ONE),
    # two experts of each layer get a row: under four expert ranks two have neither data nor rows
    "one row": make_case(
        [{key: value[:1] if key != "advantage" else value for key, value in NINE[0].items()}]
    ),
    "two samples and an empty response": make_case([NINE[0], EMPTY, NINE[1]], mode="seq-mean-token-sum"),
    "demonstrations": make_case(budget=20, kind="sft"),
}


def as_samples(samples, kind):
    from flexfloor.train.types import Sample

    return [
        Sample(
            uid=f"q{position}",
            response_index=0,
            prompt_ids=np.array(sample["prompt"]),
            response_ids=np.array(sample["response"], dtype=np.int64),
            old_logprobs=np.array(sample["old_logprobs"]) if kind == "grpo" else None,
            ref_logprobs=np.array(sample["ref_logprobs"]) if kind == "grpo" else None,
            advantage=sample["advantage"],
        )
        for position, sample in enumerate(samples)
    ]


def build(ep_size, dtype="float64", name="mixtral", tp_size=1, **shape):
    """(ddp, groups) with weights large enough that routing and attention matter; `shape` adds settings."""
    from flexfloor import parallel
    from flexfloor.models.build import build_model
    from flexfloor.models.config import ModelConfig
    from flexfloor.train.optimizer import build_ddp

    parallel.initialize(ep_size=ep_size, tp_size=tp_size, seed=0, timeout_seconds=60)
    family = reference.FAMILIES[name]
    config = ModelConfig(
        family=name.partition(",")[0],
        **family.settings() | shape,
        num_layers=reference.LAYERS,
        hidden_size=reference.HIDDEN,
        num_attention_heads=reference.HEADS,
        num_query_groups=reference.KV_HEADS,
        moe_ffn_hidden_size=24,
        num_experts=reference.EXPERTS,
        moe_router_topk=reference.TOP_K,
        init_std=0.4,
        dtype=dtype,
    )
    groups = parallel.groups()
    model = build_model(config, vocab_size=reference.VOCAB, max_sequence_length=32, groups=groups)
    for buffer_name, bias in model.named_buffers():
        if buffer_name.endswith("expert_bias"):
            bias.copy_(torch.tensor(reference.EXPERT_BIAS))
    return build_ddp(model, groups), groups


def make_step(ddp, groups, case, **optim):
    from flexfloor.train.config import ActorConfig, OptimConfig
    from flexfloor.train.objective import grpo_objective, sft_objective
    from flexfloor.train.optimizer import build_optimizer, build_scheduler
    from flexfloor.train.step import TrainStep

    kind, coefficient = case["kl"] or ("k3", 1.0)
    actor = ActorConfig(
        use_kl_loss=case["kl"] is not None,
        kl_loss_type=kind,
        kl_loss_coef=coefficient,
        clip_ratio_low=CLIP_LOW,
        clip_ratio_high=CLIP_HIGH,
        loss_agg_mode=case["mode"],
        entropy_coeff=case["entropy_coeff"],
        # a rate that moves no weight, where nothing else is asked for
        optim=OptimConfig(**({"lr": 1e-300, "clip_grad": 0.0} | optim)),
    )
    objective = grpo_objective(actor, temperature=TEMPERATURE, max_response_length=MAX_RESPONSE_LENGTH)
    optimizer = build_optimizer(ddp, actor.optim, groups)
    return TrainStep(
        ddp,
        optimizer,
        build_scheduler(optimizer, actor.optim),
        sft_objective() if case["kind"] == "sft" else objective,
        groups,
        micro_batch_tokens=case["budget"],
    )


def named(ddp, read):
    """What `read` gives for each parameter, whole, by its global name."""
    import torch.distributed as dist

    from flexfloor.models.init import global_parameters
    from flexfloor.models.sharding import cuts_of

    cuts, found = cuts_of(ddp.module), {}
    for name, parameter in global_parameters(ddp.module):
        value = read(parameter).detach()
        if name in cuts:
            pieces = [None] * cuts[name].group.size()
            dist.all_gather_object(pieces, value, group=cuts[name].group)
            value = cuts[name].join(pieces)
        found[name] = value.numpy().copy()
    return found


def count_routed(ddp, counts):
    """Add the number of (token, expert) pairs that each router chooses to counts["routed"]."""

    def hook(module, inputs, output):
        counts["routed"] += int(output[1].sum())

    for name, module in ddp.named_modules():
        if name.endswith("mlp.router"):
            module.register_forward_hook(hook)


def all_cases(ep_size, tp_size, name):
    ddp, groups = build(ep_size, name=name, tp_size=tp_size)
    weights, counts, cases = named(ddp, lambda p: p), {}, {}
    count_routed(ddp, counts)
    for name, case in CASES.items():
        counts["routed"] = 0
        metrics = make_step(ddp, groups, case).update(as_samples(case["samples"], case["kind"]))
        gradients = named(ddp, lambda p: p.main_grad)
        cases[name] = {"metrics": metrics, "gradients": gradients, "routed": counts["routed"]}
    nothing = make_step(ddp, groups, make_case())
    cases["nothing"] = [nothing.update([]), nothing.update(as_samples([EMPTY, EMPTY], "grpo"))]
    cases["diverged"] = diverged(ddp, groups)
    recomputed = recompute(ddp, groups, budget=16)
    unmoved = named(ddp, lambda p: p)
    step = make_step(ddp, groups, make_case(budget=25), **ADAM)
    steps = [step.update(as_samples(samples, "grpo")) for samples in (NINE, SHUFFLED[:5])]
    return {
        "weights": weights,
        "unmoved": unmoved,
        "cases": cases,
        "recomputed": recomputed,
        "steps": steps,
        "stepped": named(ddp, lambda p: p),
    }


def diverged(ddp, groups):
    """What `update` raises when one sample's loss is not a number."""
    from flexfloor.errors import FlexFloorError

    broken = NINE[0] | {"old_logprobs": [float("nan")] * len(NINE[0]["response"])}
    try:
        make_step(ddp, groups, make_case(), **ADAM).update(as_samples([*NINE[1:], broken], "grpo"))
    except FlexFloorError as error:
        return str(error)


def recompute(ddp, groups, *, budget):
    from flexfloor.train.recompute import compute_logprobs

    samples = as_samples(NINE, "sft")
    return compute_logprobs(ddp, samples, groups.dp_cp, micro_batch_tokens=budget, temperature=TEMPERATURE)


def first_update_after_recompute(ep_size):
    import dataclasses

    ddp, groups = build(ep_size, dtype="float32")
    old = recompute(ddp, groups, budget=16)
    samples = [
        dataclasses.replace(sample, old_logprobs=logprobs)
        for sample, logprobs in zip(as_samples(NINE, "sft"), old, strict=True)
    ]
    return make_step(ddp, groups, make_case(budget=16)).update(samples)


def own_samples(ep_size):
    ddp, groups = build(ep_size)
    mine = as_samples(NINE[: 4 + groups.dp_cp.rank()], "grpo")
    make_step(ddp, groups, make_case()).update(mine)
