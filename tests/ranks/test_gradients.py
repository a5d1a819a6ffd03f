"""Gradients, metrics and weights of `TrainStep` on real ranks against a plain PyTorch reference.

Every case runs under every layout of up to 4 ranks in float64; what the ranks return must be the
reference's, so it is the same under every micro-batch size, order, data- and expert-parallel size.
"""

import functools

import numpy as np
import pytest
import reference_moe as reference
import torch
from gradient_ranks import (
    ADAM,
    CASES,
    CLIP_HIGH,
    CLIP_LOW,
    MAX_RESPONSE_LENGTH,
    NINE,
    SHUFFLED,
    TEMPERATURE,
    all_cases,
    first_update_after_recompute,
    make_case,
    own_samples,
)

from flexfloor.launch import run_ranks

LAYOUTS = {
    "mixtral": [
        (1, 1, 1),
        (2, 1, 1),
        (2, 2, 1),
        (4, 1, 1),
        (4, 2, 1),
        (4, 4, 1),
        (2, 2, 2),
        (4, 2, 2),
        (4, 4, 2),
    ],
    "qwen3_moe": [(1, 1, 1), (4, 2, 1), (2, 2, 2), (4, 4, 2)],
    "qwen3_moe, shares as they are": [(2, 2, 1)],
    "deepseek_v3": [(1, 1, 1), (4, 2, 1), (2, 2, 2), (4, 2, 2), (4, 4, 4)],
}
"""By family: ranks, EP size, TP size."""
RUNS = [(name, *layout) for name, layouts in LAYOUTS.items() for layout in layouts]


@pytest.fixture(scope="module", params=RUNS, ids=lambda run: "{}, world{} ep{} tp{}".format(*run))
def name_and_ranks(request):
    name, world_size, ep_size, tp_size = request.param
    found = run_ranks(
        all_cases, world_size, ep_size, tp_size, name, total_timeout_seconds=240, threads_per_rank=1
    )
    return name, found


@pytest.fixture
def family(name_and_ranks):
    return reference.FAMILIES[name_and_ranks[0]]


@pytest.fixture
def ranks(name_and_ranks):
    return name_and_ranks[1]


def merged(per_rank):
    """One dict of all parameters; what several ranks hold must be the same to the bit."""
    whole = {}
    for part in per_rank:
        for name, value in part.items():
            np.testing.assert_array_equal(whole.setdefault(name, value), value, err_msg=name)
    return whole


def tensors(weights):
    return {name: torch.tensor(value, requires_grad=True) for name, value in weights.items()}


def reference_loss(family, weights, case):
    if case["kind"] == "sft":
        loss = reference.likelihood(family, weights, case["samples"])
        return loss, {"loss": loss.item()}
    return reference.grpo(
        family,
        weights,
        case["samples"],
        mode=case["mode"],
        temperature=TEMPERATURE,
        clip_low=CLIP_LOW,
        clip_high=CLIP_HIGH,
        entropy_coeff=case["entropy_coeff"],
        kl=case["kl"],
        max_response_length=MAX_RESPONSE_LENGTH,
    )


@functools.cache
def expected(family, name, weights_key):
    weights = tensors({parameter: np.frombuffer(raw).reshape(s) for parameter, s, raw in weights_key})
    loss, metrics = reference_loss(family, weights, CASES[name])
    loss.backward()
    # an expert that no row chose has none
    gradients = {
        parameter: (torch.zeros_like(value) if value.grad is None else value.grad).numpy()
        for parameter, value in weights.items()
    }
    return gradients, metrics


def key_of(weights):
    return tuple((name, value.shape, value.tobytes()) for name, value in sorted(weights.items()))


@pytest.mark.parametrize("name", CASES)
def test_gradients_and_metrics_are_the_references(family, ranks, name):
    weights = merged([rank["weights"] for rank in ranks])
    gradients, metrics = expected(family, name, key_of(weights))
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
        assert ("actor/kl_loss" in reported) == ("kl_loss" in metrics)
        for metric, value in metrics.items():
            assert reported[f"{section}/{metric}"] == pytest.approx(value, rel=1e-10), metric


@pytest.mark.parametrize("name", CASES)
def test_only_rows_of_samples_are_routed(family, ranks, name):
    rows = sum(len(s["prompt"]) + len(s["response"]) - 1 for s in CASES[name]["samples"] if s["response"])
    routed = sum(rank["cases"][name]["routed"] for rank in ranks)
    assert routed == rows * reference.TOP_K * family.num_moe_layers


def test_cases_clip_on_both_sides(family, ranks):
    _, metrics = expected(family, "one sample", key_of(merged([rank["weights"] for rank in ranks])))
    assert metrics["pg_clipfrac"] < 1
    _, metrics = expected(family, "every sample alone", key_of(merged([rank["weights"] for rank in ranks])))
    assert 0.1 < metrics["pg_clipfrac"] < 0.9


def test_updates_without_tokens_or_without_a_finite_loss_change_nothing(ranks):
    for rank in ranks:
        assert rank["cases"]["nothing"] == [{"actor/skipped_updates": 1.0}] * 2
        assert rank["cases"]["diverged"] == "actor/pg_loss is nan: the update diverged"
        for name, value in rank["weights"].items():
            np.testing.assert_array_equal(rank["unmoved"][name], value, err_msg=name)


def test_two_optimizer_steps_are_adamw_on_the_whole_gradient(family, ranks):
    weights = tensors(merged([rank["weights"] for rank in ranks]))
    decayed = [value for value in weights.values() if value.dim() > 1]
    spared = [value for value in weights.values() if value.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed}, {"params": spared, "weight_decay": 0.0}],
        **{name: value for name, value in ADAM.items() if name != "clip_grad"},
    )
    for samples, position in ((NINE, 0), (SHUFFLED[:5], 1)):
        optimizer.zero_grad()
        reference_loss(family, weights, make_case(samples))[0].backward()
        norm = torch.nn.utils.clip_grad_norm_(weights.values(), ADAM["clip_grad"])
        assert norm > ADAM["clip_grad"], "the test is meant to clip"
        for rank in ranks:
            assert rank["steps"][position]["actor/grad_norm"] == pytest.approx(norm.item(), rel=1e-9)
            assert rank["steps"][position]["actor/lr"] == ADAM["lr"]
        optimizer.step()
    got = merged([rank["stepped"] for rank in ranks])
    for name, value in weights.items():
        np.testing.assert_allclose(got[name], value.detach().numpy(), rtol=0, atol=1e-10, err_msg=name)


def test_recomputed_logprobs_are_the_references(family, ranks):
    weights = tensors(merged([rank["weights"] for rank in ranks]))
    for position, sample in enumerate(NINE):
        logprobs, _ = reference.token_distributions(family, weights, sample, TEMPERATURE)
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
