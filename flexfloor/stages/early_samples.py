"""What of a step may be trained before its rollout has ended, and how scored responses become samples.

Invariants:
- Only prompts of the first mini-batch are trained early: later ones need weights that are not there yet.
- A prompt belongs to one expert group, wherever its responses are generated.
- A sample is the one that the step would make of its response after the rollout.
"""

from __future__ import annotations

from collections.abc import Sequence

from flexfloor.config import Config
from flexfloor.data.types import Prompt
from flexfloor.overlap.events import Scored
from flexfloor.stages.advantages import set_advantages, take_off_kl
from flexfloor.stages.samples import new_sample
from flexfloor.train.advantage import filter_groups
from flexfloor.train.types import Sample


class EarlySamples:
    """Of one step and one expert group."""

    def __init__(self, config: Config, prompts: Sequence[Prompt], *, ep_index: int, num_ep_groups: int):
        self._config = config
        first = prompts[: config.actor.ppo_mini_batch_size]
        self._prompts = {prompt.uid: prompt for prompt in first[ep_index::num_ep_groups]}
        self.recomputes = config.actor.old_logprobs == "recompute"
        self.has_reference = config.actor.use_kl_loss or config.algorithm.use_kl_in_reward

    @property
    def uids(self) -> list[str]:
        """Prompts whose responses may be trained early here."""
        return list(self._prompts)

    @property
    def compares(self) -> bool:
        """Whether samples need log-probabilities besides the sampler's."""
        return self.recomputes or self.has_reference

    def of_group(self, responses: Sequence[Scored]) -> list[Sample]:
        """What is trained of a prompt's responses; without advantages yet where they are still compared."""
        scores, uids = [each.score for each in responses], [each.uid for each in responses]
        if self._config.algorithm.filter_groups and not filter_groups(scores, uids).any():
            return []
        samples = [self._sample(each) for each in responses]
        return samples if self.compares else set_advantages(samples, self._config.algorithm)

    def with_advantages(self, compared: Sequence[Sample]) -> list[Sample]:
        """Samples of whole groups that have been compared, ready to be trained."""
        if self._config.algorithm.use_kl_in_reward:
            compared = take_off_kl(compared, self._config.algorithm.kl_coef)
        return set_advantages(compared, self._config.algorithm)

    def _sample(self, each: Scored) -> Sample:
        return new_sample(
            self._prompts[each.uid], each.response_index, each.token_ids, each.logprobs, reward=each.score
        )
