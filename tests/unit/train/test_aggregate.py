"""Loss aggregation against the formulas, written out over sequences."""

import numpy as np
import pytest

from flexfloor.train.losses.aggregate import loss_denominator, token_weights

LENGTHS = [3, 1, 0, 5]
MAX_RESPONSE_LENGTH = 8


def _by_hand(mode, losses):
    """Losses: a list of arrays, one a sequence; sequences without tokens do not exist."""
    present = [values for values in losses if len(values)]
    if mode == "token-mean":
        return sum(map(np.sum, present)) / sum(map(len, present))
    per_sequence = [values.mean() if mode == "seq-mean-token-mean" else values.sum() for values in present]
    mean = sum(per_sequence) / len(present)
    return mean / MAX_RESPONSE_LENGTH if mode == "seq-mean-token-sum-norm" else mean


MODES = ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]


@pytest.mark.parametrize("mode", MODES)
def test_weighted_sum_over_denominator_is_the_formula(mode):
    losses = [np.random.default_rng(length).normal(size=length) for length in LENGTHS]
    total = token_weights(mode, LENGTHS) @ np.concatenate(losses)
    got = total / loss_denominator(mode, LENGTHS, MAX_RESPONSE_LENGTH)
    assert got == pytest.approx(_by_hand(mode, losses), rel=1e-14)


@pytest.mark.parametrize("mode", MODES)
def test_parts_of_a_split_add_up(mode):
    parts = [LENGTHS[:1], [], LENGTHS[1:]]
    whole = loss_denominator(mode, LENGTHS, MAX_RESPONSE_LENGTH)
    assert sum(loss_denominator(mode, part, MAX_RESPONSE_LENGTH) for part in parts) == whole
    weights = np.concatenate([token_weights(mode, part) for part in parts])
    np.testing.assert_array_equal(weights, token_weights(mode, LENGTHS))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lengths", [[], [0], [0, 0]])
def test_nothing_to_train(mode, lengths):
    assert loss_denominator(mode, lengths, MAX_RESPONSE_LENGTH) == 0
    assert token_weights(mode, lengths).shape == (0,)
