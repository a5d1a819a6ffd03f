"""What a folder of safetensors holds: each tensor's file, type, shape and place, from headers alone.

A file begins with the length of its header, 8 bytes, and the header, JSON. A large model's folder has an
index beside its files, which names the file of each tensor.

Invariants:
- What is listed is there: each tensor in exactly one file, and all of its bytes within the file.

Source: https://huggingface.co/docs/safetensors (format).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from flexfloor.errors import WeightsError

ONE_FILE = "model.safetensors"
INDEX = "model.safetensors.index.json"
FP8 = "F8_E4M3"
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    FP8: torch.float8_e4m3fn,
}
"""Types that weights can be read from, by safetensors' name; FP8 with scales only."""
_MAX_HEADER_BYTES = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """One tensor of a folder."""

    name: str
    file: Path
    dtype: str
    """As safetensors names it, such as BF16."""
    shape: tuple[int, ...]
    offset: int
    """Bytes of the file before it."""
    num_bytes: int


def read_index(folder: Path) -> dict[str, StoredTensor]:
    """All tensors of `folder` by name, in `model.safetensors` or in the files that the index names.

    Raises:
        WeightsError: naming file and tensor, when something is missing, twice there, cut or corrupt.
    """
    index = folder / INDEX
    if not index.exists():
        if not (folder / ONE_FILE).exists():
            raise WeightsError(f"{folder} has neither {ONE_FILE} nor {INDEX}")
        return read_header(folder / ONE_FILE)
    file_of = _read_weight_map(index)
    found: dict[str, StoredTensor] = {}
    for file in sorted(set(file_of.values())):
        if not (folder / file).is_file():
            tensor = next(name for name, of in file_of.items() if of == file)
            raise WeightsError(f"{folder / file} is missing; {index} says that it holds {tensor}")
        for name, stored in read_header(folder / file).items():
            if name in found:
                raise WeightsError(f"{name} is in two files: {found[name].file} and {folder / file}")
            found[name] = stored
    for name, file in file_of.items():
        if name not in found or found[name].file != folder / file:
            raise WeightsError(f"{folder / file} does not hold {name}, as {index} says")
    return found


def read_header(file: Path) -> dict[str, StoredTensor]:
    """The tensors of one file by name.

    Raises:
        WeightsError: naming the file and, where one is concerned, the tensor.
    """
    size = file.stat().st_size
    header, begin = _header(file, size)
    found = {}
    for name, entry in header.items():
        if name != "__metadata__":
            found[name] = _stored(file, name, entry, begin)
    end = begin
    for stored in sorted(found.values(), key=lambda stored: (stored.offset, stored.num_bytes)):
        if stored.offset != end:
            raise WeightsError(f"{file} is corrupt: {stored.name} begins at byte {stored.offset}, not {end}")
        end += stored.num_bytes
        if end > size:
            raise WeightsError(f"{file} is cut: {stored.name} ends at byte {end} of {size}")
    if end != size:
        raise WeightsError(f"{file} is corrupt: its tensors end at byte {end} of {size}")
    return found


def _header(file: Path, size: int) -> tuple[dict[str, Any], int]:
    """The header, and where the data begins."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > min(size - 8, _MAX_HEADER_BYTES):
            raise WeightsError(f"{file} is corrupt: a header of {length} bytes in a file of {size}")
        try:
            header = json.loads(stream.read(length))
        except ValueError as error:  # no text, or no JSON
            raise WeightsError(f"{file} is corrupt: its header is no JSON ({error})") from error
    if not isinstance(header, dict):
        raise WeightsError(f"{file} is corrupt: its header is no mapping")
    return header, 8 + length


def _stored(file: Path, name: str, entry: Any, begin: int) -> StoredTensor:
    try:
        dtype, shape = str(entry["dtype"]), tuple(int(size) for size in entry["shape"])
        first, last = (int(offset) for offset in entry["data_offsets"])
    except (KeyError, TypeError, ValueError) as error:
        raise WeightsError(f"{file} is corrupt: {name} is described as {entry!r:.100}") from error
    held, needed = last - first, math.prod(shape) * (DTYPES[dtype].itemsize if dtype in DTYPES else 0)
    if min((*shape, first, held), default=0) < 0 or (dtype in DTYPES and held != needed):
        raise WeightsError(f"{file} is corrupt: {name}, {dtype} {list(shape)}, has {held} bytes")
    return StoredTensor(name=name, file=file, dtype=dtype, shape=shape, offset=begin + first, num_bytes=held)


def _read_weight_map(index: Path) -> dict[str, str]:
    try:
        file_of = json.loads(index.read_text())["weight_map"]
        return {str(name): str(Path(file).name) for name, file in file_of.items()}
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise WeightsError(f"{index} is corrupt: {type(error).__name__}: {error}") from error
