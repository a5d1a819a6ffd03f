"""The frozen policy that a KL term holds the trained one near, without a second model on the device.

Its weights lie on the host. For a reference pass they change places with the policy's, tensor by
tensor, and afterwards change back, so host and device hold one copy each at every moment.

Invariants:
- After the pass the policy has the weights it had before, to the bit, and the reference has its own.
- What is kept is what a checkpoint holds of a model: parameters and persistent buffers, each once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class ReferenceWeights:
    """This rank's share of the reference policy."""

    def __init__(self, model: torch.nn.Module) -> None:
        """Keep a copy of the weights that `model` has now."""
        self._model = model
        self._names = {id(tensor): name for name, tensor in _weights(model)}
        self._host = {name: _to_host(tensor) for name, tensor in _weights(model)}

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """Within the block the model is the reference; what is loaded into it there becomes the reference."""
        self._change_places()
        try:
            yield
        finally:
            self._change_places()

    def kept(self, parameter: torch.Tensor) -> torch.Tensor:
        """What the reference has in place of a parameter of the model, on the host."""
        return self._host[self._names[id(parameter)]]

    @torch.no_grad()
    def _change_places(self) -> None:
        for name, tensor in _weights(self._model):
            leaving = _to_host(tensor)
            tensor.copy_(self._host[name])
            self._host[name] = leaving


def _to_host(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu", copy=True)


def _weights(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors that a checkpoint would hold; one that has several names comes once."""
    kept = model.state_dict(keep_vars=True).keys()
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if name in kept:
            yield name, tensor
