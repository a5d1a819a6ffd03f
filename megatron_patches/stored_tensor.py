"""Where in a file of `torch.save` the bytes of a tensor lie, and how, without unpacking it.

Such a file is a zip archive, uncompressed: `data.pkl` describes the tensor, `data/0` holds its bytes.
`torch.load` of it to the meta device tells as much in several times the time.

Invariants:
- Of what the file names nothing is imported or called but the parts of a plain tensor.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections import OrderedDict
from typing import IO, Any

import torch
from torch.storage import _storage_type_to_dtype_map

_DTYPES = _storage_type_to_dtype_map()
"""By the name of the kind of storage, as "FloatStorage"."""


def stored_tensor(file: IO[bytes]) -> tuple[torch.Tensor, int] | None:
    """The tensor that `file` holds, and where in it the first byte of its storage lies.

    Args:
        file: all of a file of `torch.save`, readable anywhere.

    Returns:
        A tensor of the meta device; None when the file holds anything but one plain tensor of this host's
        byte order.
    """
    archive: Any = torch._C.PyTorchFileReader(file)
    if archive.has_record("byteorder") and archive.get_record("byteorder").decode() != sys.byteorder:
        return None
    description = _Description(io.BytesIO(archive.get_record("data.pkl")))
    try:
        tensor = description.load()
    except pickle.UnpicklingError:
        return None
    is_plain = isinstance(tensor, torch.Tensor) and len(description.keys) == 1
    return (tensor, archive.get_record_offset(f"data/{description.keys[0]}")) if is_plain else None


class _Description(pickle.Unpickler):
    """`data.pkl`, in which a storage stands as its kind, key, device and number of elements."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file)
        self.keys: list[str] = []

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in _DTYPES:
            return _DTYPES[name]
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _laid_out
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a plain tensor")

    def persistent_load(self, saved: Any) -> torch.Tensor:
        _, dtype, key, _, num_elements = saved
        self.keys.append(key)
        return torch.empty(num_elements, dtype=dtype, device="meta")


def _laid_out(
    storage: torch.Tensor, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any
) -> torch.Tensor:
    return storage.as_strided(size, stride, offset)
