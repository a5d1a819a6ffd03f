"""Rows of weights in FP8, wherever a slice cuts their blocks, and scales that do not belong."""

from pathlib import Path

import fp8
import pytest
import torch
from safetensors.torch import save_file

from flexfloor.models.weights import rows_reader
from flexfloor.models.weights.quantized import QuantizedTensor, pair_scales
from flexfloor.models.weights.rows_reader import RowsReader
from flexfloor.models.weights.stored import read_header

BLOCK = (4, 3)


def written(folder: Path, tensors):
    save_file(tensors, folder / "f.safetensors")
    return read_header(folder / "f.safetensors")


@pytest.fixture
def weight(tmp_path):
    """A stored weight [10, 7] in blocks of 4 by 3, and what it means."""
    torch.manual_seed(0)
    values, scales = fp8.quantize(torch.randn(10, 7) * torch.logspace(-2, 2, 10)[:, None], BLOCK)
    assert scales.shape == (3, 3) and scales.unique().numel() == 9
    stored = written(tmp_path, {"w": values, "w_scale_inv": scales, "other": torch.zeros(3)})
    paired = pair_scales(stored, BLOCK)
    assert not any(paired.problems.values())
    return paired.tensors["w"], fp8.meant(values, scales, BLOCK)


def read(stored, first, count, dtype=torch.float32):
    with RowsReader() as reader:
        target = torch.full((count, stored.shape[-1]), float("nan"), dtype=dtype)
        reader.read(stored, first, target)
    return target


@pytest.mark.parametrize("buffer_bytes", [2**20, 2 * 7 * 4])
def test_every_slice_has_the_scales_of_its_blocks(weight, buffer_bytes, monkeypatch):
    stored, plain = weight
    monkeypatch.setattr(rows_reader, "BUFFER_BYTES", buffer_bytes)
    for first in range(10):
        for last in range(first, 11):
            assert torch.equal(read(stored, first, last - first), plain[first:last]), (first, last)


@pytest.mark.parametrize("page_bytes", [1, 4096])
def test_columns_of_rows_have_the_scales_of_their_blocks(page_bytes, weight, monkeypatch):
    stored, plain = weight
    monkeypatch.setattr(rows_reader, "PAGE_BYTES", page_bytes)
    for first in range(7):
        for last in range(first + 1, 8):
            target = torch.full((5, last - first), float("nan"))
            with RowsReader() as reader:
                reader.read(stored, 2, target, first)
            assert torch.equal(target, plain[2:7, first:last]), (first, last)


def test_the_product_is_rounded_to_the_models_type_once_it_is_taken(weight):
    stored, plain = weight
    assert torch.equal(read(stored, 3, 6, torch.bfloat16), plain[3:9].bfloat16())
    assert torch.equal(read(stored, 3, 6, torch.float64), plain[3:9].double())


def test_two_values_by_hand(tmp_path):
    values = torch.tensor([[1.5, -448.0], [0.001953125, 2.0]]).to(torch.float8_e4m3fn)
    stored = written(tmp_path, {"w": values, "w_scale_inv": torch.tensor([[2.0, 0.5]])})
    found = read(pair_scales(stored, (2, 1)).tensors["w"], 0, 2)
    assert found.tolist() == [[3.0, -224.0], [0.00390625, 1.0]]


def test_blocks_of_fused_experts_begin_anew_with_each(tmp_path):
    pairs = [fp8.quantize(torch.randn(6, 5) * (1 + expert), BLOCK) for expert in range(3)]
    values, scales = (torch.stack(parts) for parts in zip(*pairs, strict=True))
    stored = written(tmp_path, {"all": values, "all_scale_inv": scales.bfloat16()})
    plain = torch.cat([fp8.meant(v, s.bfloat16(), BLOCK) for v, s in pairs])
    tensor = pair_scales(stored, BLOCK).tensors["all"]
    for first, last in ((0, 18), (6, 12), (5, 13), (11, 12)):
        assert torch.equal(read(tensor, first, last - first), plain[first:last])


def test_what_cannot_be_dequantised_is_named(tmp_path):
    values = torch.zeros(8, 6, dtype=torch.float8_e4m3fn)
    tensors = {
        "fine": values,
        "fine_scale_inv": torch.ones(2, 2),
        "bare": values.clone(),
        "plain": torch.zeros(8, 6),
        "plain_scale_inv": torch.ones(2, 2),
        "gone_scale_inv": torch.ones(2, 2),
        "large": values.clone(),
        "large_scale_inv": torch.ones(3, 2),
        "whole": values.clone(),
        "whole_scale_inv": torch.ones(2, 2, dtype=torch.int32),
        "row": torch.zeros(8, dtype=torch.float8_e4m3fn),
        "row_scale_inv": torch.ones(2),
    }
    paired = pair_scales(written(tmp_path, tensors), BLOCK)
    assert paired.problems == {
        "in F8_E4M3 without scales (*_scale_inv)": ["bare"],
        "scales of no weight in F8_E4M3": ["gone_scale_inv", "plain_scale_inv"],
        "scales that do not fit blocks of 4 by 3": [
            "large_scale_inv is [3, 2] in f.safetensors, [8, 6] needs [2, 2]",
            "row is [8], no matrix",
            "whole_scale_inv is I32 in f.safetensors, not F32 or BF16",
        ],
    }
    assert isinstance(paired.tensors["fine"], QuantizedTensor)
    assert not [name for name in paired.tensors if name.endswith("_scale_inv")]


def test_a_folder_that_says_nothing_of_fp8_may_hold_none(tmp_path):
    stored = written(tmp_path, {"w": torch.zeros(8, 6, dtype=torch.float8_e4m3fn), "v": torch.zeros(2)})
    [(what, names)] = pair_scales(stored, None).problems.items()
    assert names == ["w"] and "no quantization_config in config.json says how" in what
