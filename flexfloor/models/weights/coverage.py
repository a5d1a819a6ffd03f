"""Which tensors of a folder make which tensors of the model, settled before any weight is read.

Invariants:
- Every row of every tensor of the model comes from exactly one place, or is one of a vocabulary's that belong
  to no token.
- Every tensor of the folder is used whole and once, or is known to hold nothing that the model has.
- Otherwise there is one error that names what is missing, too much or of another shape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from flexfloor.errors import WeightsError
from flexfloor.models.weights.fusion import Fusion, Piece, Place, Shape, Vocabulary, num_rows
from flexfloor.models.weights.stored import DTYPES, StoredTensor
from flexfloor.models.weights.weight_map import WeightMap

_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """How the model's tensors are filled."""

    pieces: dict[str, list[Piece]]
    """By Megatron's name."""
    padded: dict[str, int]
    """Megatron's name to rows at its end that belong to no token and become zero."""
    skipped: list[str]
    """Names of the folder that belong to layers of multi-token prediction."""
    tied: tuple[StoredTensor, StoredTensor] | None
    """Two tensors of the folder that have to be equal."""


def plan_import(
    weight_map: WeightMap,
    shapes: Mapping[str, Shape],
    stored: Mapping[str, StoredTensor],
    *,
    num_layers: int,
    mtp_layers: int = 0,
    problems: Mapping[str, list[str]] = MappingProxyType({}),
) -> ImportPlan:
    """Match a whole model with a folder.

    Args:
        shapes: of all tensors of Megatron's model, experts of other ranks included, by global name.
        stored: the folder's tensors.
        num_layers: of the model.
        mtp_layers: layers that the folder may have behind those.
        problems: what is already known to be wrong with the folder, and with which tensors.

    Raises:
        WeightsError: naming what does not fit.
    """
    pieces = {name: _pieces(weight_map, name, shape, stored) for name, shape in shapes.items()}
    needed = [piece for of_tensor in pieces.values() for piece in of_tensor]
    used = {piece.hf for piece in needed}
    tied = _tied(weight_map, stored, used)
    rest = stored.keys() - used - ({tied[0].name} if tied else set())
    last = num_layers + mtp_layers
    skipped = sorted(
        name for name in rest if num_layers <= _number(weight_map.layer_of(name), else_=-1) < last
    )
    extra = {name for name in rest - set(skipped) if not weight_map.is_ignored(name)}
    _raise_if_any(
        {
            "missing in the files": sorted(used - stored.keys()),
            "in the files and not in the model": sorted(extra),
            "of another shape": _misshapen(needed, stored),
            f"of a type that is not read ({', '.join(DTYPES)} are)": _unreadable(used, stored),
            "not used whole": _used_in_part(needed, stored),
            **problems,
        }
    )
    padded = {
        name: num_rows(shapes[name]) - sum(piece.num_rows for piece in of_tensor)
        for name, of_tensor in pieces.items()
    }
    return ImportPlan(
        pieces=pieces,
        padded={name: rows for name, rows in padded.items() if rows},
        skipped=skipped,
        tied=tied,
    )


def _pieces(
    weight_map: WeightMap, name: str, shape: Shape, stored: Mapping[str, StoredTensor]
) -> list[Piece]:
    row, place = weight_map.row_of(name)
    candidates = [_placed(fusion, shape, place, stored) for fusion in row.layouts()]
    found = next((each for each in candidates if all(piece.hf in stored for piece in each)), candidates[0])
    may_end_early = isinstance(row.hf, Vocabulary)
    at = 0
    for piece in found:
        assert piece.row == at, (name, piece, at)
        at += piece.num_rows
    assert at == num_rows(shape) or may_end_early, f"{at} of {num_rows(shape)} rows of {name} are described"
    return found


def _placed(fusion: Fusion, shape: Shape, place: Place, stored: Mapping[str, StoredTensor]) -> list[Piece]:
    if isinstance(fusion, Vocabulary) and (found := stored.get(fusion.hf)) is not None and found.shape:
        place = Place(vocab_size=found.shape[0])
    return fusion.pieces(shape, place)


def _tied(
    weight_map: WeightMap, stored: Mapping[str, StoredTensor], used: set[str]
) -> tuple[StoredTensor, StoredTensor] | None:
    if weight_map.tied is None:
        return None
    name, other = weight_map.tied
    if name in used or name not in stored or other not in stored:
        return None
    return stored[name], stored[other]


def _misshapen(needed: Iterable[Piece], stored: Mapping[str, StoredTensor]) -> list[str]:
    wanted = {piece.hf: piece.hf_shape for piece in needed if piece.hf in stored}
    return [
        f"{name} is {list(stored[name].shape)} in {stored[name].file.name}, the model needs {list(shape)}"
        for name, shape in sorted(wanted.items())
        if stored[name].shape != shape
    ]


def _unreadable(used: Iterable[str], stored: Mapping[str, StoredTensor]) -> list[str]:
    return [
        f"{name} ({stored[name].dtype})"
        for name in sorted(used)
        if name in stored and stored[name].dtype not in DTYPES
    ]


def _used_in_part(needed: Iterable[Piece], stored: Mapping[str, StoredTensor]) -> list[str]:
    """Names of which some rows are used twice or never, though their shape is right."""
    rows: Counter[str] = Counter()
    shapes = {}
    for piece in needed:
        rows[piece.hf] += piece.num_rows
        shapes[piece.hf] = piece.hf_shape
    return [
        f"{name}: {rows[name]} rows of {num_rows(shape)}"
        for name, shape in sorted(shapes.items())
        if name in stored and stored[name].shape == shape and rows[name] != num_rows(shape)
    ]


def _raise_if_any(problems: Mapping[str, list[str]]) -> None:
    lines = [
        f"{len(names)} {what}: {', '.join(names[:_SHOWN])}{', ...' if len(names) > _SHOWN else ''}"
        for what, names in problems.items()
        if names
    ]
    if lines:
        raise WeightsError("\n".join(("the files do not fit the model", *lines)))


def _number(layer: int | None, *, else_: int) -> int:
    return else_ if layer is None else layer
