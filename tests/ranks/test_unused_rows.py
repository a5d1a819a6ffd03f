"""Rows of the vocabulary that stand for no token are never sampled, never counted and never moved."""

import dataclasses

import numpy as np
import pytest
import rollout_ranks as ranks
import torch

from flexfloor import parallel
from flexfloor.launch import run_ranks
from flexfloor.models.forward import packed_logits

TOKENS = 41


def model_of(tied, num_tokens):
    """All logits of the rows behind the tokens would be far above the others."""
    config = dataclasses.replace(ranks.model_config("float64"), tie_embeddings=tied)
    model = ranks.built(config, num_tokens=num_tokens)
    rows = model.shared_embedding_or_output_weight() if tied else model.output_layer.weight
    rows.data[TOKENS:] *= 40
    return model, rows


def sampled_and_trained(tied, path, num_tokens):
    from flexfloor.train.recompute import compute_logprobs

    model, rows = model_of(tied, num_tokens)
    found, _ = ranks.generate(model, path=path, deal="by prompt")
    group = parallel.groups().dp_cp
    trained = compute_logprobs(model, ranks.samples(found), group, micro_batch_tokens=100, temperature=1.0)
    ids = torch.arange(20)
    logits = packed_logits(model, ids, ids, torch.tensor([0, 20], dtype=torch.int32))
    logits.logsumexp(-1).sum().backward()
    moved = rows.grad.abs().sum(-1)
    tokens = np.concatenate([response.token_ids for response in found.values()])
    sampled = np.concatenate([np.array(response.logprobs) for _, response in sorted(found.items())])
    return tokens, sampled, np.concatenate(trained), logits.size(-1), moved.numpy()


@pytest.mark.parametrize(("tied", "path"), [(False, "fast"), (True, "fast"), (False, "reference")])
def test_only_tokens_are_sampled_counted_and_trained(tied, path):
    [found] = run_ranks(sampled_and_trained, 1, tied, path, TOKENS, threads_per_rank=1)
    tokens, sampled, trained, num_logits, moved = found
    assert num_logits == TOKENS and tokens.max() < TOKENS
    assert (moved[TOKENS:] == 0).all() and (moved[:TOKENS] > 0).all()
    assert len(tokens) > 100 and np.abs(sampled - trained).max() < 1e-9


def test_without_the_cut_they_would_be():
    [found] = run_ranks(sampled_and_trained, 1, False, "fast", None, threads_per_rank=1)
    assert found[0].max() >= TOKENS and found[3] == ranks.VOCAB
