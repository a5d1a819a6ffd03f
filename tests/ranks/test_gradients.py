"""Gradients, metrics and weights of `TrainStep` on real ranks against a plain PyTorch reference.

Every case runs under every layout of up to 4 ranks in float64; what the ranks return must be the
reference's, so it is the same under every micro-batch size, order, data- and expert-parallel size.
"""

import functools

import numpy as np
import pytest
import reference_mixtral as reference
import torch

from flexfloor.launch import run_ranks

LAYOUTS = [(1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (4, 4)]
TEMPERATURE, CLIP_LOW, CLIP_HIGH, MAX_RESPONSE_LENGTH = 0.8, 0.2, 0.3, 12
ADAM = {"lr": 1e-2, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.1, "clip_grad": 0.05}


def make_samples(count, seed=0):
    """Samples of uneven lengths whose ratios fall on both sides of both clips."""
    rng = np.random.default_rng(seed)
    samples = []
    for index in range(count):
        prompt, response = rng.integers(1, 6), rng.integers(1, MAX_RESPONSE_LENGTH + 1)
        samples.append(
            {
                "prompt": rng.integers(0, reference.VOCAB, prompt).tolist(),
                "response": rng.integers(0, reference.VOCAB, response).tolist(),
                "old_logprobs": (-np.log(reference.VOCAB) + rng.normal(0, 0.4, response)).tolist(),
                "advantage": float(rng.normal() + 0.1 * index),
            }
        )
    return samples


NINE, ONE = make_samples(9), make_samples(1, seed=1)
EMPTY = {"prompt": [3, 4], "response": [], "old_logprobs": [], "advantage": 2.0}
SHUFFLED = [NINE[i] for i in (4, 8, 1, 0, 7, 3, 6, 2, 5)]
MODES = ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]


def _case(samples=NINE, *, budget=1000, mode="token-mean", entropy_coeff=0.0, kind="grpo"):
    return {
        "samples": samples,
        "budget": budget,
        "mode": mode,
        "entropy_coeff": entropy_coeff,
        "kind": kind,
    }


CASES = {
    **{f"{mode}, many micro-batches": _case(budget=16, mode=mode) for mode in MODES},
    **{f"{mode}, shuffled, one": _case(SHUFFLED, mode=mode) for mode in MODES},
    "every sample alone": _case(budget=1),
    "entropy bonus": _case(budget=30, entropy_coeff=0.3, mode="seq-mean-token-mean"),
    "one sample": _case(ONE),
    "two samples and an empty response": _case([NINE[0], EMPTY, NINE[1]], mode="seq-mean-token-sum"),
    "demonstrations": _case(budget=20, kind="sft"),
}


# ---- on the ranks


def as_samples(samples, kind):
    from flexfloor.train.types import Sample

    return [
        Sample(
            uid=f"q{position}",
            response_index=0,
            prompt_ids=np.array(sample["prompt"]),
            response_ids=np.array(sample["response"], dtype=np.int64),
            old_logprobs=np.array(sample["old_logprobs"]) if kind == "grpo" else None,
            advantage=sample["advantage"],
        )
        for position, sample in enumerate(samples)
    ]


