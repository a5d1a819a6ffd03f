import numpy as np
import pytest
import torch

from flexfloor.rollout.noise import sequence_key, uniform

GOLDEN = 0x9E3779B97F4A7C15
MASK = 2**64 - 1


def splitmix(z):
    """SplitMix64's finaliser in unbounded integers."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


@pytest.mark.parametrize("key", [0, 1, -1, 2**62, -(2**63)])
@pytest.mark.parametrize("position", [0, 7, 40_000])
def test_is_the_hash_written_in_unbounded_integers(key, position):
    base = splitmix((splitmix((key + GOLDEN) & MASK) + position * GOLDEN) & MASK)
    expected = [((splitmix((base + token * GOLDEN) & MASK) >> 12) + 0.5) * 2.0**-52 for token in range(1, 6)]
    found = uniform(torch.tensor([key]), torch.tensor([position]), 5)
    assert found[0].tolist() == expected


def test_does_not_depend_on_the_batch():
    keys = torch.tensor([sequence_key(3, uid, 0) for uid in "abcde"])
    positions = torch.arange(5)
    together = uniform(keys, positions, 100)
    for row in range(5):
        assert torch.equal(uniform(keys[row : row + 1], positions[row : row + 1], 100)[0], together[row])


def test_every_part_of_the_key_matters():
    keys = {sequence_key(seed, uid, index) for seed in (0, 1) for uid in ("p1", "p2") for index in (0, 1)}
    keys |= {sequence_key("1/2", "3", 0), sequence_key("1", "2/3", 0), sequence_key(12, "3", 0)}
    assert len(keys) == 11
    same_key = torch.tensor([5, 5])
    first, second = uniform(same_key, torch.tensor([0, 1]), 64)
    assert not torch.isclose(first, second).any()


def test_is_uniform_and_uncorrelated():
    numbers = uniform(torch.arange(200), torch.arange(200) % 7, 1000).numpy()
    assert 0 < numbers.min() < 1e-4 and 1 - 1e-4 < numbers.max() < 1
    counts = np.histogram(numbers, bins=50, range=(0, 1))[0]
    expected = numbers.size / 50
    # chi-square with 49 degrees of freedom: 99.99 % lie below 97
    assert ((counts - expected) ** 2 / expected).sum() < 97
    for left, right in ((numbers[:, :-1], numbers[:, 1:]), (numbers[:-1], numbers[1:])):
        assert abs(np.corrcoef(left.ravel(), right.ravel())[0, 1]) < 0.01
