import numpy as np
import torch

from flexfloor.elastic.load import ExpertLoad, violation


def test_counts_each_choice_in_its_layer():
    load = ExpertLoad(2, 4, torch.device("cpu"))
    load.add(0, torch.tensor([[0, 3], [3, 1]]))
    load.add(0, torch.tensor([[3, 0]]))
    load.add(1, torch.empty(0, 2, dtype=torch.long))
    assert load.counts().tolist() == [[2, 1, 0, 3], [0, 0, 0, 0]]


def test_violation_is_the_distance_from_the_even_load():
    found = violation(np.array([[4, 0, 2, 2], [3, 3, 3, 3], [0, 0, 0, 0]]))
    assert found.tolist() == [[1.0, 1.0, 0.0, 0.0], [0.0] * 4, [0.0] * 4]
