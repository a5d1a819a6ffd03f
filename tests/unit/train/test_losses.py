"""Token losses by hand: one token for each side of each clip."""

import math

import numpy as np
import pytest
import torch

from flexfloor.train.batch import pack
from flexfloor.train.losses.grpo import MAX_LOG_RATIO, grpo_loss
from flexfloor.train.losses.sft import sft_loss
from flexfloor.train.types import Sample


def _batch(advantages, old_logprobs):
    samples = [
        Sample(
            uid="u",
            response_index=i,
            prompt_ids=np.array([1]),
            response_ids=np.array([2]),
            old_logprobs=np.array([old]),
            advantage=advantage,
        )
        for i, (advantage, old) in enumerate(zip(advantages, old_logprobs, strict=True))
    ]
    return pack(samples, "token-mean", torch.device("cpu"))


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope", "clipped"),
    [
        # inside the clip: -A * ratio, with slope -A * ratio in log pi
        (1.1, 2.0, -2.2, -2.2, 0),
        (0.9, -2.0, 1.8, 1.8, 0),
        # better than before already: the gain stops at 1 + 0.3 (high) and 1 - 0.2 (low)
        (1.5, 2.0, -2.6, 0.0, 1),
        (0.5, -2.0, 1.6, 0.0, 1),
        # worse than before: never clipped, so that it can be undone
        (0.5, 2.0, -1.0, -1.0, 0),
        (1.5, -2.0, 3.0, 3.0, 0),
    ],
)
def test_clipped_ratio_by_hand(ratio, advantage, loss, slope, clipped):
    logprobs = torch.tensor([-1.0], dtype=torch.float64, requires_grad=True)
    got = grpo_loss(logprobs, _batch([advantage], [-1.0 - math.log(ratio)]), 0.2, 0.3)
    got.loss_N.sum().backward()
    assert got.loss_N.item() == pytest.approx(loss, rel=1e-12)
    assert logprobs.grad.item() == pytest.approx(slope, rel=1e-12, abs=1e-12)
    assert got.measures["pg_clipfrac"].tolist() == [clipped]
    assert got.measures["ppo_kl"].item() == pytest.approx(-math.log(ratio), rel=1e-12)


def test_at_the_old_policy_the_ratio_is_exactly_one():
    logprobs = torch.tensor([-0.3, -7.1], dtype=torch.float32, requires_grad=True)
    got = grpo_loss(logprobs, _batch([1.5, -0.5], logprobs.detach().double().numpy()), 0.2, 0.2)
    assert got.loss_N.tolist() == [-1.5, 0.5]
    assert not any(values.any() for values in got.measures.values())


def test_far_off_policy_does_not_overflow():
    logprobs = torch.tensor([0.0], dtype=torch.float32, requires_grad=True)
    got = grpo_loss(logprobs, _batch([-1.0], [-1000.0]), 0.2, 0.2)
    got.loss_N.sum().backward()
    assert got.loss_N.item() == pytest.approx(math.exp(MAX_LOG_RATIO))
    assert logprobs.grad.isfinite().all()


def test_sft_is_negative_log_likelihood():
    logprobs = torch.tensor([-0.25, -3.0])
    assert sft_loss(logprobs, _batch([0, 0], [0, 0])).loss_N.tolist() == [0.25, 3.0]
