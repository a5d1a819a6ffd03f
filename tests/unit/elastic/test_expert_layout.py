"""The two layouts of experts' parameters, by hand."""

import pytest
import torch
from torch import nn

from flexfloor.elastic.expert_layout import global_name, is_numbered, weights_by_place


def weight(number):
    return nn.Parameter(torch.full((2, 3), float(number)))


def numbered():
    """Eleven experts, so that place 10 comes after place 9 and not after place 1."""
    experts = nn.Module()
    experts.num_local_experts = 11
    for product, first in (("linear_fc2", 100), ("linear_fc1", 0)):
        setattr(experts, product, nn.Module())
        for place in reversed(range(11)):
            getattr(experts, product).register_parameter(f"weight{place}", weight(first + place))
    return experts


def in_modules():
    experts = nn.Module()
    experts.local_experts = nn.ModuleList()
    for place in range(11):
        expert = nn.Module()
        expert.linear_fc1, expert.linear_fc2 = nn.Module(), nn.Module()
        expert.linear_fc1.weight, expert.linear_fc2.weight = weight(place), weight(100 + place)
        experts.local_experts.append(expert)
    return experts


@pytest.mark.parametrize("make", [numbered, in_modules])
def test_an_expert_has_the_weights_of_its_place_the_first_product_first(make):
    found = [tuple(int(each[0, 0]) for each in pair) for pair in weights_by_place(make())]
    assert found == [(place, 100 + place) for place in range(11)]


def test_a_layout_is_known_by_its_modules():
    assert is_numbered(numbered()) and not is_numbered(in_modules())


LAYER = "decoder.layers.1.mlp"
HERE = {LAYER: [4, 5, 6], "decoder.layers.2.mlp": [0, 1, 2]}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("experts.linear_fc1.weight2", "experts.local_experts.6.linear_fc1.weight"),
        ("experts.linear_fc2.weight0", "experts.local_experts.4.linear_fc2.weight"),
        ("experts.local_experts.2.linear_fc1.weight", "experts.local_experts.6.linear_fc1.weight"),
        ("shared_experts.linear_fc1.weight", "shared_experts.linear_fc1.weight"),
        ("router.weight", "router.weight"),
    ],
)
def test_a_parameter_has_the_same_global_name_in_both(name, expected):
    assert global_name(f"{LAYER}.{name}", HERE) == f"{LAYER}.{expected}"
