"""The experts of a lease: where guests come from, what computes with them, and how their gradients go home.

Ranks that generate send their experts without waiting: weights do not change before all ranks have met, so
that they can be read until then. Gradients of a guest go to its owner once, when the owner joins the lease
or when all ranks have met, and are added to what the owner has itself.

Invariants:
- Each gradient arrives once at the rank that keeps its parameter.
- Outside of `computing` the model is that of training, and parallel state names its groups.
- After `settle` a rank holds no guest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn

from flexfloor import parallel
from flexfloor.elastic.hosting import HostedLayer, computing_as, hosted_layer
from flexfloor.elastic.ladder import Ladder
from flexfloor.elastic.moe_layer import moe_layers
from flexfloor.elastic.placement import Placement, home_placement
from flexfloor.elastic.transfer import Parcel, exchange, finish, start
from flexfloor.overlap.guests import Guest, gradient_dtype
from flexfloor.train.reference import ReferenceWeights


class LeaseExperts:
    """Of one rank; in each step at most one lease is opened."""

    def __init__(self, model: nn.Module, ladder: Ladder, reference: ReferenceWeights | None = None):
        """Args:
        ladder: with suffixes.
        reference: this rank's share of the reference policy; guests bring theirs.
        """
        self._layers, self._ladder, self._reference = moe_layers(model), ladder, reference
        layers = [layer.expert_weights() for layer in self._layers]
        self._own = {expert: [weights[expert] for weights in layers] for expert in layers[0]}
        self._num_ranks = ladder.size * ladder.replica_size
        self._home = home_placement(len(self._own) * self._num_ranks, self._num_ranks)
        self._is_computing = False
        self._forget()

    def _forget(self) -> None:
        self._opened: Placement | None = None
        """The placement that the lease began with."""
        self._rung: int | None = None
        """Of the lease that this rank is in."""
        self._guests: dict[int, Guest] = {}
        self._hosted: list[HostedLayer] = []
        self._sending: list[dist.Work] = []

    def lend(self, opened: Placement) -> None:
        """Send own experts to the lease that is about to be opened; returns at once.

        Until the lease has them, which is before all ranks meet, weights and reference stay as they are here.
        """
        self._opened = opened
        parcels = [
            (opened.hosts_of[expert][0], tensor)
            for expert in sorted(self._own)
            if opened.hosts_of[expert] != self._home.hosts_of[expert]
            for tensor in self._leaving(expert)
        ]
        self._sending = start(parcels, [], self._home_group)

    def open(self, rung: int, opened: Placement) -> None:
        """Take the guests that `opened` gives this rank, and compute with the positions from `rung` on."""
        self._opened = opened
        like, has_reference = next(iter(self._own.values())), self._reference is not None
        here = opened.hosted_by(self._home_group.rank())
        self._guests = {
            expert: Guest(like, has_reference=has_reference) for expert in here if expert not in self._own
        }
        receiving = [
            (self._owner(expert), tensor)
            for expert, guest in sorted(self._guests.items())
            for tensor in guest.arriving()
        ]
        exchange([], receiving, self._home_group)
        self._compute_as(rung, opened)

    def grow(self, rung: int, placement: Placement) -> None:
        """Compute with the positions from `rung` on; guests that `placement` has at home go there."""
        first = self._first_rank(rung)
        leaving = [expert for expert in self._guests if self._owner(expert) >= first]
        coming = self._lent() if self._rung is None else []
        self._bring_home(leaving, coming, self._ladder.suffixes[rung], first=first)
        self._compute_as(rung, placement)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """In the block the model computes and takes gradients as the lease does."""
        assert self._rung is not None, "this rank is in no lease"
        group = self._ladder.suffixes[self._rung]
        parallel.enter_expert_group(group)
        self._is_computing = True
        try:
            with computing_as(self._hosted):
                yield
        finally:
            self._is_computing = False
            parallel.leave_expert_group(group)

    @contextmanager
    def reference_in(self) -> Iterator[None]:
        """In the block the model is the reference, guests included; `computing` comes inside of it."""
        assert self._reference is not None, "this run keeps no reference"
        # Then the layers hold modules that do not name their parameters, and own experts would stay behind.
        assert not self._is_computing, "the model computes as a lease"
        with self._reference.swapped_in():
            self._guests_change_places()
            try:
                yield
            finally:
                self._guests_change_places()

    def arrived(self) -> None:
        """Once all ranks have met: weights may change, since what was lent has been read."""
        finish(self._sending)
        self._sending = []

    def settle(self) -> None:
        """Bring the gradients of all guests home; all ranks of the group call it when they have met."""
        self.arrived()
        if self._opened is not None:
            coming = self._lent() if self._rung is None else []
            self._bring_home(list(self._guests), coming, self._home_group, first=0)
        self._forget()

    @property
    def _home_group(self) -> dist.ProcessGroup:
        return self._ladder.groups[self._ladder.size]

    def _first_rank(self, rung: int) -> int:
        return rung * self._ladder.replica_size

    def _owner(self, expert: int) -> int:
        return self._home.hosts_of[expert][0]

    def _leaving(self, expert: int) -> list[Tensor]:
        """What a host gets of an expert that this rank owns."""
        weights = self._flat_own(expert)
        sent = [weight.detach() for weight in weights]
        if self._reference is not None:
            sent += [self._reference.kept(weight) for weight in weights]
        return sent

    def _lent(self) -> list[int]:
        """Own experts that another rank hosts in the lease."""
        assert self._opened is not None
        return [
            expert for expert in self._own if self._opened.hosts_of[expert] != self._home.hosts_of[expert]
        ]

    def _compute_as(self, rung: int, placement: Placement) -> None:
        self._rung = rung
        ranks = range(self._first_rank(rung), self._num_ranks)
        hosted = [placement.hosted_by(rank) for rank in ranks]
        self._hosted = [
            hosted_layer(
                layer,
                hosted,
                {expert: guest.weights[index] for expert, guest in self._guests.items()},
                self._ladder.suffixes[rung],
            )
            for index, layer in enumerate(self._layers)
        ]

    def _bring_home(
        self, leaving: Iterable[int], coming: Iterable[int], group: dist.ProcessGroup, *, first: int
    ) -> None:
        """Send gradients of guests to their owners and add what arrives for own experts.

        Args:
            group: of the home group's ranks from `first` on.
        """
        assert self._opened is not None
        sending: list[Parcel] = [
            (self._owner(expert) - first, tensor)
            for expert in sorted(leaving)
            for tensor in self._guests.pop(expert).flat_gradients()
        ]
        arriving = {
            expert: [
                torch.empty_like(weight, dtype=gradient_dtype(weight), requires_grad=False)
                for weight in self._flat_own(expert)
            ]
            for expert in sorted(coming)
        }
        receiving = [
            (self._opened.hosts_of[expert][0] - first, tensor)
            for expert, tensors in arriving.items()
            for tensor in tensors
        ]
        exchange(sending, receiving, group)
        for expert, tensors in arriving.items():
            for weight, gradient in zip(self._flat_own(expert), tensors, strict=True):
                weight.main_grad.add_(gradient)  # type: ignore[attr-defined]

    def _flat_own(self, expert: int) -> list[Tensor]:
        return [weight for each in self._own[expert] for weight in each]

    def _guests_change_places(self) -> None:
        for guest in self._guests.values():
            guest.change_places()
