"""A character tokenizer built once, and one kind of row."""

import pytest

from flexfloor.data.tokenizer import load_tokenizer


@pytest.fixture(scope="session")
def tokenizer():
    return load_tokenizer("builtin:char")


@pytest.fixture
def record():
    """One row in verl's form; tests change what they are about."""
    return {
        "data_source": "sums",
        "prompt": [{"role": "user", "content": "1+1"}],
        "ability": "maths",
        "reward_model": {"style": "rule", "ground_truth": "2"},
        "extra_info": {"split": "train", "index": 7},
    }
