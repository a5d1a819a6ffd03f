"""Two sets of weights that change places, on a module with everything that weights may be."""

import pytest
import torch

from flexfloor.train import host_chunks
from flexfloor.train import reference as reference_weights
from flexfloor.train.reference import ReferenceWeights


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Pieces smaller than a tensor and no divisor of any; chunks that a tensor reaches over."""
    monkeypatch.setattr(host_chunks, "CHUNK_BYTES", 38)
    monkeypatch.setattr(reference_weights, "PIECE_BYTES", 10)


class Odd(torch.nn.Module):
    """A tied weight, a buffer that a checkpoint keeps and one that it does not, float32 and bfloat16."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 3)
        self.tied = torch.nn.Linear(3, 3)
        self.tied.weight = self.first.weight
        self.narrow = torch.nn.Parameter(torch.rand(4, dtype=torch.bfloat16))
        self.register_buffer("bias", torch.rand(2))
        self.register_buffer("counter", torch.zeros(1), persistent=False)


def _copy(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def _equal(model, expected):
    return all(torch.equal(tensor, expected[name]) for name, tensor in model.state_dict().items())


def _moved():
    """(model, its reference, weights of the reference, weights of the policy)."""
    model = Odd()
    reference, frozen = ReferenceWeights(model), _copy(model)
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.add_(torch.rand_like(tensor))
    return model, reference, frozen, _copy(model)


def test_the_reference_is_in_the_model_within_the_block_and_the_policy_after_it():
    model, reference, frozen, policy = _moved()
    parameters = list(model.parameters())
    for _ in range(2):
        assert _equal(model, policy) and not _equal(model, frozen)
        with reference.swapped_in():
            assert _equal(model, frozen)
            model.counter += 1
    assert _equal(model, policy)
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    assert model.counter == 2, "what no checkpoint holds is not part of the policy"


def test_an_error_within_the_block_leaves_the_policy_in_place():
    model, reference, _, policy = _moved()
    with pytest.raises(RuntimeError, match="boom"), reference.swapped_in():
        raise RuntimeError("boom")
    assert _equal(model, policy)


def test_what_is_loaded_within_the_block_becomes_the_reference():
    model, reference, frozen, policy = _moved()
    other = _copy(Odd())
    with reference.swapped_in():
        model.load_state_dict(other)
    assert _equal(model, policy)
    with reference.swapped_in():
        assert _equal(model, other) and not _equal(model, frozen)


def test_brought_early_it_stands_in_the_model_once():
    model, reference, frozen, policy = _moved()
    for _ in range(2):
        reference.bring()
        reference.bring()
        with reference.swapped_in():
            assert _equal(model, frozen)
        assert _equal(model, policy)


def test_the_device_waits_for_what_has_not_arrived_before_the_pass_and_after_it(monkeypatch):
    model, reference, frozen, policy = _moved()
    found = []
    monkeypatch.setattr(reference._side, "catch_up", lambda: found.append(_copy(model)))
    reference.bring()
    assert not found, "others go on meanwhile"
    with reference.swapped_in():
        assert len(found) == 1
    assert len(found) == 2
    for there, expected in zip(found, (frozen, policy), strict=True):
        assert all(torch.equal(tensor, expected[name]) for name, tensor in there.items())


def test_what_is_kept_of_a_parameter_is_a_copy_of_the_references():
    model, reference, frozen, policy = _moved()
    for name, parameter in model.named_parameters():
        kept = reference.kept(parameter)
        assert torch.equal(kept, frozen[name]) and not kept.requires_grad
        kept.zero_()
        assert torch.equal(reference.kept(parameter), frozen[name])
    assert _equal(model, policy)


def test_while_the_reference_stands_in_the_model_nothing_is_read_of_what_the_host_has():
    model, reference, _, _ = _moved()
    with reference.swapped_in(), pytest.raises(AssertionError, match="stands in the model"):
        reference.kept(model.narrow)
