"""Which rows of Megatron's tensors are which rows of Hugging Face's, by numbers written down by hand."""

import pytest
import torch

from flexfloor.models.weights.fusion import (
    OfExperts,
    Place,
    Plain,
    QueryKeyValue,
    Stacked,
    Vocabulary,
    num_rows,
    row_width,
)


def described(fusion, shape, place):
    return [(p.hf, p.hf_shape, p.hf_row, p.row, p.num_rows) for p in fusion.pieces(shape, place)]


def test_queries_keys_and_values_are_mixed_by_group():
    # four query heads and two key heads of three channels: group 0 has the queries 0 and 1
    fusion = QueryKeyValue("l{layer}.q", "l{layer}.k", "l{layer}.v", 4, 2, 3)
    assert described(fusion, (24, 10), Place(layer=5)) == [
        ("l5.q", (12, 10), 0, 0, 6),
        ("l5.k", (6, 10), 0, 6, 3),
        ("l5.v", (6, 10), 0, 9, 3),
        ("l5.q", (12, 10), 6, 12, 6),
        ("l5.k", (6, 10), 3, 18, 3),
        ("l5.v", (6, 10), 3, 21, 3),
    ]


def test_a_gate_lies_above_its_projection_up():
    fusion = Stacked(("{expert}.gate", "{expert}.up"))
    assert described(fusion, (8, 3), Place(layer=0, expert=2)) == [
        ("2.gate", (4, 3), 0, 0, 4),
        ("2.up", (4, 3), 0, 4, 4),
    ]
    with pytest.raises(AssertionError):
        fusion.pieces((7, 3), Place(expert=2))


def test_an_expert_is_a_slice_of_all_experts():
    fusion = OfExperts("l{layer}.down", 6)
    assert described(fusion, (4, 3), Place(layer=1, expert=5)) == [("l1.down", (6, 4, 3), 20, 0, 4)]


def test_a_vocabulary_ends_where_its_tokens_do():
    fusion = Vocabulary("embed")
    assert described(fusion, (10, 4), Place(vocab_size=7)) == [("embed", (7, 4), 0, 0, 7)]
    assert described(fusion, (10, 4), Place()) == [("embed", (10, 4), 0, 0, 10)]
    # more tokens than rows do not fit, and the shape says so
    assert described(fusion, (10, 4), Place(vocab_size=12)) == [("embed", (10, 4), 0, 0, 10)]


@pytest.mark.parametrize(("shape", "rows", "width"), [((5,), 5, 1), ((5, 3), 5, 3), ((2, 5, 3), 10, 3)])
def test_rows_are_everything_along_the_last_dimension(shape, rows, width):
    assert (num_rows(shape), row_width(shape)) == (rows, width)
    assert torch.empty(shape).view(rows, width).numel() == torch.empty(shape).numel()


def test_a_vector_is_all_rows():
    assert described(Plain("norm"), (5,), Place()) == [("norm", (5,), 0, 0, 5)]
