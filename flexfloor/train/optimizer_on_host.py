"""An optimizer's state that lies on the host except while it is needed: master weights and moments.

Tensors stay where they are known; their memory on the device is given back and taken again. They travel
beside what the device computes: away while the next rollout begins, back while gradients are summed, so that
an optimizer's step waits for what has not arrived.

Invariants:
- In `here` the state is what it was, to the bit; outside of it, it takes no memory on the device.
- A parameter that the model computes with never leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from megatron.core.optimizer import MegatronOptimizer
from torch import Tensor, nn

from flexfloor import device
from flexfloor.train.host_chunks import HostChunks
from flexfloor.train.optimizer_state import torch_optimizers


class OptimizerOnHost:
    """Of one rank."""

    def __init__(self, optimizer: MegatronOptimizer, model: nn.Module):
        """Nothing leaves before `leave`.

        Args:
            model: whose parameters `optimizer` updates.
        """
        self._optimizers = torch_optimizers(optimizer)
        self._of_model = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
        self._side, self._chunks = device.SideStream(), HostChunks()
        self._away: list[Tensor] = []
        self.num_bytes = 0
        """That left the last time."""
        for each in self._optimizers:
            each.register_step_pre_hook(lambda *_: self.ready())

    @torch.no_grad()
    def leave(self) -> None:
        """Give back the state's memory on the device; returns before it has been copied."""
        assert not self._away, "the state has left already"
        self._away = list(self._tensors())
        self.num_bytes = sum(tensor.nbytes for tensor in self._away)
        with self._side.beside(self._away):
            for here, there in self._chunks.pieces(self._away):
                there.copy_(here, non_blocking=True)
        for tensor in self._away:
            tensor.untyped_storage().resize_(0)

    @contextmanager
    def here(self) -> Iterator[None]:
        """Within the block the state is on the device, once an optimizer's step begins or after `ready`."""
        self._come()
        yield
        self.ready()
        self.leave()

    def ready(self) -> None:
        """What the device is asked for from here on finds the state."""
        self._side.catch_up()

    @torch.no_grad()
    def _come(self) -> None:
        for tensor in self._away:
            tensor.untyped_storage().resize_(tensor.nbytes)
        with self._side.beside():
            for here, there in self._chunks.pieces(self._away):
                here.copy_(there, non_blocking=True)
        self._away = []

    def _tensors(self) -> Iterator[Tensor]:
        """Those of the state that are a storage of their own; without what counts steps."""
        for optimizer in self._optimizers:
            for weight in (each for group in optimizer.param_groups for each in group["params"]):
                state = optimizer.state.get(weight, {}).values()
                moments = [each for each in state if _is_like(each, weight)]
                for each in moments:
                    _let_go_of_a_file(each)
                for tensor in (weight.detach(), *moments):
                    storage = tensor.untyped_storage()
                    is_whole = 0 < tensor.nbytes == storage.nbytes()
                    if is_whole and storage.data_ptr() not in self._of_model:
                        yield tensor


def _let_go_of_a_file(moment: Tensor) -> None:
    """What was loaded into memory that Torch cannot give back gets memory that it can."""
    if not moment.untyped_storage().resizable():
        moment.data = moment.data.clone()


def _is_like(value: object, weight: Tensor) -> bool:
    return isinstance(value, Tensor) and value.shape == weight.shape and value.device == weight.device
