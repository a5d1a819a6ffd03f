"""How the losses of tokens become one number, for any split of the work.

Each mode is a sum of token losses with fixed weights over a denominator. Both depend only on the
response lengths of the whole mini-batch, so a micro-batch adds its weighted sum and the division
happens once, after all ranks have added theirs:

| mode                      | weight of a token  | denominator                           |
|---------------------------|--------------------|---------------------------------------|
| `token-mean`              | 1                  | tokens                                |
| `seq-mean-token-sum`      | 1                  | sequences                             |
| `seq-mean-token-mean`     | 1 / its sequence's | sequences                             |
| `seq-mean-token-sum-norm` | 1                  | sequences x longest response allowed  |

Invariants:
- A response without tokens counts neither as a sequence nor as anything else.
- The parts of any split of the samples have denominators that add up to the whole's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flexfloor.train.config import LOSS_AGG_MODES


def token_weights(mode: str, lengths: Sequence[int]) -> np.ndarray:
    """Return the weight of each response token, float64 [sum of lengths], sequence after sequence."""
    assert mode in LOSS_AGG_MODES, mode
    lengths_S = np.asarray(lengths, dtype=np.int64)
    if mode == "seq-mean-token-mean":
        return np.repeat(1.0 / np.maximum(lengths_S, 1), lengths_S)
    return np.ones(int(lengths_S.sum()))


def loss_denominator(mode: str, lengths: Sequence[int], max_response_length: int) -> int:
    """Return what the weighted sum over responses of these lengths is divided by; 0 if none has a token."""
    assert mode in LOSS_AGG_MODES, mode
    if mode == "token-mean":
        return int(sum(lengths))
    num_sequences = sum(length > 0 for length in lengths)
    return num_sequences * max_response_length if mode == "seq-mean-token-sum-norm" else num_sequences
