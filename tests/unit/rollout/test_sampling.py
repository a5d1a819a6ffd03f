import math

import numpy as np
import pytest
import torch

from flexfloor.errors import ConfigError
from flexfloor.rollout.config import RolloutConfig, SamplingConfig
from flexfloor.rollout.noise import uniform
from flexfloor.rollout.sampling import keep_top_k, keep_top_p, sample

LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0, 3.0])


def draw(count, sampling):
    keys, positions = torch.arange(count), torch.zeros(count, dtype=torch.long)
    return sample(LOGITS.expand(count, -1), keys, positions, sampling)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_follow_the_softmax(temperature):
    token_ids, _ = draw(20_000, SamplingConfig(temperature=temperature))
    weights = np.exp(LOGITS.numpy() / temperature)
    expected = 20_000 * weights / weights.sum()
    counts = np.bincount(token_ids.numpy(), minlength=5)
    # chi-square with 4 degrees of freedom: 99.99 % lie below 24
    assert ((counts - expected) ** 2 / expected).sum() < 24


def test_is_gumbel_max_on_the_same_noise():
    keys, positions = torch.arange(500), torch.full((500,), 3)
    gumbel = -(-uniform(keys, positions, 5).log()).log()
    token_ids, _ = sample(LOGITS.expand(500, -1), keys, positions, SamplingConfig())
    assert torch.equal(token_ids, (LOGITS + gumbel).argmax(-1))


def test_logprobs_are_of_the_whole_distribution_at_the_temperature():
    for sampling in (SamplingConfig(temperature=0.7), SamplingConfig(temperature=0.7, top_k=2, top_p=0.5)):
        token_ids, logprobs = draw(50, sampling)
        expected = (LOGITS.double() / 0.7).log_softmax(-1)[token_ids]
        assert torch.allclose(logprobs, expected, atol=1e-12)


def test_temperature_0_takes_the_most_likely():
    token_ids, logprobs = draw(10, SamplingConfig(temperature=0.0))
    assert token_ids.tolist() == [4] * 10
    assert logprobs[0] == pytest.approx(3 - math.log(sum(math.exp(x) for x in (2, 1, 0, -1, 3))))


def test_top_k_and_top_p_narrow_what_is_drawn():
    assert set(draw(2000, SamplingConfig(top_k=2))[0].tolist()) == {4, 0}
    # probabilities 0.64, 0.23, 0.09, ...: the first two reach 0.8
    assert set(draw(2000, SamplingConfig(top_p=0.8))[0].tolist()) == {4, 0}
    assert set(draw(2000, SamplingConfig(top_p=0.1))[0].tolist()) == {4}
    assert set(draw(4000, SamplingConfig(top_p=0.95))[0].tolist()) == {4, 0, 1}


def test_what_is_kept_is_unchanged():
    probs = torch.tensor([[0.1, 0.4, 0.2, 0.3], [0.25, 0.25, 0.25, 0.25]])
    assert keep_top_k(probs, 2).tolist()[0] == pytest.approx([0, 0.4, 0, 0.3])
    assert keep_top_k(probs, 9).equal(probs)
    assert keep_top_p(probs, 0.6).tolist()[0] == pytest.approx([0, 0.4, 0, 0.3])
    assert keep_top_p(probs, 0.25)[1].count_nonzero() == 1


def test_one_row_does_not_see_the_others():
    logits = torch.randn(6, 40, generator=torch.Generator().manual_seed(0))
    keys, positions = torch.arange(6), torch.arange(6)
    sampling = SamplingConfig(top_p=0.9, top_k=10)
    together, _ = sample(logits, keys, positions, sampling)
    for row in range(6):
        one = slice(row, row + 1)
        assert sample(logits[one], keys[one], positions[one], sampling)[0] == together[row]


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"temperature": -1.0}, "rollout.temperature"),
        ({"top_p": 0.0}, "rollout.top_p"),
        ({"top_p": 1.5}, "rollout.top_p"),
        ({"top_k": -1}, "rollout.top_k"),
        ({"kv_budget_bytes": 0}, "rollout.kv_budget_bytes"),
        ({"admission": "hopeful"}, "rollout.admission"),
        ({"path": "quick"}, "rollout.path"),
    ],
)
def test_bad_settings_name_the_field(values, field):
    with pytest.raises(ConfigError, match=field):
        RolloutConfig(**values)
