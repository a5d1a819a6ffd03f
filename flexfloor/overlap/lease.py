"""This rank's part in the lease of its expert group in one step: gradients of samples, and no update.

Gradients are sums that nobody has divided yet, so that it does not matter who added which, nor when. The
weights stay as they are until all ranks have met.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch.distributed as dist

from flexfloor.elastic.ladder import Ladder
from flexfloor.elastic.placement import Placement
from flexfloor.overlap.lease_experts import LeaseExperts
from flexfloor.train.early_part import EarlyPart
from flexfloor.train.metrics import TokenSums
from flexfloor.train.packing import plan_micro_batches
from flexfloor.train.recompute import compute_logprobs
from flexfloor.train.step import TrainStep
from flexfloor.train.types import Key, Sample


class Lease:
    """Not open when it is made; it stays closed on ranks that generate to the end."""

    def __init__(self, experts: LeaseExperts, ladder: Ladder, train_step: TrainStep, *, round_tokens: int):
        """Args:
        round_tokens: rows of one of its micro-batches.
        """
        self.experts, self.ladder, self.train_step = experts, ladder, train_step
        self.round_tokens = round_tokens
        self.rung: int | None = None
        """Its ranks are the positions from here on; None = closed."""
        self.trained: set[Key] = set()
        """By all of its ranks since this one is in it."""
        self._sums = TokenSums()
        self._denominator = 0

    @property
    def group(self) -> dist.ProcessGroup:
        """Its ranks."""
        assert self.rung is not None, "no lease is open"
        return self.ladder.suffixes[self.rung]

    def open(self, rung: int, placement: Placement) -> None:
        """Begin with the positions from `rung` on; the others have sent their experts by `placement`."""
        assert self.rung is None, f"a lease from {self.rung} on is open already"
        self._enter(rung)
        self.experts.open(rung, placement)

    def grow(self, rung: int, placement: Placement) -> None:
        """Go on, or begin, with the positions from `rung` on."""
        self._enter(rung)
        self.experts.grow(rung, placement)

    def _enter(self, rung: int) -> None:
        if self.rung is None:
            self.train_step.begin()
        self.rung = rung

    def train(self, samples: Sequence[Sample]) -> None:
        """Add the gradients of these, one micro-batch a replica; all ranks of the lease call it."""
        rows, each = [sample.num_rows for sample in samples], self.ladder.replica_size
        plan = plan_micro_batches(rows, self.group.size() // each, self.round_tokens)
        mine = [[samples[index] for index in members] for members in plan[self.group.rank() // each]]
        with self.experts.computing():
            self.train_step.accumulate(mine, self._sums)
        self._denominator += sum(self.train_step.denominator(members) for members in mine)
        self.trained |= {sample.key for sample in samples}

    def compare(
        self, samples: Sequence[Sample], *, recomputes: bool, has_reference: bool
    ) -> tuple[Sample, ...]:
        """The samples with log-probabilities of the training model and of the reference, where asked for."""
        if recomputes:
            found = self._logprobs(samples)
            samples = [
                dataclasses.replace(sample, old_logprobs=logprobs)
                for sample, logprobs in zip(samples, found, strict=True)
            ]
        if has_reference:
            with self.experts.reference_in():
                found = self._logprobs(samples)
            samples = [
                dataclasses.replace(sample, ref_logprobs=logprobs)
                for sample, logprobs in zip(samples, found, strict=True)
            ]
        return tuple(samples)

    def _logprobs(self, samples: Sequence[Sample]) -> list[np.ndarray]:
        with self.experts.computing():
            return compute_logprobs(
                self.train_step.ddp,
                samples,
                self.group,
                replica_size=self.ladder.replica_size,
                micro_batch_tokens=self.round_tokens,
                temperature=self.train_step.objective.temperature,
            )

    def part(self, trained: frozenset[Key]) -> EarlyPart:
        """For the update, once all ranks have met.

        Args:
            trained: by the leases of all expert groups.
        """
        return EarlyPart(
            trained=trained,
            sums=self._sums,
            denominator=self._denominator,
            has_begun=self.rung is not None,
            settle=self.experts.settle,
        )
