"""The compiled loops give what PyTorch's operators give, within each type's rounding."""

import numpy as np
import pytest
import torch

from flexfloor.rollout.config import SamplingConfig
from flexfloor.rollout.context import DecodingRows
from flexfloor.rollout.kernels.fused import FusedOperators
from flexfloor.rollout.kernels.plain import PlainOperators

TOLERANCES = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 6e-2}
every_type = pytest.mark.parametrize("dtype", TOLERANCES)
every_count = pytest.mark.parametrize("rows", [0, 1, 5, 300])
"""Beyond 256 rows of these shapes each loop runs on several threads."""
PLAIN, NUM_EXPERTS, HIDDEN = PlainOperators(), 8, 160


@pytest.fixture(autouse=True)
def two_threads():
    torch.manual_seed(0)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def fused(dtype):
    return FusedOperators(dtype, NUM_EXPERTS)


def made(dtype, *sizes):
    return torch.randn(sizes, dtype=torch.float64).to(dtype)


def assert_alike(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype is theirs.dtype
        tolerance = TOLERANCES[ours.dtype]
        torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)


@every_type
@every_count
@pytest.mark.parametrize("is_first", [True, False])
def test_sum_and_norm(dtype, rows, is_first):
    hidden, part, weight = made(dtype, rows, HIDDEN), made(dtype, rows, HIDDEN), made(dtype, HIDDEN)
    given = (None if is_first else part, weight, 1e-5)
    expected = PLAIN.add_norm(hidden.clone(), *given)
    assert_alike(fused(dtype).add_norm(hidden, *given), expected)


@every_type
@every_count
@pytest.mark.parametrize("has_norms", [True, False])
def test_rotation(dtype, rows, has_norms):
    mixed, cos, sin = made(dtype, rows, 2, 5, 24), made(dtype, rows, 1, 24), made(dtype, rows, 1, 24)
    given = (mixed, cos, sin, made(dtype, 4, 24) if has_norms else None, 1e-6)
    assert_alike(fused(dtype).turn(*given), PLAIN.turn(*given))


def attended(operators, planes, query, positions, dtype):
    count, seen = len(positions), int(positions.max()) + 1
    part = DecodingRows(size=0, rows=slice(0, count), positions_B=positions, num_positions=seen, dtype=dtype)
    return operators.attend(query, [plane[:count, :, :seen] for plane in planes], part, 0.3)


@every_type
@pytest.mark.parametrize("rows", [1, 5, 300])
def test_attention_over_slots_that_hold_more_than_is_seen(dtype, rows):
    slab, query = made(dtype, 2, rows + 3, 2, 50, 24), made(dtype, rows, 6, 24)
    positions = torch.randint(0, 40, (rows,))
    given = (list(slab), query, positions, dtype)
    assert_alike([attended(fused(dtype), *given)], [attended(PLAIN, *given)])


@every_type
def test_attention_whose_values_are_the_first_channels_of_its_keys(dtype):
    latents, query = made(dtype, 7, 1, 50, 20), made(dtype, 5, 6, 20)
    given = ([latents, latents[..., :16]], query, torch.tensor([0, 49, 3, 17, 8]), dtype)
    assert_alike([attended(fused(dtype), *given)], [attended(PLAIN, *given)])


@every_type
@every_count
def test_swiglu(dtype, rows):
    lifted = made(dtype, rows, 260)
    assert_alike([fused(dtype).swiglu(lifted)], [PLAIN.swiglu(lifted)])


def products(dtype, experts):
    def times(weight):
        return lambda rows: rows @ weight

    return {
        each: (times(made(dtype, HIDDEN, 96) / 8), times(made(dtype, 48, HIDDEN) / 8)) for each in experts
    }


@every_type
@every_count
@pytest.mark.parametrize("here", [range(8), (0, 3, 7), ()])
def test_experts_of_which_some_are_elsewhere(dtype, rows, here):
    experts = products(dtype, here)
    probs = torch.rand(rows, 3).to(torch.promote_types(dtype, torch.float32))
    chosen = torch.stack([torch.randperm(9)[:3] - 1 for _ in range(rows)] or [torch.empty(3).long()])[:rows]
    given = (made(dtype, rows, HIDDEN), probs, chosen, experts)
    assert_alike([fused(dtype).experts(*given)], [PLAIN.experts(*given)])


@every_type
@pytest.mark.parametrize("temperature", [1.0, 0.6, 0.0])
@pytest.mark.parametrize("rows", [1, 40])
def test_same_tokens_are_drawn(dtype, temperature, rows):
    logits, keys = 3 * made(dtype, rows, 1999), torch.randint(-(2**62), 2**62, (rows,))
    given = (logits, keys, torch.arange(rows), SamplingConfig(temperature=temperature))
    tokens, logprobs = fused(dtype).sample(*given)
    expected, expected_logprobs = PLAIN.sample(*given)
    if temperature or dtype is not torch.bfloat16:  # rounding to bfloat16 makes ties
        assert tokens.tolist() == expected.tolist()
    torch.testing.assert_close(logprobs, expected_logprobs, atol=1e-12, rtol=0)


def test_a_token_whose_weight_is_not_a_number_shows_in_the_log_probability():
    logits = torch.tensor([[0.0, float("nan"), 1.0]])
    _, logprobs = fused(torch.float32).sample(logits, torch.tensor([1]), torch.tensor([0]), SamplingConfig())
    assert np.isnan(logprobs.item())


@pytest.mark.parametrize("narrowed", [{"top_k": 3}, {"top_p": 0.5}])
def test_narrowed_sampling_is_pytorchs(narrowed):
    given = (made(torch.float32, 9, 50), torch.arange(9), torch.arange(9), SamplingConfig(**narrowed))
    for ours, theirs in zip(fused(torch.float32).sample(*given), PLAIN.sample(*given), strict=True):
        assert torch.equal(ours, theirs)


def test_what_is_not_contiguous_is_refused():
    with pytest.raises(AssertionError):
        fused(torch.float32).swiglu(torch.ones(4, 6).T)