def build(ep_size, dtype="float64"):
    """(ddp, groups) with weights large enough that routing and attention matter."""
    from flexfloor import parallel
    from flexfloor.models.build import build_model
    from flexfloor.models.config import ModelConfig
    from flexfloor.train.optimizer import build_ddp

    parallel.initialize(ep_size=ep_size, seed=0, timeout_seconds=60)
    config = ModelConfig(
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
    return build_ddp(model, groups), groups


def make_step(ddp, groups, case, **optim):
    from flexfloor.train.config import ActorConfig, OptimConfig
    from flexfloor.train.objective import grpo_objective, sft_objective
    from flexfloor.train.optimizer import build_optimizer, build_scheduler
    from flexfloor.train.step import TrainStep

    actor = ActorConfig(
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
    from flexfloor.models.init import global_parameters

    return {
        name: read(parameter).detach().numpy().copy() for name, parameter in global_parameters(ddp.module)
    }


def count_routed(ddp, counts):
    """Add the number of (token, expert) pairs that each router chooses to counts["routed"]."""

    def hook(module, inputs, output):
        counts["routed"] += int(output[1].sum())

    for name, module in ddp.named_modules():
        if name.endswith("mlp.router"):
            module.register_forward_hook(hook)


def all_cases(ep_size):
    ddp, groups = build(ep_size)
    weights, counts, cases = named(ddp, lambda p: p), {}, {}
    count_routed(ddp, counts)
    for name, case in CASES.items():
        counts["routed"] = 0
        metrics = make_step(ddp, groups, case).update(as_samples(case["samples"], case["kind"]))
        gradients = named(ddp, lambda p: p.main_grad)
        cases[name] = {"metrics": metrics, "gradients": gradients, "routed": counts["routed"]}
    nothing = make_step(ddp, groups, _case())
    cases["nothing"] = [nothing.update([]), nothing.update(as_samples([EMPTY, EMPTY], "grpo"))]
    cases["diverged"] = diverged(ddp, groups)
    recomputed = recompute(ddp, groups, budget=16)
    unmoved = named(ddp, lambda p: p)
    step = make_step(ddp, groups, _case(budget=25), **ADAM)
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
        make_step(ddp, groups, _case(), **ADAM).update(as_samples([*NINE[1:], broken], "grpo"))
    except FlexFloorError as error:
        return str(error)


def recompute(ddp, groups, *, budget):
    from flexfloor.train.recompute import compute_logprobs

    samples = as_samples(NINE, "sft")
    return compute_logprobs(ddp, samples, groups, micro_batch_tokens=budget, temperature=TEMPERATURE)


def first_update_after_recompute(ep_size):
    import dataclasses

    ddp, groups = build(ep_size, dtype="float32")
    old = recompute(ddp, groups, budget=16)
    samples = [
        dataclasses.replace(sample, old_logprobs=logprobs)
        for sample, logprobs in zip(as_samples(NINE, "sft"), old, strict=True)
    ]
    return make_step(ddp, groups, _case(budget=16)).update(samples)


def own_samples(ep_size):
    ddp, groups = build(ep_size)
    mine = as_samples(NINE[: 4 + groups.dp_cp.rank()], "grpo")
    make_step(ddp, groups, _case()).update(mine)


# ---- against the reference


@pytest.fixture(scope="module", params=LAYOUTS, ids=lambda layout: "world {} ep {}".format(*layout))
def ranks(request):
    world_size, ep_size = request.param
    return run_ranks(all_cases, world_size, ep_size, total_timeout_seconds=240, threads_per_rank=1)


def merged(per_rank):
    """One dict of all parameters; what several ranks hold must be the same to the bit."""
    whole = {}
    for part in per_rank:
        for name, value in part.items():
            np.testing.assert_array_equal(whole.setdefault(name, value), value, err_msg=name)
    return whole


def tensors(weights):
    return {name: torch.tensor(value, requires_grad=True) for name, value in weights.items()}


def reference_loss(weights, case):
    if case["kind"] == "sft":
        loss = reference.likelihood(weights, case["samples"])
        return loss, {"loss": loss.item()}
    return reference.grpo(
        weights,
        case["samples"],
        mode=case["mode"],
        temperature=TEMPERATURE,
        clip_low=CLIP_LOW,
        clip_high=CLIP_HIGH,
        entropy_coeff=case["entropy_coeff"],
        max_response_length=MAX_RESPONSE_LENGTH,
    )


@functools.cache
def expected(name, weights_key):
    weights = tensors({parameter: np.frombuffer(raw).reshape(s) for parameter, s, raw in weights_key})
    loss, metrics = reference_loss(weights, CASES[name])
    loss.backward()
    gradients = {parameter: value.grad.numpy() for parameter, value in weights.items()}
    return gradients, metrics


def key_of(weights):
    return tuple((name, value.shape, value.tobytes()) for name, value in sorted(weights.items()))


@pytest.mark.parametrize("name", CASES)
def test_gradients_and_metrics_are_the_references(ranks, name):
    weights = merged([rank["weights"] for rank in ranks])
    gradients, metrics = expected(name, key_of(weights))
    got = merged([rank["cases"][name]["gradients"] for rank in ranks])
    assert got.keys() == gradients.keys()
    for parameter, value in gradients.items():
        np.testing.assert_allclose(got[parameter], value, rtol=1e-9, atol=1e-12, err_msg=parameter)
    section = "sft" if CASES[name]["kind"] == "sft" else "actor"
    norm = np.sqrt(sum(np.sum(value**2) for value in gradients.values()))
    for rank in ranks:
        reported = rank["cases"][name]["metrics"]
        assert reported == ranks[0]["cases"][name]["metrics"]
        assert reported[f"{section}/grad_norm"] == pytest.approx(norm, rel=1e-10)
        for metric, value in metrics.items():
            assert reported[f"{section}/{metric}"] == pytest.approx(value, rel=1e-10), metric


@pytest.mark.parametrize("name", CASES)
def test_only_rows_of_samples_are_routed(ranks, name):
    rows = sum(len(s["prompt"]) + len(s["response"]) - 1 for s in CASES[name]["samples"] if s["response"])
    routed = sum(rank["cases"][name]["routed"] for rank in ranks)
    assert routed == rows * reference.TOP_K * reference.LAYERS


def test_cases_clip_on_both_sides(ranks):
    _, metrics = expected("one sample", key_of(merged([rank["weights"] for rank in ranks])))
    assert metrics["pg_clipfrac"] < 1
    _, metrics = expected("every sample alone", key_of(merged([rank["weights"] for rank in ranks])))
    assert 0.1 < metrics["pg_clipfrac"] < 0.9


def test_updates_without_tokens_or_without_a_finite_loss_change_nothing(ranks):
    for rank in ranks:
        assert rank["cases"]["nothing"] == [{"actor/skipped_updates": 1.0}] * 2
        assert rank["cases"]["diverged"] == "actor/pg_loss is nan: the update diverged"
        for name, value in rank["weights"].items():
            np.testing.assert_array_equal(rank["unmoved"][name], value, err_msg=name)


def test_two_optimizer_steps_are_adamw_on_the_whole_gradient(ranks):
    weights = tensors(merged([rank["weights"] for rank in ranks]))
    decayed = [value for value in weights.values() if value.dim() > 1]
    spared = [value for value in weights.values() if value.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed}, {"params": spared, "weight_decay": 0.0}],
        **{name: value for name, value in ADAM.items() if name != "clip_grad"},
    )
    for samples, position in ((NINE, 0), (SHUFFLED[:5], 1)):
        optimizer.zero_grad()
        reference_loss(weights, _case(samples))[0].backward()
        norm = torch.nn.utils.clip_grad_norm_(weights.values(), ADAM["clip_grad"])
        assert norm > ADAM["clip_grad"], "the test is meant to clip"
        for rank in ranks:
            assert rank["steps"][position]["actor/grad_norm"] == pytest.approx(norm.item(), rel=1e-9)
            assert rank["steps"][position]["actor/lr"] == ADAM["lr"]
        optimizer.step()
    got = merged([rank["stepped"] for rank in ranks])
    for name, value in weights.items():
        np.testing.assert_allclose(got[name], value.detach().numpy(), rtol=0, atol=1e-10, err_msg=name)


def test_recomputed_logprobs_are_the_references(ranks):
    weights = tensors(merged([rank["weights"] for rank in ranks]))
    for position, sample in enumerate(NINE):
        logprobs, _ = reference.token_distributions(weights, sample, TEMPERATURE)
        for rank in ranks:
            got = rank["recomputed"][position]
            np.testing.assert_allclose(got, logprobs.detach().numpy(), rtol=1e-11)


def test_first_ratio_is_exactly_one_after_recompute():
    for metrics in run_ranks(
        first_update_after_recompute, 2, 2, total_timeout_seconds=120, threads_per_rank=1
    ):
        assert metrics["actor/ppo_kl"] == 0.0
        assert metrics["actor/pg_clipfrac"] == 0.0


def test_ranks_with_different_samples_stop_instead_of_hanging():
    with pytest.raises(Exception, match="ranks hold different samples"):
        run_ranks(own_samples, 2, 2, total_timeout_seconds=120, threads_per_rank=1)
