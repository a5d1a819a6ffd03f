"""A Hugging Face folder as tensors of Megatron, read rows at a time; no rank and no model in memory."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from flexfloor.convert.model_parts import ModelParts
from flexfloor.models.hf_config import HfModel
from flexfloor.models.weights.coverage import plan_import
from flexfloor.models.weights.fusion import row_width
from flexfloor.models.weights.quantized import pair_scales
from flexfloor.models.weights.rows_reader import RowsReader
from flexfloor.models.weights.stored import DTYPES, FP8, read_index
from flexfloor.models.weights.weight_map import WeightMap


class FolderModel:
    """The weights of a whole model in a folder; a context that closes its files."""

    def __init__(self, folder: Path, found: HfModel, weight_map: WeightMap, model: ModelParts) -> None:
        """Args:
        found: what the folder's config.json says.
        model: what is to be made of it.

        Raises:
            WeightsError: naming what does not fit or cannot be read.
        """
        paired = pair_scales(read_index(folder), found.weight_block)
        self._stored = paired.tensors
        self._plan = plan_import(
            weight_map,
            model.shapes,
            paired.tensors,
            num_layers=model.num_layers,
            mtp_layers=found.mtp_layers,
            problems=paired.problems,
        )
        self._model = model
        self.skipped = self._plan.skipped
        self.reader = RowsReader()

    def dtype(self) -> str:
        """The narrowest type of a model that holds each parameter exactly; what FP8 means is rounded."""
        names = {piece.hf for name in self._model.learned for piece in self._plan.pieces[name]}
        types = {self._stored[name].dtype for name in names} - {FP8}
        if types <= {"BF16"}:
            return "bfloat16"
        return "float64" if "F64" in types else "float32"

    def place(self, name: str, row: int) -> tuple[str, int]:
        """File and offset near which a row of the tensor `name` is stored, to read in order."""
        piece = next((p for p in self._plan.pieces[name] if row < p.row + p.num_rows), None)
        if piece is None:
            return "", 0
        stored = self._stored[piece.hf]
        skipped = (piece.hf_row + max(row - piece.row, 0)) * row_width(stored.shape)
        return str(stored.file), stored.offset + skipped * DTYPES[stored.dtype].itemsize

    def rows(self, name: str, row: int, num_rows: int, dtype: torch.dtype) -> Tensor:
        """Rows of a tensor, [rows, width] in `dtype`; a vector's are its elements."""
        found = torch.zeros(num_rows, row_width(self._model.shapes[name]), dtype=dtype)
        for piece in self._plan.pieces[name]:
            first, last = max(row, piece.row), min(row + num_rows, piece.row + piece.num_rows)
            if first < last:
                stored = self._stored[piece.hf]
                self.reader.read(stored, piece.hf_row + first - piece.row, found[first - row : last - row])
        return found
