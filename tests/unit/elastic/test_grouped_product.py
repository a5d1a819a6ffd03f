"""Grouped products against one product after the other, in every type and layout that experts come in."""

import pytest
import torch

from flexfloor.elastic import grouped_product as grouped
from flexfloor.elastic.grouped_product import even_groups, grouped_linear, outer_products

COUNTS = [(3, 0, 2, 4), (0, 0, 0, 0), (0, 0, 0, 5), (1, 1, 1, 1), (9, 0, 0, 0)]
TYPES = {torch.float64: 1e-13, torch.float32: 1e-6, torch.bfloat16: 2e-2}
LAYOUTS = ["even", "apart", "descending", "two and two", "one long way off"]


@pytest.fixture(autouse=True)
def numbers():
    torch.manual_seed(0)


def weights_in(layout, dtype, outer=24, inner=16):
    """Four weights [outer, inner] that lie in memory as `layout` says."""
    size = outer * inner
    room = torch.randn(8 * size, dtype=dtype) / 4
    starts = {
        "even": [0, 2, 4, 6],
        "descending": [6, 4, 2, 0],
        "two and two": [0, 1, 5, 6],
        "one long way off": [0, 1, 2, 7],
    }
    if layout == "apart":
        weights = [torch.randn(outer, inner, dtype=dtype) / 4 for _ in range(4)]
    else:
        weights = [room[start * size : (start + 1) * size].view(outer, inner) for start in starts[layout]]
    return [
        weight.requires_grad_() if layout == "apart" else weight.detach().requires_grad_()
        for weight in weights
    ]


def one_by_one(rows, counts, weights):
    return torch.cat([part @ weight.T for part, weight in zip(rows.split(counts), weights, strict=True)])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_values_and_gradients_are_those_of_one_product_after_the_other(layout, dtype, counts):
    weights = weights_in(layout, dtype)
    rows = torch.randn(sum(counts), 16, dtype=dtype, requires_grad=True)
    wanted = torch.randn(sum(counts), 24, dtype=dtype)
    results = []
    for product in (grouped_linear, one_by_one):
        out = product(rows, counts, weights)
        (out * wanted).sum().backward()
        results.append([out.detach(), rows.grad, *(weight.grad for weight in weights)])
        for tensor in (rows, *weights):
            tensor.grad = None
    for got, expected in zip(*results, strict=True):
        if got is None:
            assert not expected.any()
        else:
            torch.testing.assert_close(got, expected, rtol=TYPES[dtype], atol=TYPES[dtype])


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_a_gradient_that_repeats_one_number_and_rows_that_are_a_view(dtype):
    weights = weights_in("even", dtype)
    rows = torch.randn(16, 9, dtype=dtype).T.requires_grad_()
    grouped_linear(rows, (3, 0, 2, 4), weights).sum().backward()
    expected = torch.cat([weights[i].sum(0).expand(n, 16) for i, n in enumerate((3, 0, 2, 4))])
    torch.testing.assert_close(rows.grad, expected, rtol=2e-2, atol=2e-2)
    assert weights[1].grad is None and weights[0].grad is not None


def test_no_rows_at_all_still_hang_on_the_graph():
    weights = weights_in("even", torch.float32)
    rows = torch.zeros(0, 16, requires_grad=True)
    out = grouped_linear(rows, (0, 0, 0, 0), weights)
    assert out.shape == (0, 24) and out.requires_grad
    out.sum().backward()
    assert rows.grad.shape == (0, 16)


def test_groups_are_views_and_as_few_as_places_allow():
    sizes = {"even": [4], "apart": [1] * 4, "descending": [1] * 4, "two and two": [2, 2]}
    sizes["one long way off"] = [3, 1]
    for layout, expected in sizes.items():
        weights = weights_in(layout, torch.float32)
        groups = even_groups(weights)
        assert [len(group) for group in groups] == expected, layout
        views = [view for group in groups for view in group]
        for view, weight in zip(views, weights, strict=True):
            assert view.data_ptr() == weight.data_ptr() and torch.equal(view, weight)


def test_weights_of_other_shapes_and_types_or_that_overlap_form_no_group():
    room = torch.randn(64)
    square, wide = room[:16].view(4, 4), room[16:32].view(2, 8)
    assert len(even_groups([square, wide])) == 2
    assert len(even_groups([square, room[16:32].view(4, 4).T])) == 2
    assert len(even_groups([square, room[8:24].view(4, 4)])) == 2
    assert len(even_groups([square, square])) == 2
    assert len(even_groups([square, room[16:24].view(torch.float16).view(4, 4)])) == 2


def test_the_kernel_is_taken_for_what_it_takes_and_nothing_else(monkeypatch):
    taken = []
    kernel = torch.nn.functional.grouped_mm
    monkeypatch.setattr(
        grouped.F, "grouped_mm", lambda *args, **named: taken.append(args[0].dtype) or kernel(*args, **named)
    )
    for dtype, width in ((torch.bfloat16, 16), (torch.float32, 16), (torch.float64, 16), (torch.float32, 6)):
        ends = torch.tensor([1, 3], dtype=torch.int32)
        rows, weights = torch.randn(3, width, dtype=dtype), torch.randn(2, 8, width, dtype=dtype)
        out = grouped.grouped_product(rows, weights, ends)
        torch.testing.assert_close(out, one_by_one(rows, (1, 2), weights))
        outer_products(out, rows, ends)
    assert taken == [torch.bfloat16] * 2 + [torch.float32] * 2
