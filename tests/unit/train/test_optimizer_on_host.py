"""State of an optimizer that leaves and comes back: on a CPU, whose storages give memory back as GPUs' do."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from flexfloor.train import host_chunks
from flexfloor.train.optimizer_on_host import OptimizerOnHost
from flexfloor.train.resident import training_bytes

SHAPES = [(3, 5), (7,), (2, 2, 4)]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Smaller than a tensor, and no divisor of any."""
    monkeypatch.setattr(host_chunks, "CHUNK_BYTES", 44)


def new_model(dtype: torch.dtype) -> torch.nn.ParameterList:
    torch.manual_seed(3)
    return torch.nn.ParameterList(torch.nn.Parameter(torch.randn(shape, dtype=dtype)) for shape in SHAPES)


def new_optimizer(model: torch.nn.ParameterList) -> tuple[SimpleNamespace, list[torch.nn.Parameter]]:
    """As Megatron's: over the model's weights, or over copies in float32 of those that are narrower."""
    own = [p if p.dtype is torch.float32 else torch.nn.Parameter(p.detach().float()) for p in model]
    adam = torch.optim.Adam([{"params": own[:1]}, {"params": own[1:]}], lr=0.1)
    return SimpleNamespace(chained_optimizers=[SimpleNamespace(optimizer=adam)], adam=adam), own


def step(optimizer: SimpleNamespace, weights: list[torch.nn.Parameter], number: int) -> None:
    for index, weight in enumerate(weights):
        weight.grad = torch.full_like(weight, float((-1) ** index * number))
    optimizer.adam.step()


def bytes_of(optimizer: SimpleNamespace, weights: list[torch.nn.Parameter]) -> tuple[int, int]:
    """(of moments, of the weights that are updated) in memory."""
    states = [each for state in optimizer.adam.state.values() for each in state.values() if each.dim()]
    return tuple(sum(each.untyped_storage().nbytes() for each in tensors) for tensors in (states, weights))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_away_it_takes_nothing_and_back_it_is_what_it_was(dtype: torch.dtype) -> None:
    model, same = new_model(dtype), new_model(dtype)
    (optimizer, weights), (plain, expected) = new_optimizer(model), new_optimizer(same)
    on_host = OptimizerOnHost(optimizer, model)
    numbers, has_copies = 15 + 7 + 16, dtype is torch.bfloat16
    on_host.leave()
    for number in (1, 2, 3):
        assert bytes_of(optimizer, weights) == (0, 0 if has_copies else 4 * numbers)
        with on_host.here():
            step(optimizer, weights, number)
            assert bytes_of(optimizer, weights) == (8 * numbers, 4 * numbers)
        step(plain, expected, number)
        with on_host.here():
            on_host.ready()
            for mine, theirs in zip(weights, expected, strict=True):
                assert torch.equal(mine, theirs)
                for name in ("exp_avg", "exp_avg_sq", "step"):
                    mine_now, now = optimizer.adam.state[mine][name], plain.adam.state[theirs][name]
                    assert torch.equal(mine_now, now), name
    assert all(torch.isfinite(weight).all() for weight in model), "the model's own never left"


def test_the_host_holds_less_than_a_chunk_more_than_the_state_and_makes_it_once() -> None:
    model = new_model(torch.bfloat16)
    optimizer, weights = new_optimizer(model)
    on_host = OptimizerOnHost(optimizer, model)
    step(optimizer, weights, 1)
    on_host.leave()
    first = [chunk.data_ptr() for chunk in on_host._chunks._chunks]
    assert len(first) == -(-12 * 38 // 44)
    for _ in range(3):
        with on_host.here():
            pass
    assert [chunk.data_ptr() for chunk in on_host._chunks._chunks] == first


def test_an_optimizers_step_waits_for_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    model = new_model(torch.float32)
    optimizer, weights = new_optimizer(model)
    on_host, waited = OptimizerOnHost(optimizer, model), []
    monkeypatch.setattr(on_host._side, "catch_up", lambda: waited.append(len(on_host._away)))
    with on_host.here():
        step(optimizer, weights, 1)
        assert waited == [0]


@pytest.mark.parametrize(("dtype", "kept", "state"), [(torch.float32, 4, 8), (torch.bfloat16, 4, 12)])
def test_what_training_keeps_without_it_are_gradients(dtype: torch.dtype, kept: int, state: int) -> None:
    model, numbers = new_model(dtype), 38
    assert training_bytes(model) == (kept + state) * numbers
    assert training_bytes(model, keeps_optimizer=False) == kept * numbers
