"""The lengths of a rollout as the run's folder keeps them."""

from __future__ import annotations

from flexfloor.stages.rollout import Rollout
from flexfloor.track.lengths import StepLengths


def rollout_lengths(rollout: Rollout) -> StepLengths:
    """How long each response became, in the order of (prompt, response index), without predictions."""
    responses = [each.response for each in rollout.responses]
    return StepLengths(
        uid=[response.uid for response in responses],
        response_index=[response.response_index for response in responses],
        num_tokens=[len(response.token_ids) for response in responses],
        truncated=[response.finish_reason == "length" for response in responses],
    )
