"""The page "why the update is the same" of docs/overlap.md, line by line, on a model of two experts."""

import numpy as np
import pytest
import torch

from flexfloor.train.losses.aggregate import loss_denominator, token_weights

MODES = ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
LENGTHS, MOST, WIDTH = [5, 1, 7, 3, 2, 6], 8, 4
EARLY, REST = [1, 3, 4], [0, 2, 5]
"""What was trained early, and what was not."""
EVERY = range(len(LENGTHS))


@pytest.fixture
def world():
    """Rows of each sample, the expert that each row chose, and theta: a dense matrix and two experts."""
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    rows = [drawn(length, WIDTH) for length in LENGTHS]
    chosen = [torch.randint(2, (length,), generator=generator) for length in LENGTHS]
    theta = {name: drawn(WIDTH, WIDTH).requires_grad_() for name in ("dense", "expert 0", "expert 1")}
    return rows, chosen, theta


def token_losses(rows, chosen, theta):
    """l_{s,t} of one sample: [length]."""
    hidden = rows @ theta["dense"]
    out = torch.stack([h @ theta[f"expert {int(e)}"] for h, e in zip(hidden, chosen, strict=True)])
    return (hidden * out.tanh()).sum(1)


def g(samples, mode, world):
    """Line 2: the sum over samples of g_s, by parameter."""
    rows, chosen, theta = world
    total = sum(
        (torch.from_numpy(token_weights(mode, [LENGTHS[s]])) * token_losses(rows[s], chosen[s], theta)).sum()
        for s in samples
    )
    # A sample of one row leaves one of the experts out.
    found = torch.autograd.grad(total, list(theta.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(theta, found, strict=True))


def close(found, wanted):
    for name, gradient in wanted.items():
        np.testing.assert_allclose(found[name], gradient, rtol=0, atol=1e-12, err_msg=name)


def plain_gradient(mode, world):
    """Line 1: of the loss of the whole mini-batch, written out without weights."""
    rows, chosen, theta = world
    losses = [token_losses(rows[s], chosen[s], theta) for s in EVERY]
    by_hand = {
        "token-mean": torch.cat(losses).mean(),
        "seq-mean-token-sum": torch.stack([each.sum() for each in losses]).mean(),
        "seq-mean-token-mean": torch.stack([each.mean() for each in losses]).mean(),
        "seq-mean-token-sum-norm": torch.stack([each.sum() for each in losses]).mean() / MOST,
    }
    return dict(zip(theta, torch.autograd.grad(by_hand[mode], list(theta.values())), strict=True))


@pytest.mark.parametrize("mode", MODES)
def test_lines_1_2_and_7_the_gradient_is_a_sum_over_samples_divided_once(mode, world):
    divisor = loss_denominator(mode, LENGTHS, MOST)
    close({name: each / divisor for name, each in g(EVERY, mode, world).items()}, plain_gradient(mode, world))


@pytest.mark.parametrize("mode", MODES)
def test_lines_2_and_6_early_and_rest_add_up_on_whichever_ranks(mode, world):
    early, rest = g(EARLY, mode, world), g(REST, mode, world)
    divisor = loss_denominator(mode, LENGTHS, MOST)
    close({n: (early[n] + rest[n]) / divisor for n in early}, plain_gradient(mode, world))
    # On two ranks of a lease and three of the join.
    parts = [g(samples, mode, world) for samples in ([1], [3, 4], [0], [2], [5])]
    close({n: sum(part[n] for part in parts) / divisor for n in early}, plain_gradient(mode, world))


@pytest.mark.parametrize("mode", MODES)
def test_line_7_dividing_each_part_by_its_own_number_is_another_gradient(mode, world):
    wanted = plain_gradient(mode, world)
    of_each = [
        {
            n: each / loss_denominator(mode, [LENGTHS[s] for s in part], MOST)
            for n, each in g(part, mode, world).items()
        }
        for part in ([1, 3], [0, 2, 4, 5])
    ]
    wrong = {n: (of_each[0][n] + of_each[1][n]) / 2 for n in wanted}
    assert max(float((wrong[n] - wanted[n]).abs().max()) for n in wanted) > 1e-3


def test_line_3_after_a_step_a_sample_has_another_gradient(world):
    rows, chosen, theta = world
    before = g([0], "token-mean", world)
    moved = {name: (weight - 0.1 * before[name]).detach().requires_grad_() for name, weight in theta.items()}
    after = g([0], "token-mean", (rows, chosen, moved))
    assert max(float((after[n] - before[n]).abs().max()) for n in before) > 1e-3


def test_line_5_an_experts_gradient_is_the_sum_of_its_hosts(world):
    """Owner and guest hold the same numbers; each computes other rows that chose the expert."""
    rows, chosen, theta = world
    guest = theta["expert 1"].detach().clone().requires_grad_()
    whole = g(EVERY, "token-mean", world)
    early = g(EARLY, "token-mean", (rows, chosen, theta | {"expert 1": guest}))
    rest = g(REST, "token-mean", world)
    assert float(early["expert 1"].abs().max()) > 0 and float(rest["expert 1"].abs().max()) > 0
    close({"expert 1": early["expert 1"] + rest["expert 1"]}, {"expert 1": whole["expert 1"]})
