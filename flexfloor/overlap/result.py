"""What leases did in a rollout, told to all ranks when they meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from flexfloor.train.types import Key, Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyResult:
    """What leases did before all ranks met."""

    trained: frozenset[Key] = frozenset()
    """(uid, response index) of what they trained."""
    compared: dict[Key, Sample] = field(default_factory=dict)
    """What they compared, with the log-probabilities that they found."""

    @classmethod
    def of_all(cls, results: Sequence[EarlyResult]) -> EarlyResult:
        """Of the results of all ranks."""
        return cls(
            trained=frozenset[Key]().union(*(each.trained for each in results)),
            compared={key: sample for each in results for key, sample in each.compared.items()},
        )

    def logprobs(self, name: str) -> dict[Key, np.ndarray]:
        """The field `name` of the samples that were compared: float64 [R] each, nats."""
        return {key: getattr(sample, name) for key, sample in self.compared.items()}

    def trained_fraction(self, samples: Sequence[Sample]) -> float:
        """Of the response tokens of `samples`, the share that was trained; 0 of none."""
        tokens = {each.key: len(each.response_ids) for each in samples}
        return sum(tokens[key] for key in self.trained) / max(1, sum(tokens.values()))
