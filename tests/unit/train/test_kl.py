"""KL estimates by hand, and what they and their gradients are on average, by enumerating a vocabulary."""

import math

import pytest
import torch

from flexfloor.train.losses.kl import MAX_LOG_RATIO, kl_estimate


def _estimate(kind, logprob, ref_logprob):
    """(value, slope in log pi) at one token."""
    logprobs = torch.tensor([logprob], dtype=torch.float64, requires_grad=True)
    got = kl_estimate(logprobs, torch.tensor([ref_logprob], dtype=torch.float64), kind)
    got.sum().backward()
    return got.item(), logprobs.grad.item()


@pytest.mark.parametrize(
    ("kind", "pi", "ref", "value", "slope"),
    [
        # pi_ref / pi = 1/2: log r = -log 2
        ("k1", 0.5, 0.25, math.log(2), 1.0),
        ("k2", 0.5, 0.25, math.log(2) ** 2 / 2, math.log(2)),
        ("k3", 0.5, 0.25, 0.5 - 1 + math.log(2), 0.5),
        # pi_ref / pi = 2
        ("k1", 0.25, 0.5, -math.log(2), 1.0),
        ("k2", 0.25, 0.5, math.log(2) ** 2 / 2, -math.log(2)),
        ("k3", 0.25, 0.5, 1 - math.log(2), -1.0),
        # the same policy
        ("k1", 0.3, 0.3, 0.0, 1.0),
        ("k2", 0.3, 0.3, 0.0, 0.0),
        ("k3", 0.3, 0.3, 0.0, 0.0),
    ],
)
def test_value_and_slope_by_hand(kind, pi, ref, value, slope):
    got = _estimate(kind, math.log(pi), math.log(ref))
    assert got == pytest.approx((value, slope), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize(("theirs", "ours"), [("kl", "k1"), ("mse", "k2"), ("low_var_kl", "k3")])
def test_verls_names(theirs, ours):
    assert _estimate(theirs, -1.0, -2.5) == _estimate(ours, -1.0, -2.5)


def test_far_from_the_reference_k3_still_pulls_and_does_not_overflow():
    # pi_ref all but forbids the token: log r = -40, and all of the slope 1 - r is there
    assert _estimate("k3", -0.5, -40.5) == pytest.approx((39.0, 1.0))
    value, slope = _estimate("k3", -1000.0, -1.0)
    assert value == pytest.approx(math.exp(MAX_LOG_RATIO) - 1 - MAX_LOG_RATIO) and slope == 0


def _policies():
    """Logits of pi with gradient, and log pi_ref, over five tokens."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(5, dtype=torch.float64, generator=generator).requires_grad_()
    return logits, torch.randn(5, dtype=torch.float64, generator=generator).log_softmax(0)


def _slope(value, logits):
    return torch.autograd.grad(value, logits, retain_graph=True)[0]


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_k1_and_k3_are_the_kl_on_average(kind):
    logits, ref = _policies()
    logprobs = logits.log_softmax(0)
    kl = torch.nn.functional.kl_div(ref, logprobs, log_target=True, reduction="sum")
    mean = (logprobs.exp() * kl_estimate(logprobs, ref, kind)).sum()
    assert kl > 0.1 and mean.item() == pytest.approx(kl.item(), rel=1e-12)


def test_on_average_k1_does_not_pull_k2_pulls_by_the_kl_and_k3_by_the_reversed_one():
    logits, ref = _policies()
    logprobs = logits.log_softmax(0)
    weights = logprobs.exp().detach()  # tokens are drawn, and what draws them has no gradient
    pull = {
        kind: _slope((weights * kl_estimate(logprobs, ref, kind)).sum(), logits)
        for kind in ("k1", "k2", "k3")
    }
    kl = _slope((logprobs.exp() * (logprobs - ref)).sum(), logits)
    reversed_kl = _slope((ref.exp() * (ref - logprobs)).sum(), logits)
    torch.testing.assert_close(pull["k1"], torch.zeros_like(kl), atol=1e-14, rtol=0)
    torch.testing.assert_close(pull["k2"], kl, atol=1e-14, rtol=1e-12)
    torch.testing.assert_close(pull["k3"], reversed_kl, atol=1e-14, rtol=1e-12)


def test_the_reference_gets_no_gradient():
    ref = torch.tensor([-1.0], requires_grad=True)
    kl_estimate(torch.tensor([-2.0], requires_grad=True), ref, "k3").sum().backward()
    assert ref.grad is None
