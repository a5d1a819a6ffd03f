"""Folders in FP8 as DeepSeek releases them, and plainly what their numbers mean; without our own code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

LARGEST = 448.0
"""Of E4M3."""


def quantize(weight: Tensor, block: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Values and scales of a matrix, block by block."""
    tall, wide = block
    rows, columns = weight.shape
    values = torch.empty(rows, columns, dtype=torch.float8_e4m3fn)
    scales = torch.empty(-(-rows // tall), -(-columns // wide))
    for i in range(scales.size(0)):
        for j in range(scales.size(1)):
            at = slice(i * tall, (i + 1) * tall), slice(j * wide, (j + 1) * wide)
            scales[i, j] = weight[at].abs().max() / LARGEST
            values[at] = (weight[at] / scales[i, j]).to(torch.float8_e4m3fn)
    return values, scales


def meant(values: Tensor, scales: Tensor, block: tuple[int, int]) -> Tensor:
    """The matrix in float32, element by element: each times the scale of its block."""
    rows = torch.arange(values.size(0)) // block[0]
    columns = torch.arange(values.size(1)) // block[1]
    return values.float() * scales.float()[rows][:, columns]


def is_quantized(name: str) -> bool:
    """Whether DeepSeek's files have a tensor in FP8: linear layers but for router and head."""
    plain = ("norm.weight", "embed_tokens.weight", "lm_head.weight", "gate.weight")
    return name.endswith(".weight") and not name.endswith(plain)


def quantized(
    tensors: dict[str, Tensor], block: tuple[int, int]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """A folder's tensors in FP8, and what they mean."""
    stored, plain = dict(tensors), dict(tensors)
    for name, tensor in tensors.items():
        if is_quantized(name):
            values, scales = quantize(tensor, block)
            stored |= {name: values, f"{name}_scale_inv": scales}
            plain[name] = meant(values, scales, block)
    return stored, plain


def write(
    folder: Path,
    source: Path,
    tensors: dict[str, Tensor],
    block: tuple[int, int],
    change: Callable[[dict[str, Tensor]], object] = lambda _: None,
) -> Path:
    """`source` with other tensors, after `change` of them, weights before scales in two files."""
    folder.mkdir()
    tensors = dict(tensors)
    change(tensors)
    names = sorted(tensors, key=lambda name: (name.endswith("_scale_inv"), name))
    parts = {"a.safetensors": names[: len(names) * 2 // 3], "b.safetensors": names[len(names) * 2 // 3 :]}
    for file, of_file in parts.items():
        save_file({name: tensors[name].contiguous() for name in of_file}, folder / file)
    index = {"weight_map": {name: file for file, of_file in parts.items() for name in of_file}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "quant_method": "fp8",
        "weight_block_size": list(block),
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder
