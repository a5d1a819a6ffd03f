"""The lengths of an earlier run, forced upon this one: for comparing schedules on the same work.

Invariants:
- A response gets the length that the same response of the same step had, or the run stops.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flexfloor.data.types import Prompt
from flexfloor.errors import DataError, FlexFloorError
from flexfloor.track.lengths import read_lengths

FIELD = "rollout.lengths_from"
Lengths = dict[tuple[str, int], int]
"""Tokens by (uid, response index)."""


class Replay:
    """Lengths by step.

    Args:
        path: the `lengths.jsonl` of a run's folder.

    Raises:
        DataError: it is missing, broken or empty.
    """

    def __init__(self, path: Path):
        self._path = path
        if not path.is_file():
            raise DataError(f"{FIELD}: {path} is no file; name the lengths.jsonl of a run's folder")
        try:
            self._steps = read_lengths(path)
        except FlexFloorError as error:
            raise DataError(f"{FIELD}: {error}") from error
        if not self._steps:
            raise DataError(f"{FIELD}: {path} holds no step")

    def require_steps(self, num_steps: int) -> None:
        """Raise `DataError` unless it holds the steps 1 to `num_steps`."""
        missing = next((step for step in range(1, num_steps + 1) if step not in self._steps), None)
        if missing is not None:
            raise DataError(f"{FIELD}: {self._path} has no step {missing} of trainer.total_training_steps")

    def lengths(self, step: int, prompts: Sequence[Prompt], n: int, *, limit: int) -> Lengths:
        """Of `n` responses to each of `prompts` in `step`.

        Args:
            limit: tokens that a response may have; longer ones are cut there.

        Raises:
            DataError: the earlier run had other prompts in the step, or fewer responses.
        """
        told = self._steps[step]
        columns = zip(told.uid, told.response_index, told.num_tokens, strict=True)
        found = {(uid, index): min(tokens, limit) for uid, index, tokens in columns}
        for prompt in prompts:
            if (prompt.uid, n - 1) not in found:
                raise DataError(
                    f"{FIELD}: step {step} of {self._path} has no response {n - 1} of prompt {prompt.uid}; "
                    "data, seed, batch size and rollout.n must be those of the run that wrote it"
                )
        return found
