"""The optimizer's state as a checkpoint holds it: parameter by parameter, whoever holds which.

With expert parallelism upstream makes an optimizer of the experts beside that of all other parameters,
without it one of all, and by default it names a state after its optimizer. Here a state is named after its
parameter alone, and what is not a tensor is kept once, as the number of steps made.

Invariants:
- What a checkpoint holds is the same, name by name, for every number of ranks and every EP and TP size.
- Betas and decay are those of the run that goes on, not those of the run that saved.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from megatron.core.dist_checkpointing.mapping import LocalNonpersistentObject
from megatron.core.optimizer import MegatronOptimizer

_NAMED_AFTER_PARAMETERS = {
    "chained_optim_avoid_prefix": True,
    "distrib_optim_sharding_type": "fully_reshardable",
}
_SHARDED = "param_state"
"""What only the optimizer that shards its state over data-parallel ranks has in its part."""


class OptimizerState:
    """State of an optimizer in shards, split from the plain settings that upstream mixes in."""

    def __init__(self, optimizer: MegatronOptimizer, weights: dict[str, Any], *, is_loading: bool) -> None:
        """Args:
        optimizer: with at least one step behind it, or `is_loading`.
        weights: the sharded state of the model that it updates.
        is_loading: make room for a state to be loaded.
        """
        self._optimizers = _parts_of(optimizer)
        if is_loading:
            _make_room(optimizer)
        state = optimizer.sharded_state_dict(weights, is_loading, metadata=_NAMED_AFTER_PARAMETERS)
        self._states = [state] if len(self._optimizers) == 1 else [state[index] for index in sorted(state)]
        self._groups = [_inner(each).pop("param_groups") for each in self._states]
        self._steps = [_take_step(*each) for each in zip(self._states, self._groups, strict=True)]
        for each in self._states:
            each.pop(f"{_SHARDED}_sharding_type", None)

    def to_save(self) -> dict[str, Any]:
        """What a checkpoint holds; the same steps are behind all parameters."""
        assert len(set(self._steps)) == 1, self._steps
        return {"step": self._steps[0], **self.to_load()}

    def to_load(self) -> dict[str, Any]:
        """What is to be filled from a checkpoint."""
        return {"parts": dict(enumerate(self._states))}

    def load(self, found: dict[str, Any]) -> None:
        """Give the optimizer what was `found` for `to_load`, and the number of steps that came with it."""
        for index, (part, groups) in enumerate(zip(self._optimizers, self._groups, strict=True)):
            # An optimizer that the run which saved had beside these has left an empty part.
            state = found["parts"][index]
            shards = state.pop(_SHARDED, None)
            inner = _inner(state) if shards is None else state.setdefault("optimizer", {})
            inner["param_groups"] = [_unwrapped(group) for group in groups]
            _put_step(inner, found["step"], at_parameters=shards is None and _is_torch_adam(part.optimizer))
            part.load_state_dict(state)
            if shards is not None:
                with _steps_aside(part.optimizer):
                    part.load_parameter_state_from_fully_reshardable(shards)


def has_stepped(optimizer: MegatronOptimizer) -> bool:
    """Whether `optimizer` has a step behind it, and so a state."""
    return any(part.state for part in torch_optimizers(optimizer))


def forget(optimizer: MegatronOptimizer) -> None:
    """Take the state of `optimizer` back to before its first step."""
    for part in torch_optimizers(optimizer):
        part.state.clear()


@torch.no_grad()
def _make_room(optimizer: MegatronOptimizer) -> None:
    """Zeros where Torch's Adam has no state yet: upstream's sharded optimizer cannot describe one without."""
    for part in filter(_is_torch_adam, torch_optimizers(optimizer)):
        for parameter in (each for group in part.param_groups for each in group["params"]):
            if not part.state[parameter]:
                moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
                part.state[parameter] = {"step": torch.tensor(0.0), **moments}


def _parts_of(optimizer: MegatronOptimizer) -> list[MegatronOptimizer]:
    return getattr(optimizer, "chained_optimizers", [optimizer])


def torch_optimizers(optimizer: MegatronOptimizer) -> list[torch.optim.Optimizer]:
    """What `optimizer` is made of; a part without parameters on this rank has none."""
    return [part.optimizer for part in _parts_of(optimizer) if part.optimizer is not None]


def _is_torch_adam(optimizer: torch.optim.Optimizer) -> bool:
    """Whether steps are counted at each parameter; Transformer Engine's Adam counts them at each group."""
    return isinstance(optimizer, torch.optim.Adam)


def _inner(state: dict[str, Any]) -> dict[str, Any]:
    """What Torch's optimizer has in `state`: all of it, or with master weights or shards one entry of it."""
    return state.get("optimizer", state)


def _take_step(state: dict[str, Any], groups: list[dict[str, Any]]) -> int | None:
    """Steps made, which upstream has joined over the parameters or left at the groups."""
    at_groups = next((group["step"] for group in groups if "step" in group), None)
    step = _inner(state).get("state", {}).pop("common_step", at_groups)
    return None if step is None else int(step)


def _put_step(inner: dict[str, Any], step: int, *, at_parameters: bool) -> None:
    if at_parameters:
        inner["state"]["common_step"] = torch.tensor(float(step))
        return
    for group in inner["param_groups"]:
        group["step"] = step


@contextmanager
def _steps_aside(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Upstream fills each entry of a sharded state but the steps, which it has put in place as one tensor."""
    steps = {key: state.pop("step") for key, state in optimizer.state.items() if "step" in state}
    yield
    for key, step in steps.items():
        optimizer.state[key]["step"] = step.clone()


def _unwrapped(group: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.unwrap() if isinstance(value, LocalNonpersistentObject) else value
        for name, value in group.items()
    }
