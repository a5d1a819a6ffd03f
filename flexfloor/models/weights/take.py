"""Weights of a Hugging Face folder into a built model, each rank its own part.

Invariants:
- No rank holds more than its part of the model and a buffer of a few MiB.
- Nothing of the model is left as it was built; a failure on one rank ends all with its message.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core.models.gpt.gpt_model import GPTModel
from torch import Tensor

from flexfloor import heartbeat
from flexfloor.errors import WeightsError
from flexfloor.models.init import LOCAL_EXPERT, global_tensors
from flexfloor.models.weights.coverage import ImportPlan, plan_import
from flexfloor.models.weights.fusion import Piece, Shape, num_rows, row_width
from flexfloor.models.weights.quantized import Block, pair_scales
from flexfloor.models.weights.rows_reader import BUFFER_BYTES, RowsReader
from flexfloor.models.weights.share import TensorRank
from flexfloor.models.weights.stored import DTYPES, FP8, StoredTensor, read_index
from flexfloor.models.weights.weight_map import WeightMap
from flexfloor.train.shared_failure import on_every_rank

logger = logging.getLogger(__name__)


def import_weights(
    gpt: GPTModel,
    weight_map: WeightMap,
    folder: Path,
    *,
    mtp_layers: int = 0,
    weight_block: Block | None = None,
) -> None:
    """Fill `gpt`, under any tensor and expert parallelism, with the weights in `folder`, in its own type; all
    ranks call it.

    Args:
        folder: with `model.safetensors`, or its index and the files that it names.
        mtp_layers: layers of multi-token prediction that the folder has behind the others.
        weight_block: rows and columns that share a scale, where weights are in FP8.

    Raises:
        WeightsError: on every rank, naming what does not fit or cannot be read.
    """
    own, position = global_tensors(gpt), TensorRank.of(gpt)
    shapes = whole_shapes(own, gpt.config.num_moe_experts, weight_map, position)

    def settle() -> tuple[dict[str, StoredTensor], ImportPlan]:
        paired = pair_scales(read_index(folder), weight_block)
        plan = plan_import(
            weight_map,
            shapes,
            paired.tensors,
            num_layers=gpt.config.num_layers,
            mtp_layers=mtp_layers,
            problems=paired.problems,
        )
        return paired.tensors, plan

    stored, plan = _together(settle, folder)
    held = {
        name: [
            part
            for piece in plan.pieces[name]
            for part in position.share(weight_map, name).held(piece, shapes[name], position.among(name))
        ]
        for name in own
    }
    _together(lambda: _fill(own, stored, plan, held), folder)
    if dist.get_rank() == 0:
        _tell(plan, folder)


def whole_shapes(
    own: dict[str, Tensor], num_experts: int, weight_map: WeightMap, position: TensorRank
) -> dict[str, Shape]:
    """Shapes of all tensors of the model, whole, other ranks' experts included, from those of this rank."""
    shapes: dict[str, Shape] = {}
    for name, tensor in own.items():
        match = LOCAL_EXPERT.fullmatch(name)
        names = [name] if match is None else [f"{match[1]}{e}{match[3]}" for e in range(num_experts)]
        whole = position.share(weight_map, name).whole(tuple(tensor.shape))
        shapes |= dict.fromkeys(names, whole)
    return shapes


def as_rows(tensor: Tensor) -> Tensor:
    """A view [rows, width] of a contiguous tensor."""
    shape = tuple(tensor.shape)
    return tensor.detach().view(num_rows(shape), row_width(shape))


def _together(action: Callable[[], Any], folder: Path) -> Any:
    return on_every_rank(action, f"cannot take the weights of {folder}", WeightsError)


@torch.no_grad()
def _fill(
    own: dict[str, Tensor], stored: dict[str, StoredTensor], plan: ImportPlan, held: dict[str, list[Piece]]
) -> None:
    """Args:
    held: what this rank holds of each of its tensors.
    """
    pieces = [(stored[piece.hf], piece, own[name]) for name in own for piece in held[name]]
    for name in plan.padded:
        own[name].zero_()
    with RowsReader() as reader:
        if plan.tied and dist.get_rank() == 0:
            _require_equal(reader, *plan.tied)
        for source, piece, tensor in sorted(pieces, key=_by_position):
            target = as_rows(tensor)[piece.row : piece.row + piece.num_rows]
            reader.read(source, piece.hf_row, target, piece.column)
            heartbeat.beat()


def _by_position(job: tuple[StoredTensor, Piece, Tensor]) -> tuple[str, int, int]:
    source, piece, _ = job
    return str(source.file), source.offset, piece.hf_row


def _require_equal(reader: RowsReader, first: StoredTensor, second: StoredTensor) -> None:
    complaint = f"the model ties its embeddings, and in the files {first.name} differs from {second.name}"
    if (first.shape, first.dtype) != (second.shape, second.dtype):
        raise WeightsError(complaint)
    rows, width = num_rows(first.shape), row_width(first.shape)
    dtype = torch.float32 if first.dtype == FP8 else DTYPES[first.dtype]
    at_once = max(1, BUFFER_BYTES // (width * dtype.itemsize))
    for row in range(0, rows, at_once):
        both = [torch.empty(min(at_once, rows - row), width, dtype=dtype) for _ in range(2)]
        for each, of in zip(both, (first, second), strict=True):
            reader.read(of, row, each)
        if not torch.equal(*both):
            raise WeightsError(complaint)


def _tell(plan: ImportPlan, folder: Path) -> None:
    if plan.skipped:
        logger.warning(
            "%s: %d tensors of multi-token prediction are left out (%s, ...)",
            folder,
            len(plan.skipped),
            plan.skipped[0],
        )
    for name, rows in plan.padded.items():
        logger.warning("%s: the last %d rows of %s belong to no token and are zero", folder, rows, name)
