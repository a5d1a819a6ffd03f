"""What fits and what does not, said before a weight is read."""

from pathlib import Path

import pytest

from flexfloor.errors import WeightsError
from flexfloor.models.weights.coverage import plan_import
from flexfloor.models.weights.fusion import OfExperts, Plain, Stacked, Vocabulary
from flexfloor.models.weights.stored import StoredTensor
from flexfloor.models.weights.weight_map import Row, WeightMap

MAP = WeightMap(
    rows=(
        Row(megatron="embed", hf=Vocabulary("tokens")),
        Row(megatron="head", hf=Vocabulary("unembed")),
        Row(megatron="layers.{layer}.norm", hf=Plain("model.layers.{layer}.norm")),
        Row(
            megatron="layers.{layer}.experts.{expert}.up",
            hf=Stacked(("model.layers.{layer}.{expert}.gate", "model.layers.{layer}.{expert}.up")),
            fused=OfExperts("model.layers.{layer}.all", 2),
        ),
    ),
    ignored=("model.layers.{layer}.angles",),
    tied=("unembed", "tokens"),
)
SHAPES = {
    "embed": (6, 4),
    "layers.0.norm": (4,),
    "layers.0.experts.0.up": (10, 4),
    "layers.0.experts.1.up": (10, 4),
}
FILES = {
    "tokens": (6, 4),
    "model.layers.0.norm": (4,),
    "model.layers.0.0.gate": (5, 4),
    "model.layers.0.0.up": (5, 4),
    "model.layers.0.1.gate": (5, 4),
    "model.layers.0.1.up": (5, 4),
}


def stored(**changes):
    shapes = FILES | {name.replace("__", "."): shape for name, shape in changes.items()}
    return {
        name: StoredTensor(name=name, file=Path("f"), dtype=dtype, shape=shape, offset=0, num_bytes=0)
        for name, (dtype, shape) in (
            (name, of if of and isinstance(of[0], str) else ("F32", of))
            for name, of in shapes.items()
            if of is not None
        )
    }


def plan(shapes=SHAPES, mtp_layers=0, **changes):
    return plan_import(MAP, shapes, stored(**changes), num_layers=1, mtp_layers=mtp_layers)


def test_what_fits_is_planned_whole():
    found = plan()
    assert found.pieces.keys() == SHAPES.keys() and not found.padded and not found.skipped
    assert [piece.hf for piece in found.pieces["layers.0.experts.1.up"]] == [
        "model.layers.0.1.gate",
        "model.layers.0.1.up",
    ]
    assert found.tied is None
    assert [each.name for each in plan(unembed=(6, 4)).tied] == ["unembed", "tokens"]


def test_the_layout_that_is_there_is_taken():
    separate = [f"model__layers__0__{e}__{part}" for e in (0, 1) for part in ("gate", "up")]
    found = plan(**dict.fromkeys(separate), model__layers__0__all=(2, 10, 4))
    [piece] = found.pieces["layers.0.experts.1.up"]
    assert (piece.hf, piece.hf_row, piece.num_rows) == ("model.layers.0.all", 10, 10)
    with pytest.raises(WeightsError, match=r"1 in the files and not in the model: model.layers.0.all"):
        plan(model__layers__0__all=(2, 10, 4))
    with pytest.raises(WeightsError, match=r"model.layers.0.all is \[3, 10, 4\] in f, .* \[2, 10, 4\]"):
        plan(**dict.fromkeys(separate), model__layers__0__all=(3, 10, 4))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model__layers__0__norm": None}, "1 missing in the files: model.layers.0.norm"),
        ({"model__layers__0__bias": (4,)}, "1 in the files and not in the model: model.layers.0.bias"),
        ({"model__layers__1__norm": (4,)}, "1 in the files and not in the model: model.layers.1.norm"),
        ({"model__layers__0__norm": (5,)}, r"model.layers.0.norm is [5] in f, the model needs [4]"),
        ({"tokens": (7, 4)}, "tokens is [7, 4] in f, the model needs [6, 4]"),
        ({"tokens": (6, 5)}, "tokens is [6, 5] in f, the model needs [6, 4]"),
        ({"tokens": ("F8_E5M2", (6, 4))}, "1 of a type that is not read"),
    ],
)
def test_what_does_not_fit_is_named(changes, words):
    with pytest.raises(WeightsError) as caught:
        plan(**changes)
    assert words in str(caught.value)


def test_everything_is_told_at_once_and_long_lists_are_cut():
    more = {f"model__layers__0__x{number}": (1,) for number in range(20)}
    with pytest.raises(WeightsError) as caught:
        plan(tokens=None, model__layers__0__norm=(5,), **more)
    text = str(caught.value)
    assert "1 missing" in text and "20 in the files" in text and "1 of another shape" in text
    assert text.count("model.layers.0.x") == 8 and ", ..." in text


def test_angles_are_ignored_and_prediction_layers_skipped_where_there_are_some():
    found = plan(mtp_layers=1, model__layers__1__norm=(4,), model__layers__0__angles=(2,))
    assert found.skipped == ["model.layers.1.norm"]
    with pytest.raises(WeightsError, match=r"model.layers.2.norm"):
        plan(mtp_layers=1, model__layers__2__norm=(4,))


def test_rows_beyond_the_vocabulary_are_padding():
    padded = plan(SHAPES | {"embed": (9, 4), "head": (9, 4)}, unembed=(6, 4)).padded
    assert padded == {"embed": 3, "head": 3}


def test_a_map_without_a_row_or_with_two_is_an_error():
    with pytest.raises(WeightsError, match=r"needs one row for layers.0.bias and has none"):
        plan(SHAPES | {"layers.0.bias": (4,)})
    twice = WeightMap(rows=(*MAP.rows, Row(megatron="layers.0.norm", hf=Plain("x"))))
    with pytest.raises(WeightsError, match=r"has layers.{layer}.norm, layers.0.norm"):
        twice.row_of("layers.0.norm")


def test_a_tensor_that_two_tensors_take_or_that_is_taken_in_part_is_an_error():
    rows = (Row(megatron="a", hf=Plain("x")), Row(megatron="b", hf=Plain("x")))
    files = {"x": stored(x=(3, 4))["x"]}
    with pytest.raises(WeightsError, match=r"1 not used whole: x: 6 rows of 3"):
        plan_import(WeightMap(rows=rows), {"a": (3, 4), "b": (3, 4)}, files, num_layers=1)
    some = WeightMap(rows=(Row(megatron="e.{expert}", hf=OfExperts("x", 3)),))
    files = {"x": stored(x=(3, 2, 4))["x"]}
    with pytest.raises(WeightsError, match=r"1 not used whole: x: 4 rows of 6"):
        plan_import(some, {"e.0": (2, 4), "e.2": (2, 4)}, files, num_layers=1)
