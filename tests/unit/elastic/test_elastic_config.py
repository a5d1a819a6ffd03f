"""What the elastic section may say."""

from __future__ import annotations

import pytest

from flexfloor.elastic.config import ElasticConfig, check_rungs
from flexfloor.errors import ConfigError


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"policy": "gready"}, "elastic.policy = 'gready': must be one of never, idle, greedy, guided"),
        ({"interval": 0}, "elastic.interval = 0: must be at least 1 pass"),
        ({"rungs": [0, 1]}, r"elastic.rungs = \[0, 1\]: must be different sizes of at least 1"),
        ({"rungs": [2, 2]}, r"elastic.rungs = \[2, 2\]: must be different sizes"),
        ({"sequences_per_rank": 0}, "elastic.sequences_per_rank = 0: must be at least 1, or null"),
    ],
)
def test_a_wrong_field_is_told(fields: dict, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        ElasticConfig(**fields)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        (
            {"rungs": [1, 2]},
            r"elastic.rungs = \[1, 2\]: must be sizes below parallel.ep / parallel.tp = 4 / 2 = 2",
        ),
        ({"detach": True}, "elastic.detach = true: must be false with parallel.tp = 2"),
    ],
)
def test_what_whole_replicas_cannot_do_is_told(fields: dict, complaint: str) -> None:
    check_rungs(ElasticConfig(**fields), 4, 1)
    with pytest.raises(ConfigError, match=complaint):
        check_rungs(ElasticConfig(**fields), 4, 2)
