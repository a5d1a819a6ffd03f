"""The frozen policy that a KL term holds the trained one near, without a second model on the device.

Its weights lie on the host. For a reference pass they change places with the policy's, piece by piece, and
afterwards change back, so host and device hold one copy each at every moment. They travel beside what the
device does: a rank brings the reference as soon as its policy has generated for the last time, and the pass
waits for what has not arrived.

Invariants:
- After the pass the policy has the weights it had before, to the bit, and the reference has its own.
- What is kept is what a checkpoint holds of a model: parameters and persistent buffers, each once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from flexfloor import device
from flexfloor.train.host_chunks import HostChunks

PIECE_BYTES = 2**25
"""That the device holds twice while policy and reference change places."""


class ReferenceWeights:
    """This rank's share of the reference policy."""

    @torch.no_grad()
    def __init__(self, model: nn.Module) -> None:
        """Keep a copy of the weights that `model` has now."""
        self._model = model
        self._side, self._chunks = device.SideStream(), HostChunks()
        self._starts: dict[int, int] = {}
        """By parameter: place of its first byte on the host."""
        self._is_here, start = False, 0
        for tensor in _weights(model):
            self._starts[id(tensor)], start = start, start + tensor.nbytes
        with self._side.beside():
            for here, there in self._chunks.pieces(_weights(model)):
                there.copy_(here, non_blocking=True)
        self._side.catch_up()

    def bring(self) -> None:
        """Let the reference come while others still generate or score; returns before it has.

        From here to the end of the next `swapped_in` nobody may use the policy.
        """
        if not self._is_here:
            self._is_here = True
            self._change_places()

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """Within the block the model is the reference; what is loaded into it there becomes the reference."""
        self.bring()
        self._side.catch_up()
        try:
            yield
        finally:
            self._is_here = False
            self._change_places()
            self._side.catch_up()

    @torch.no_grad()
    def kept(self, parameter: Tensor) -> Tensor:
        """What the reference has in place of a parameter of the model: a copy on the model's device."""
        assert not self._is_here, "the reference stands in the model"
        found = torch.empty_like(parameter, requires_grad=False)
        for here, there in self._chunks.pieces([found], start=self._starts[id(parameter)]):
            here.copy_(there, non_blocking=True)
        return found

    @torch.no_grad()
    def _change_places(self) -> None:
        with self._side.beside():
            room = torch.empty(PIECE_BYTES, dtype=torch.uint8, device=device.current_device())
            for here, there in self._chunks.pieces(_weights(self._model), most=PIECE_BYTES):
                leaving = room[: len(here)].copy_(here)
                here.copy_(there, non_blocking=True)
                there.copy_(leaving, non_blocking=True)


def _weights(model: nn.Module) -> Iterator[Tensor]:
    """Tensors that a checkpoint would hold; one that has several names comes once."""
    kept = model.state_dict(keep_vars=True).keys()
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if name in kept:
            yield tensor
