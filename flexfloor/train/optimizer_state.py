"""The optimizer's state as a checkpoint holds it: parameter by parameter, whoever holds which.

With expert parallelism upstream makes an optimizer of the experts beside that of all other parameters,
without it one of all, and by default it names a state after its optimizer. Here a state is named after its
parameter alone, and what is not a tensor is kept once, as the number of steps made.

Invariants:
- What a checkpoint holds is the same, name by name, for every number of ranks and every EP size.
- Rates, betas and decay are those of the run that goes on, not those of the run that saved.
"""

from __future__ import annotations

from typing import Any

import torch
from megatron.core.dist_checkpointing.mapping import LocalNonpersistentObject
from megatron.core.optimizer import MegatronOptimizer

_NAMED_AFTER_PARAMETERS = {
    "chained_optim_avoid_prefix": True,
    "distrib_optim_sharding_type": "fully_reshardable",
}
_SHARDING_TYPE = "param_state_sharding_type"


class OptimizerState:
    """State of `optimizer` in shards, split from the plain settings that upstream mixes in."""

    def __init__(self, optimizer: MegatronOptimizer, weights: dict[str, Any], *, is_loading: bool) -> None:
        """Args:
        optimizer: with at least one step behind it, or `is_loading`.
        weights: the sharded state of the model that it updates.
        is_loading: make room for a state to be loaded.
        """
        self._optimizer = optimizer
        state = optimizer.sharded_state_dict(weights, is_loading, metadata=_NAMED_AFTER_PARAMETERS)
        self._is_single = len(getattr(optimizer, "chained_optimizers", [optimizer])) == 1
        self._parts: dict[int, dict[str, Any]] = {0: state} if self._is_single else dict(state)
        self._groups = {index: _inner(part).pop("param_groups") for index, part in self._parts.items()}
        self._steps = {index: _take_step(part, self._groups[index]) for index, part in self._parts.items()}
        for part in self._parts.values():
            part.pop(_SHARDING_TYPE, None)

    def to_save(self) -> dict[str, Any]:
        """What a checkpoint holds; the same steps are behind all parts."""
        first, *others = self._steps.values()
        assert all(other == first for other in others), self._steps
        return {"step": first, "parts": self._parts}

    def to_load(self) -> dict[str, Any]:
        """What is to be filled from a checkpoint."""
        return {"parts": self._parts}

    def load(self, found: dict[str, Any]) -> None:
        """Give the optimizer what was `found` for `to_load`, and the number of steps that came with it."""
        parts = {index: self._whole(index, part, found["step"]) for index, part in found["parts"].items()}
        self._optimizer.load_state_dict(parts[0] if self._is_single else parts)

    def _whole(self, index: int, part: dict[str, Any], step: Any) -> dict[str, Any]:
        """`part` with the settings that upstream expects in it."""
        if "param_state" in part:
            part[_SHARDING_TYPE] = _NAMED_AFTER_PARAMETERS["distrib_optim_sharding_type"]
        inner = part.setdefault("optimizer", {}) if "param_state" in part else _inner(part)
        if "state" in inner:
            inner["state"]["common_step"] = step
        inner["param_groups"] = [_unwrapped(group) for group in self._groups[index]]
        for group in inner["param_groups"]:
            if "step" in group:
                group["step"] = step
        return part


def has_stepped(optimizer: MegatronOptimizer) -> bool:
    """Whether `optimizer` has a step behind it, and so a state."""
    return any(part.state for part in _torch_optimizers(optimizer))


def forget(optimizer: MegatronOptimizer) -> None:
    """Take the state of `optimizer` back to before its first step."""
    for part in _torch_optimizers(optimizer):
        part.state.clear()


def _torch_optimizers(optimizer: MegatronOptimizer) -> list[torch.optim.Optimizer]:
    """What `optimizer` is made of; a part without parameters on this rank has none."""
    parts = getattr(optimizer, "chained_optimizers", [optimizer])
    return [part.optimizer for part in parts if part.optimizer is not None]


def _inner(part: dict[str, Any]) -> dict[str, Any]:
    """What Torch's optimizer has in `part`: all of it, or with master weights or shards one entry of it."""
    return part.get("optimizer", part)


def _take_step(part: dict[str, Any], groups: list[dict[str, Any]]) -> Any:
    """Torch counts steps at each parameter, which upstream joins; others count them at each group."""
    at_parameters = _inner(part).get("state", {}).pop("common_step", None)
    return (
        at_parameters if at_parameters is not None else next((g["step"] for g in groups if "step" in g), None)
    )


def _unwrapped(group: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.unwrap() if isinstance(value, LocalNonpersistentObject) else value
        for name, value in group.items()
    }
