"""The lengths of a rollout, predicted and real: for the run's folder, and as metrics."""

from __future__ import annotations

import numpy as np

from flexfloor.stages.rollout import Rollout
from flexfloor.track.lengths import StepLengths

QUANTILES = {"predicted_p10": 0.1, "predicted_p50": 0.5, "predicted_p90": 0.9}


def rollout_lengths(rollout: Rollout, *, limit: int) -> StepLengths:
    """How long each response became and was predicted to become, in the order of (prompt, response index).

    Args:
        limit: tokens that a response may have.
    """
    responses = [each.response for each in rollout.responses]
    prompts = {uid: index for index, uid in enumerate(dict.fromkeys(each.uid for each in responses))}
    index = np.array([prompts[each.uid] for each in responses], dtype=int)
    predicted = {
        name: rollout.beliefs.quantile(share, limit)[index].astype(float).tolist()
        for name, share in QUANTILES.items()
    }
    return StepLengths(
        uid=[response.uid for response in responses],
        response_index=[response.response_index for response in responses],
        num_tokens=[len(response.token_ids) for response in responses],
        truncated=[response.finish_reason == "length" for response in responses],
        **predicted,
    )


def prediction_metrics(lengths: StepLengths) -> dict[str, float]:
    """`schedule/coverage80`, the share of lengths within their 80 % interval, and the median's error.

    `schedule/length_error` is the mean absolute difference between the logarithms of length and median:
    0.1 is about 10 %.
    """
    real = np.array(lengths.num_tokens, dtype=float)
    low, middle, high = (np.array(getattr(lengths, name)) for name in QUANTILES)
    return {
        "schedule/coverage80": float(np.mean((low <= real) & (real <= high))),
        "schedule/length_error": float(np.mean(np.abs(np.log(real) - np.log(middle)))),
    }
