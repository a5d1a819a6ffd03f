"""Of what kind a config.json says that the weights are, where they are not plain numbers."""

from __future__ import annotations

from typing import Any

from flexfloor.checks import require
from flexfloor.errors import ConfigError
from flexfloor.models.hf_file import HfFile

_SECTION = "quantization_config"
_BLOCK = "weight_block_size"
_FIXED = {"fmt": ("e4m3",), "activation_scheme": ("dynamic",), "scale_fmt": (None, "ue8m0")}
"""`scale_fmt` says that scales are powers of two, which changes nothing in reading them."""
_WITHOUT_EFFECT = ("modules_to_not_convert",)
"""What they list shows by the types in the files."""


def read_weight_block(file: HfFile) -> tuple[int, int] | None:
    """Rows and columns of the blocks that share a scale, of weights in FP8; None for plain weights.

    Raises ConfigError naming the key, its value and what is allowed.
    """
    if file.content.get(_SECTION) is None:
        return None
    section = file.inside(_SECTION)
    method = section.content.get("quant_method")
    require(method == "fp8", section.field("quant_method"), method, "'fp8', or no quantization_config at all")
    for name in sorted(section.content.keys() - {"quant_method", _BLOCK, *_FIXED, *_WITHOUT_EFFECT}):
        raise ConfigError(f"{section.field(name)} = {section.content[name]!r}: is not known for fp8")
    for name, allowed in _FIXED.items():
        section.require_fixed(name, allowed)
    block: Any = section.content.get(_BLOCK)
    fits = (
        isinstance(block, list) and len(block) == 2 and all(type(size) is int and size > 0 for size in block)
    )
    require(fits, section.field(_BLOCK), block, "two whole numbers above 0, such as [128, 128]")
    return block[0], block[1]
