import math

import pytest
import torch

from flexfloor.models.packed_attention import attend_packed


def one_by_one(query, key, value, lengths):
    """Attention from its formula, a head and a row at a time."""
    out, start = torch.zeros_like(query), 0
    per_group = query.size(1) // key.size(1)
    for length in lengths:
        for row in range(start, start + length):
            for head in range(query.size(1)):
                keys, values = (x[start : row + 1, head // per_group] for x in (key, value))
                weights = (keys @ query[row, head] / math.sqrt(query.size(2))).softmax(0)
                out[row, head] = weights @ values
        start += length
    return out


def rows(total, heads, dim=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(total, heads, dim, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("lengths", [[1], [5], [3, 1, 7, 2, 16, 9], [4, 4, 4], [2, 0, 3]])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_equals_the_formula(lengths, groups):
    total = sum(lengths)
    query, key, value = rows(total, 4, seed=1), rows(total, groups, seed=2), rows(total, groups, seed=3)
    assert torch.allclose(attend_packed(query, key, value, lengths), one_by_one(query, key, value, lengths))


def test_nothing_leaks_between_sequences_or_backwards_in_time():
    lengths = [3, 6, 2]
    query, key, value = rows(11, 2), rows(11, 2, seed=1), rows(11, 2, seed=2)
    before = attend_packed(query, key, value, lengths)
    key[5], value[5] = 100.0, 100.0  # the third row of the second sequence
    changed = (attend_packed(query, key, value, lengths) != before).any(-1).any(-1)
    assert changed.tolist() == [False] * 5 + [True] * 4 + [False] * 2


def test_gradients_equal_the_formulas():
    lengths = [3, 1, 7]
    inputs = [rows(11, heads, seed=seed).requires_grad_() for seed, heads in enumerate((4, 2, 2))]
    weights = rows(11, 4, seed=9)
    found = torch.autograd.grad((attend_packed(*inputs, lengths) * weights).sum(), inputs)
    expected = torch.autograd.grad((one_by_one(*inputs, lengths) * weights).sum(), inputs)
    for left, right in zip(found, expected, strict=True):
        assert torch.allclose(left, right)


def test_zero_rows_stay_tied_to_the_graph():
    inputs = [torch.zeros(0, heads, 4, requires_grad=True) for heads in (4, 2, 2)]
    out = attend_packed(*inputs, [])
    assert out.shape == (0, 4, 4)
    assert all(gradient is not None for gradient in torch.autograd.grad(out.sum(), inputs))
