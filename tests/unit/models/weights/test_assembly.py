"""What is written of a model, and into which files; and that safetensors' own reader reads it."""

import pytest
import torch
from safetensors import safe_open

from flexfloor.errors import ConfigError
from flexfloor.models.weights import hf_folder, shard_file
from flexfloor.models.weights.assembly import assemble, shard
from flexfloor.models.weights.fusion import OfExperts, Plain, Stacked, Vocabulary
from flexfloor.models.weights.rows_reader import RowsReader
from flexfloor.models.weights.stored import read_header, read_index
from flexfloor.models.weights.weight_map import Row, WeightMap

MAP = WeightMap(
    rows=(
        Row(megatron="embed", hf=Vocabulary("tokens")),
        Row(megatron="bias", hf=Plain("bias")),
        Row(megatron="e.{expert}", hf=Stacked(("g{expert}", "u{expert}")), fused=OfExperts("all", 3)),
    )
)
TENSORS = {
    "embed": torch.arange(20.0).view(5, 4),
    "bias": torch.tensor([0.25, -1.5, 3.0]),
    **{f"e.{e}": torch.arange(24.0).view(6, 4) + 100 * e for e in (2, 0, 1)},
}


def assembled(dtype=torch.float32, **options):
    shapes = {name: tuple(tensor.shape) for name, tensor in TENSORS.items()}
    dtypes = dict.fromkeys(TENSORS, dtype) | {"bias": torch.float32}
    return assemble(MAP, shapes, dtypes, vocab_size=3, **options)


def rows_of(name, row, num_rows):
    return TENSORS[name].view(-1, TENSORS[name].size(-1) if TENSORS[name].dim() > 1 else 1)[
        row : row + num_rows
    ]


def read(folder):
    found = {}
    for file in folder.glob("*.safetensors"):
        with safe_open(file, "pt") as opened:
            found |= {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  no mapping
    return found


def written(folder, shards):
    partial = hf_folder.begin(folder)
    for each in shards:
        shard_file.write_shard(partial, each, shard_file.chunks_of(each, rows_of))
    hf_folder.finish(folder, shards)
    return read(folder)


@pytest.mark.parametrize("chunk_bytes", [1, 40, 2**20])
def test_safetensors_reads_what_is_written(chunk_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr(shard_file, "CHUNK_BYTES", chunk_bytes)
    found = written(tmp_path / "out", shard(assembled(), lambda _: 0))
    assert found.keys() == {"tokens", "bias", "g0", "g1", "g2", "u0", "u1", "u2"}
    assert torch.equal(found["tokens"], TENSORS["embed"][:3])
    assert torch.equal(found["bias"], TENSORS["bias"])
    assert torch.equal(found["u2"], TENSORS["e.2"][3:])
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["model.safetensors"]


def test_experts_are_fused_in_order_and_converted(tmp_path):
    found = written(tmp_path / "out", shard(assembled(torch.bfloat16, fused_experts=True), lambda _: 0))
    assert found["all"].shape == (3, 6, 4) and found["all"].dtype is torch.bfloat16
    assert torch.equal(found["all"], torch.stack([TENSORS[f"e.{e}"] for e in range(3)]).bfloat16())
    assert found["bias"].dtype is torch.float32


def test_files_have_one_owner_and_a_size_and_an_index_that_our_reader_takes(tmp_path):
    # 48 bytes each for tokens and halves of experts, 12 for the bias
    shards = shard(assembled(), lambda tensor: len(tensor.name) % 2, max_bytes=100)
    assert [(each.owner, [t.name for t in each.tensors]) for each in shards] == [
        (0, ["tokens", "bias"]),
        (0, ["g2", "u2"]),
        (0, ["g0", "u0"]),
        (0, ["g1", "u1"]),
    ]
    shards = shard(assembled(), lambda tensor: int(tensor.name[0] == "u"), max_bytes=100)
    assert {each.owner: [t.name for t in each.tensors] for each in shards}[1] == ["u1"]
    assert all(each.num_bytes <= 100 for each in shards)
    assert shards[0].file == "model-00001-of-00005.safetensors" and len(shards) == 5
    found = written(tmp_path / "out", shards)
    index = read_index(tmp_path / "out")
    assert index.keys() == found.keys()
    with RowsReader() as reader:
        target = torch.zeros(2, 4)
        reader.read(index["u1"], 1, target)
        assert torch.equal(target, TENSORS["e.1"][4:6])
        reader.read(index["u1"], 1, wide := torch.zeros(2, 4, dtype=torch.float64))
        assert torch.equal(wide, target.double())


def test_rows_longer_than_the_buffer_and_parts_of_a_tensor_are_filled(tmp_path, monkeypatch):
    written(tmp_path / "out", shard(assembled(), lambda _: 0))
    stored = read_header(tmp_path / "out" / "model.safetensors")
    for size in (1, 17, 4096):
        monkeypatch.setattr("flexfloor.models.weights.rows_reader.BUFFER_BYTES", size)
        with RowsReader() as reader:
            columns = torch.zeros(3, 8, dtype=torch.float16)
            reader.read(stored["g1"], 0, columns[:, ::2])
        assert torch.equal(columns[:, ::2], TENSORS["e.1"][:3].half()) and not columns[:, 1::2].any()


def test_nothing_that_stands_there_is_overwritten(tmp_path):
    (tmp_path / "out").mkdir()
    hf_folder.require_free("--out", tmp_path / "out")
    (tmp_path / "out" / "x").touch()
    for place in (tmp_path / "out", tmp_path / "out" / "x"):
        with pytest.raises(ConfigError, match=r"--out = .*: must be a folder that is empty"):
            hf_folder.require_free("--out", place)
