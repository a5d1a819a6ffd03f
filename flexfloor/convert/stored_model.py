"""The policy in a checkpoint as tensors by global name, read rows at a time; no model in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from flexfloor.convert.model_parts import ModelParts
from flexfloor.errors import CheckpointError
from flexfloor.models.config import ModelConfig
from flexfloor.models.rope_config import RopeScaling
from flexfloor.train import checkpoint_folder
from flexfloor.train.stored_weights import StoredWeights


class StoredModel:
    """A checkpoint's policy; parallel state must be there, of one rank."""

    def __init__(self, step: Path, model: ModelConfig, vocab_size: int) -> None:
        """Args:
        step: folder of one checkpoint.
        model: what it holds.
        vocab_size: of the model.
        """
        self._stored = StoredWeights(step / checkpoint_folder.WEIGHTS)
        described = ModelParts(model, vocab_size)
        self.shapes, self.learned, self._parts = described.shapes, described.learned, described.parts
        self.dtypes = {name: self._stored.dtype(parts[0].key) for name, parts in self._parts.items()}

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
