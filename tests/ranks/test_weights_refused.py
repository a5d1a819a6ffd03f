"""Folders that are refused: each by a message that names file and tensor, the same on every rank."""

import json
import struct
from pathlib import Path

import fp8
import hf_models
import pytest
import torch
import weights_ranks as ranks
from safetensors.torch import load_file, save_file

from flexfloor.launch import run_ranks

MOE = "model.layers.1.block_sparse_moe.experts.3"


def changed(folder: Path, source: Path, change) -> Path:
    """A copy of `source` in one file after `change` of its tensors."""
    folder.mkdir()
    (folder / "config.json").write_text((source / "config.json").read_text())
    tensors = hf_models.tensors_in(source)
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def copied(folder: Path, source: Path) -> Path:
    folder.mkdir()
    for file in source.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def without_a_file(folder: Path, source: Path) -> Path:
    (copied(folder, source) / "model-00002-of-00003.safetensors").unlink()
    return folder


def with_a_tensor_twice(folder: Path, source: Path) -> Path:
    first, second = sorted(copied(folder, source).glob("*.safetensors"))[:2]
    name, tensor = next(iter(load_file(first).items()))
    save_file(load_file(second) | {name: tensor}, second, metadata={"format": "pt"})
    return folder


def with_an_index_of_more(folder: Path, source: Path) -> Path:
    index = copied(folder, source) / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["model.layers.0.ghost"] = "model-00001-of-00003.safetensors"
    index.write_text(json.dumps(content))
    return folder


def cut(folder: Path, source: Path) -> Path:
    file = copied(folder, source) / "model-00002-of-00003.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    return folder


def with_noise_for_a_header(folder: Path, source: Path) -> Path:
    file = copied(folder, source) / "model-00001-of-00003.safetensors"
    content = file.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    file.write_bytes(content[:8] + bytes(length) + content[8 + length :])
    return folder


def with_a_long_header(folder: Path, source: Path) -> Path:
    file = copied(folder, source) / "model-00003-of-00003.safetensors"
    file.write_bytes(struct.pack("<Q", 2**60) + file.read_bytes()[8:])
    return folder


CHANGES = {
    "missing": (
        lambda all_: (all_.pop(f"{MOE}.w2.weight"), all_.pop("model.norm.weight")),
        [f"2 missing in the files: {MOE}.w2.weight, model.norm.weight"],
    ),
    "extra": (
        lambda all_: all_.update({"model.layers.0.self_attn.q_proj.bias": torch.zeros(32)}),
        ["1 in the files and not in the model: model.layers.0.self_attn.q_proj.bias"],
    ),
    "misshapen": (
        lambda all_: all_.update({f"{MOE}.w1.weight": torch.zeros(40, 32)}),
        [f"1 of another shape: {MOE}.w1.weight is [40, 32] in model.safetensors, the model needs [48, 32]"],
    ),
    "of integers": (
        lambda all_: all_.update({"model.norm.weight": torch.zeros(32, dtype=torch.int8)}),
        ["1 of a type that is not read (F64, F32, F16, BF16, F8_E4M3 are): model.norm.weight (I8)"],
    ),
    "of a layer more": (
        lambda all_: all_.update({"model.layers.2.input_layernorm.weight": torch.zeros(32)}),
        ["1 in the files and not in the model: model.layers.2.input_layernorm.weight"],
    ),
    "untied": (lambda all_: all_.pop("lm_head.weight"), ["1 missing in the files: lm_head.weight"]),
}
IN_FP8 = {
    "with a scale gone": (
        lambda all_: all_.pop(f"{MOE}.w1.weight_scale_inv"),
        [f"1 in F8_E4M3 without scales (*_scale_inv): {MOE}.w1.weight"],
    ),
    "with a weight gone": (
        lambda all_: all_.pop(f"{MOE}.w1.weight"),
        [
            f"1 missing in the files: {MOE}.w1.weight\n",
            f"1 scales of no weight in F8_E4M3: {MOE}.w1.weight_scale_inv",
        ],
    ),
    "with scales of other blocks": (
        lambda all_: all_.update({f"{MOE}.w1.weight_scale_inv": torch.ones(1, 1)}),
        [f"16 by 16: {MOE}.w1.weight_scale_inv is [1, 1] in b.safetensors, [48, 32] needs [3, 2]"],
    ),
}
BROKEN = {
    without_a_file: ["model-00002-of-00003.safetensors is missing", "says that it holds model.layers"],
    with_a_tensor_twice: ["is in two files", "model-00001-of-00003", "model-00002-of-00003"],
    with_an_index_of_more: ["model-00001-of-00003.safetensors does not hold model.layers.0.ghost"],
    cut: ["model-00002-of-00003.safetensors is cut: model.layers."],
    with_noise_for_a_header: ["model-00001-of-00003.safetensors is corrupt: its header is no JSON"],
    with_a_long_header: ["model-00003-of-00003.safetensors is corrupt: a header of 11529215046068"],
}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = hf_models.save(hf_models.hf_model("mixtral"), tmp_path_factory.mktemp("hf") / "m", "75KB")
    assert len(list(folder.glob("*.safetensors"))) == 3
    return folder


def in_fp8(at: Path, source: Path) -> dict[Path, list[str]]:
    """Folders in FP8 and what each is refused with; the last says nothing of FP8 in its config.json."""
    stored, _ = fp8.quantized(hf_models.tensors_in(source), (16, 16))
    cases = {
        fp8.write(at / name, source, stored, (16, 16), change): words
        for name, (change, words) in IN_FP8.items()
    }
    silent = fp8.write(at / "silent", source, stored, (16, 16))
    (silent / "config.json").write_text((source / "config.json").read_text())
    return cases | {silent: [f"in F8_E4M3, and no quantization_config in config.json says how: {MOE[:13]}"]}


def test_what_does_not_fit_is_named_on_every_rank(source, tmp_path):
    cases = {changed(tmp_path / name, source, change): words for name, (change, words) in CHANGES.items()} | {
        make(tmp_path / make.__name__, source): words for make, words in BROKEN.items()
    }
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "config.json").write_text((source / "config.json").read_text())
    cases[empty] = ["has neither model.safetensors nor model.safetensors.index.json"]
    cases |= in_fp8(tmp_path, source)
    of_ranks = run_ranks(ranks.complaints, 2, 2, list(cases), threads_per_rank=1, total_timeout_seconds=200)
    assert of_ranks[0] == of_ranks[1]
    for (folder, words), complaint in zip(cases.items(), of_ranks[0], strict=True):
        assert complaint.startswith(f"WeightsError: cannot take the weights of {folder} (rank 0): "), (
            complaint
        )
        for word in words:
            assert word in complaint, complaint


def taken_where_rank_1_cannot_read(folder):
    import torch.distributed as dist

    from flexfloor.models.weights import take

    class Unreadable(take.RowsReader):
        def read(self, stored, *where):
            if dist.get_rank() == 1 and stored.name.endswith("3.w2.weight"):
                raise OSError(5, "Input/output error", str(stored.file))
            super().read(stored, *where)

    take.RowsReader = Unreadable
    return ranks.complaints(2, [folder])


def test_a_rank_that_cannot_read_ends_all(source):
    found = run_ranks(
        taken_where_rank_1_cannot_read, 2, source, threads_per_rank=1, total_timeout_seconds=200
    )
    assert found[0] == found[1] and "(rank 1): OSError" in found[0][0] and "model-0000" in found[0][0]
