"""Which prompts the next step takes: every prompt once an epoch, in an order keyed by (seed, epoch).

A batch always has its full size: what an epoch leaves over is completed from the next one. Prompts
that such a batch already holds come later in the new epoch's order, so that no prompt is twice in a
batch (its responses would be the same ones).

Invariants:
- Every batch has `batch_size` different prompts.
- Over `k` epochs each prompt is taken exactly `k` times.
- A restored sampler continues with the batches that the saved one would have given.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flexfloor.errors import CheckpointError, ConfigError

IDENTITY = ("num_prompts", "batch_size", "shuffle", "seed", "fingerprint")
"""what a state must agree on with the sampler that continues from it"""


class PromptSampler:
    """Batches of prompt indices, endless and restorable.

    Args:
        num_prompts: prompts in the data set.
        batch_size: prompts a batch, at most `num_prompts`.
        shuffle: a new order for every epoch; else the order of the data.
        seed: what the orders depend on, 0 or more.
        fingerprint: names the data set; a state of another one is refused.

    Raises:
        ConfigError: there are fewer prompts than a batch takes.
    """

    def __init__(self, num_prompts: int, batch_size: int, *, shuffle: bool, seed: int, fingerprint: str = ""):
        if batch_size > num_prompts:
            raise ConfigError(
                f"data.train_batch_size={batch_size}, allowed: at most the number of prompts, {num_prompts}"
            )
        self.num_prompts = num_prompts
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.fingerprint = fingerprint
        self._start_epoch(epoch=0, held=[])

    def next_batch(self) -> list[int]:
        """Indices of the next `batch_size` prompts."""
        batch = self._take(self.batch_size)
        if len(batch) < self.batch_size:
            self._start_epoch(self.epoch + 1, held=batch)
            batch = batch + self._take(self.batch_size - len(batch))
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Position in the data, as plain numbers and lists."""
        identity = {name: getattr(self, name) for name in IDENTITY}
        return {**identity, "epoch": self.epoch, "position": self._position, "held": list(self._held)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`; raises `CheckpointError` if it belongs to other data or another order."""
        for name in IDENTITY:
            here, there = getattr(self, name), state[name]
            if here != there:
                raise CheckpointError(f"data position: {name} is {here}, in the checkpoint {there}")
        self._start_epoch(state["epoch"], held=list(state["held"]))
        self._position = state["position"]

    def _take(self, num_prompts: int) -> list[int]:
        taken = self._order[self._position : self._position + num_prompts]
        self._position += len(taken)
        return taken

    def _start_epoch(self, epoch: int, held: list[int]) -> None:
        """Begin `epoch`, whose first prompts complete a batch that holds the prompts `held`."""
        self.epoch = epoch
        self._position = 0
        self._held = held
        order = self._permutation(epoch)
        elsewhere = set(held)
        completing = [index for index in order if index not in elsewhere][: self.batch_size - len(held)]
        first = set(completing)
        self._order = completing + [index for index in order if index not in first]

    def _permutation(self, epoch: int) -> list[int]:
        if not self.shuffle:
            return list(range(self.num_prompts))
        return np.random.default_rng([self.seed, epoch]).permutation(self.num_prompts).tolist()
