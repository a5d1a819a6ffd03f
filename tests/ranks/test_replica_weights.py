"""A model has the same weights and says the same under every TP size, also of rows that do not divide."""

import gradient_ranks as gradients
import numpy as np
import pytest
import reference_moe as reference
import torch

from flexfloor.launch import run_ranks

LENGTHS = [4, 1, 2]
NUM_TOKENS = 21
"""Of the vocabulary's rows; the last of them lie on the last rank of a replica."""


def weights_and_logits(ep_size, tp_size, name):
    """Weights by global name; [T, V] logits of sequences of `LENGTHS` and of none; with fewer tokens."""
    from flexfloor.models.forward import packed_logits
    from flexfloor.models.vocabulary import cut_logits

    ddp, _ = gradients.build(ep_size, name=name, tp_size=tp_size)
    input_ids = torch.arange(sum(LENGTHS)) % NUM_TOKENS
    position_ids = torch.cat([torch.arange(length) for length in LENGTHS])
    bounds = torch.tensor([0, *np.cumsum(LENGTHS)], dtype=torch.int32)
    with torch.no_grad():
        logits = packed_logits(ddp, input_ids, position_ids, bounds)
        none = packed_logits(ddp, input_ids[:0], position_ids[:0], bounds[:1])
        cut_logits(ddp.module, NUM_TOKENS)
        cut = packed_logits(ddp, input_ids, position_ids, bounds)
    assert torch.equal(cut, logits[:, :NUM_TOKENS])
    assert none.shape == (0, reference.VOCAB)
    return gradients.named(ddp, lambda parameter: parameter), logits.numpy()


@pytest.mark.parametrize(
    "name", ["deepseek_v3", *(pytest.param(n, marks=pytest.mark.slow) for n in ("mixtral", "qwen3_moe"))]
)
def test_weights_and_logits_are_those_of_one_rank(name):
    [(expected, logits)] = run_ranks(weights_and_logits, 1, 1, 1, name, threads_per_rank=1)
    found = {}
    for weights, of_rank in run_ranks(weights_and_logits, 2, 2, 2, name, threads_per_rank=1):
        np.testing.assert_allclose(of_rank, logits, rtol=0, atol=1e-12)
        found |= weights
    assert found.keys() == expected.keys()
    for parameter, value in expected.items():
        np.testing.assert_array_equal(found[parameter], value, err_msg=parameter)
