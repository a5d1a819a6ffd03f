"""What a GPU says of itself, with a GPU that is made up."""

import pytest
import torch

from flexfloor import device


@pytest.fixture
def gpu(monkeypatch):
    """80 units of memory, of which 30 are free; 20 are this process's, 12 of them in use."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (30_000, 80_000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 20_000)


def test_a_rank_may_hold_what_is_free_and_what_it_has_but_for_a_margin(gpu):
    assert device.rank_memory_bytes() == 30_000 + 20_000 - 4_000


def test_a_full_gpu_leaves_no_budget_rather_than_none(gpu, monkeypatch):
    """0 would read as no limit."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (0, 80_000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 100)
    assert device.rank_memory_bytes() == 1


@pytest.mark.parametrize(("capability", "expected"), [((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_experts_are_grouped_from_ampere_on(gpu, monkeypatch, capability, expected):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    assert device.has_grouped_products() is expected


def test_a_cpu_has_no_budget_of_its_own_and_no_kernel_for_groups(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device.rank_memory_bytes() is None
    assert not device.has_grouped_products()
