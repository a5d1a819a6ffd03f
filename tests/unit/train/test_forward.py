"""From packed samples to the loss, with a table in place of the model."""

import numpy as np
import torch

from flexfloor.train import forward
from flexfloor.train.batch import pack
from flexfloor.train.losses.grpo import grpo_loss
from flexfloor.train.types import Sample

PROMPT_ROWS = [0, 1, 4]


def _samples():
    rng = np.random.default_rng(0)
    return [
        Sample(
            uid="u",
            response_index=index,
            prompt_ids=rng.integers(0, 7, prompt),
            response_ids=rng.integers(0, 7, response),
            old_logprobs=np.full(response, -2.0),
            advantage=1.0 - 3 * index,
        )
        for index, (prompt, response) in enumerate([(3, 2), (2, 4)])
    ]


def _gradient(monkeypatch, logits_TV):
    table = logits_TV.requires_grad_()
    monkeypatch.setattr(forward, "packed_logits", lambda model, *batch: table)
    batch = pack(_samples(), "token-mean", torch.device("cpu"))
    logprobs_N, entropy_N = forward.forward_logprobs(None, batch, 0.9, entropy_gradient=True)
    loss_N = grpo_loss(logprobs_N, batch, 0.2, 0.2).loss_N - 0.1 * entropy_N
    (loss_N * batch.weights_N).sum().backward()
    return table.grad


def test_nan_at_prompt_rows_reaches_no_gradient(monkeypatch):
    clean = torch.randn(9, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    dirty = clean.clone()
    dirty[PROMPT_ROWS] = float("nan")
    gradient = _gradient(monkeypatch, clean)
    assert torch.equal(_gradient(monkeypatch, dirty), gradient)
    read = gradient.abs().sum(1) > 0
    assert read.tolist() == [row not in PROMPT_ROWS for row in range(9)]


def test_entropy_has_a_gradient_only_when_asked_for(monkeypatch):
    table = torch.randn(9, 7, requires_grad=True)
    monkeypatch.setattr(forward, "packed_logits", lambda model, *batch: table)
    batch = pack(_samples(), "token-mean", torch.device("cpu"))
    for wanted in (False, True):
        logprobs_N, entropy_N = forward.forward_logprobs(None, batch, 1.0, entropy_gradient=wanted)
        assert entropy_N.requires_grad is wanted
        assert logprobs_N.requires_grad
