"""The policy in a checkpoint as tensors by global name, read rows at a time; no rank and no model in memory.

Which part of the checkpoint a tensor is, Megatron's own description of the model says. It is asked of a model
that takes no memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from megatron.core.dist_checkpointing.mapping import ShardedTensor, ShardedTensorFactory
from torch import Tensor

from flexfloor import parallel
from flexfloor.errors import CheckpointError
from flexfloor.models.build import build_shell
from flexfloor.models.config import ModelConfig
from flexfloor.models.init import global_tensors
from flexfloor.models.rope_config import RopeScaling
from flexfloor.models.weights.fusion import Shape
from flexfloor.train import checkpoint_folder
from flexfloor.train.stored_weights import StoredWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Rows of a tensor that lie together under a key of the checkpoint."""

    key: str
    start: tuple[int, ...]
    num_rows: int
    """1 for a vector."""


class StoredModel:
    """A checkpoint's policy; parallel state must be there, of one rank."""

    def __init__(self, step: Path, model: ModelConfig, vocab_size: int) -> None:
        """Args:
        step: folder of one checkpoint.
        model: what it holds.
        vocab_size: of the model.
        """
        self._stored = StoredWeights(step / checkpoint_folder.WEIGHTS)
        with torch.device("meta"):
            gpt = build_shell(model, vocab_size=vocab_size, max_sequence_length=1, groups=parallel.groups())
        described = gpt.sharded_state_dict()
        tensors = global_tensors(gpt)
        self.shapes: dict[str, Shape] = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        self._parts = {name: _parts(described[name]) for name in tensors}
        self.dtypes = {name: self._stored.dtype(parts[0].key) for name, parts in self._parts.items()}
        self.learned = {name for name, tensor in tensors.items() if isinstance(tensor, torch.nn.Parameter)}

    def rows(self, name: str, row: int, num_rows: int) -> Tensor:
        """Rows of a tensor, [rows, width]; a vector's are its elements."""
        if len(self.shapes[name]) == 1:
            part = self._parts[name][0]
            return self._stored.read(part.key, part.start, 1).view(-1, 1)[row : row + num_rows]
        found, begin = [], 0
        for part in self._parts[name]:
            first, last = max(row, begin), min(row + num_rows, begin + part.num_rows)
            if first < last:
                start = (*part.start[:-2], part.start[-2] + first - begin, part.start[-1])
                found.append(self._stored.read(part.key, start, last - first))
            begin += part.num_rows
        return torch.cat(found)


def model_in(extra: dict[str, Any], step: Path) -> tuple[ModelConfig, int]:
    """The model that the checkpoint at `step` says it holds, and its vocabulary.

    Raises:
        CheckpointError: it says nothing of it.
    """
    if "model" not in extra:
        raise CheckpointError(f"{step} does not say which model it holds")
    fields = {name: value for name, value in extra["model"].items() if name != "vocab_size"}
    scaling = fields.pop("rope_scaling", None)
    if scaling is not None:
        fields["rope_scaling"] = RopeScaling(**scaling)
    return ModelConfig(**fields), extra["model"]["vocab_size"]


def _parts(described: ShardedTensor | ShardedTensorFactory) -> list[Part]:
    built = described.build() if isinstance(described, ShardedTensorFactory) else [described]
    return [
        Part(
            key=part.key,
            start=tuple(part.global_offset),
            num_rows=part.local_shape[0] if len(part.local_shape) > 1 else 1,
        )
        for part in built
    ]
