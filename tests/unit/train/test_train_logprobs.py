"""Log-probabilities and entropy against formulas in NumPy."""

import numpy as np
import pytest
import torch

from flexfloor.train.logprobs import scaled_logits, token_entropy, token_logprobs

ROWS, LABELS = torch.tensor([1, 3, 4]), torch.tensor([2, 0, 4])


def _logits(dtype=torch.float64):
    return torch.tensor(np.random.default_rng(0).normal(size=(6, 5)) * 3, dtype=dtype)


@pytest.mark.parametrize("temperature", [1.0, 0.6, 2.0])
def test_formula_with_temperature(temperature):
    logits = _logits()
    scaled = scaled_logits(logits, ROWS, temperature)
    probs = np.exp(logits.numpy()[[1, 3, 4]] / temperature)
    probs /= probs.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(token_logprobs(scaled, LABELS), np.log(probs[range(3), [2, 0, 4]]), rtol=1e-12)
    np.testing.assert_allclose(token_entropy(scaled), -(probs * np.log(probs)).sum(axis=1), rtol=1e-12)


def test_nan_in_rows_that_are_not_read_reaches_neither_values_nor_gradient():
    clean, dirty = _logits().requires_grad_(), _logits()
    dirty[[0, 2, 5]] = float("nan")
    dirty.requires_grad_()
    for logits in (clean, dirty):
        scaled = scaled_logits(logits, ROWS, 0.7)
        (token_logprobs(scaled, LABELS) + token_entropy(scaled)).sum().backward()
    assert torch.equal(clean.grad, dirty.grad)
    assert (dirty.grad[[0, 2, 5]] == 0).all() and dirty.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("given", "computed"),
    [
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_computed_in_float32_at_least(given, computed):
    assert scaled_logits(_logits(given), ROWS, 1.0).dtype is computed


def test_large_logits_stay_finite():
    scaled = scaled_logits(torch.tensor([[1e4, -1e4, 0.0]], dtype=torch.float32), torch.tensor([0]), 0.5)
    assert token_logprobs(scaled, torch.tensor([1])).isfinite().all()
    assert token_entropy(scaled).item() == 0.0


def test_temperature_zero_is_refused():
    with pytest.raises(AssertionError, match="temperature 0"):
        scaled_logits(_logits(), ROWS, 0.0)
