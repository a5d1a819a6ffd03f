"""Banks of experts against a sum that is written out, whatever bank an expert is in."""

import pytest
import torch
import torch.nn.functional as F

from flexfloor.elastic.expert_banks import ExpertBanks, is_even
from flexfloor.rollout.migration import room_for

E, H, INNER, K, T = 6, 16, 24, 3, 11


@pytest.fixture(autouse=True)
def numbers():
    torch.manual_seed(0)


def experts_of(dtype, evenly=True):
    room = torch.randn(E, 3 * INNER * H, dtype=dtype) / 4
    pairs = {}
    for expert, flat in enumerate(room):
        up, down = flat[: 2 * INNER * H].view(2 * INNER, H), flat[2 * INNER * H :].view(H, INNER)
        pairs[expert] = (up, down) if evenly else (up.clone(), down.clone())
    return pairs


def routing(dtype):
    """Rows of which some choose what is computed elsewhere (-1)."""
    hidden = torch.randn(T, H, dtype=dtype)
    expert = torch.rand(T, E).topk(K, dim=1).indices
    probs = torch.rand(T, K, dtype=torch.promote_types(dtype, torch.float32))
    expert[::4, 1] = -1
    return hidden, probs, expert


def written_out(hidden, probs, expert, pairs):
    out = torch.zeros(len(hidden), H, dtype=torch.float64)
    for row in range(len(hidden)):
        for choice in range(K):
            if int(expert[row, choice]) in pairs:
                up, down = (weight.double() for weight in pairs[int(expert[row, choice])])
                gate, linear = (up @ hidden[row].double()).chunk(2)
                out[row] += probs[row, choice].double() * (down @ (F.silu(gate) * linear))
    return out


SPLITS = {
    "one": [range(E)],
    "guests later": [[1, 2, 4], [5], [0, 3]],
    "some elsewhere": [[5, 1], [2]],
    "none": [],
}


@pytest.mark.parametrize("evenly", [True, False])
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_sums_are_those_written_out(dtype, split, evenly):
    pairs = experts_of(dtype, evenly)
    banks = ExpertBanks(E)
    for members in SPLITS[split]:
        banks.add({expert: pairs[expert] for expert in members})
    hosted = {expert: pairs[expert] for members in SPLITS[split] for expert in members}
    hidden, probs, expert = routing(dtype)
    got = banks(hidden, probs, expert)
    assert got.dtype is dtype and got.shape == (T, H)
    tolerance = {torch.float64: 1e-13, torch.float32: 1e-5, torch.bfloat16: 0.1}[dtype]
    torch.testing.assert_close(
        got.double(), written_out(hidden, probs, expert, hosted), rtol=tolerance, atol=tolerance
    )


def test_no_rows():
    banks = ExpertBanks(E)
    banks.add(experts_of(torch.float32))
    hidden, probs, expert = routing(torch.float32)
    assert banks(hidden[:0], probs[:0], expert[:0]).shape == (0, H)


def test_what_nobody_computed_counts_for_nothing_whatever_memory_held(monkeypatch):
    """The kernel leaves rows behind the last group's as they were: not a number, say."""
    from flexfloor.elastic import expert_banks

    def leaving_nan(rows, weights, ends):
        out = real(rows, weights, ends)
        out[int(ends[-1]) :] = float("nan")
        return out

    real = expert_banks.grouped_product
    monkeypatch.setattr(expert_banks, "grouped_product", leaving_nan)
    banks, pairs = ExpertBanks(E), experts_of(torch.float64)
    banks.add({2: pairs[2]})
    hidden, probs, expert = routing(torch.float64)
    torch.testing.assert_close(
        banks(hidden, probs, expert), written_out(hidden, probs, expert, {2: pairs[2]}), rtol=0, atol=1e-13
    )


def test_even_experts_are_not_copied_in_whatever_order_they_lie():
    pairs = experts_of(torch.float32)
    backwards = {expert: pairs[E - 1 - expert] for expert in range(E)}
    for experts in (pairs, backwards):
        banks = ExpertBanks(E)
        banks.add(experts)
        [bank] = banks.banks
        assert is_even(experts)
        assert bank.up_GFH.untyped_storage().data_ptr() == pairs[0][0].untyped_storage().data_ptr()
        hidden, probs, expert = routing(torch.float32)
        torch.testing.assert_close(
            banks(hidden, probs, expert).double(),
            written_out(hidden, probs, expert, experts),
            rtol=1e-5,
            atol=1e-5,
        )
    assert not is_even(experts_of(torch.float32, evenly=False))


def test_guests_of_a_shrink_arrive_where_they_form_a_bank_without_a_copy():
    like = [experts_of(torch.bfloat16)[0], experts_of(torch.bfloat16)[1]]
    guests = room_for([3, 1, 5], like)
    assert guests.keys() == {3, 1, 5}
    for layer in (0, 1):
        experts = {expert: layers[layer] for expert, layers in guests.items()}
        assert is_even(experts) and not any(w.requires_grad for pair in experts.values() for w in pair)
        for pair, own in zip(experts.values(), [like[layer]] * 3, strict=True):
            assert [(w.shape, w.dtype, w.is_contiguous()) for w in pair] == [
                (w.shape, w.dtype, True) for w in own
            ]
    assert room_for([], like) == {}
