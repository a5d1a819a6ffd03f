"""What ranks hold of a tensor that tensor parallelism cuts, and reading only that."""

import pytest
import torch
from safetensors.torch import save_file

from flexfloor.models.weights.fusion import Piece, Plain
from flexfloor.models.weights.rows_reader import RowsReader
from flexfloor.models.weights.share import Share, TensorRank
from flexfloor.models.weights.stored import read_header
from flexfloor.models.weights.weight_map import Row, WeightMap


def piece(hf_row, row, num_rows, hf="w"):
    return Piece(hf=hf, hf_shape=(num_rows, 6), hf_row=hf_row, row=row, num_rows=num_rows)


def spans(pieces):
    return [(each.hf_row, each.row, each.num_rows, each.column) for each in pieces]


def test_ranks_take_ranges_of_rows_of_each_part():
    share = Share(dim=0, num_parts=2, num_ranks=2)
    assert share.whole((6, 6)) == (12, 6)
    gate, up = piece(0, 0, 6, "gate"), piece(0, 6, 6, "up")
    # of [gate 6; up 6] the second rank has gate's rows 3 to 5 above up's rows 3 to 5
    assert spans(share.held(gate, (12, 6), 0)) == [(0, 0, 3, 0)]
    assert spans(share.held(gate, (12, 6), 1)) == [(3, 0, 3, 0)]
    assert spans(share.held(up, (12, 6), 1)) == [(3, 3, 3, 0)]
    # one tensor of both halves, as transformers 5 has experts
    assert spans(share.held(piece(24, 0, 12), (12, 6), 1)) == [(27, 0, 3, 0), (33, 3, 3, 0)]
    # a rank that has nothing of a piece
    assert share.held(piece(0, 0, 2), (12, 6), 1) == []


def test_ranks_take_ranges_of_columns():
    share = Share(dim=1, num_parts=1, num_ranks=3)
    assert share.whole((4, 2)) == (4, 6)
    assert [spans(share.held(piece(8, 1, 3), (4, 6), rank)) for rank in range(3)] == [
        [(8, 1, 3, 0)],
        [(8, 1, 3, 2)],
        [(8, 1, 3, 4)],
    ]


def test_a_vector_is_cut_and_an_uncut_tensor_is_not():
    share = Share(dim=0, num_parts=1, num_ranks=2)
    vector = Piece(hf="b", hf_shape=(8,), hf_row=0, row=0, num_rows=8)
    assert spans(share.held(vector, (8,), 1)) == [(4, 0, 4, 0)]
    assert Share(dim=None, num_parts=1, num_ranks=1).held(vector, (8,), 0) == [vector]


def test_experts_are_cut_by_ranks_of_their_own():
    rank = TensorRank(num_ranks=4, rank=3, num_expert_ranks=2, expert_rank=1)
    expert = "decoder.layers.0.mlp.experts.local_experts.5.linear_fc1.weight"
    weight_map = WeightMap(
        rows=(
            Row(megatron="decoder.layers.{layer}.mlp.linear_fc1.weight", hf=Plain("a"), tp_dim=0, tp_parts=2),
            Row(
                megatron=expert.replace("5", "{expert}").replace("s.0", "s.{layer}"), hf=Plain("b"), tp_dim=0
            ),
            Row(megatron="norm", hf=Plain("c")),
        )
    )
    of = {name: rank.share(weight_map, name) for name in (expert, "decoder.layers.2.mlp.linear_fc1.weight")}
    assert [(share.num_ranks, share.num_parts) for share in of.values()] == [(2, 1), (4, 2)]
    assert [rank.among(name) for name in of] == [1, 3]
    assert rank.share(weight_map, "norm").num_ranks == 1


@pytest.mark.parametrize("page_bytes", [1, 4096])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_columns_are_read_by_themselves_or_with_their_rows(page_bytes, dtype, tmp_path, monkeypatch):
    monkeypatch.setattr("flexfloor.models.weights.rows_reader.PAGE_BYTES", page_bytes)
    stored = torch.randn(5, 8)
    save_file({"w": stored, "other": torch.zeros(3)}, tmp_path / "f.safetensors")
    seen = []
    with RowsReader() as reader:
        reads = reader._fill_bytes
        monkeypatch.setattr(
            reader, "_fill_bytes", lambda s, o, left: (seen.append(len(left)), reads(s, o, left))
        )
        target = torch.zeros(3, 2, dtype=dtype)
        reader.read(read_header(tmp_path / "f.safetensors")["w"], 1, target, 4)
    assert torch.equal(target, stored[1:4, 4:6].to(dtype))
    assert sum(seen) == (3 * 2 * 4 if page_bytes == 1 else 3 * 8 * 4)
