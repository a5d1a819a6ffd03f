"""What the schedule's settings may be."""

import pytest

from flexfloor.errors import ConfigError
from flexfloor.schedule.config import ScheduleConfig


def test_defaults_and_a_file_are_fine():
    assert ScheduleConfig().history_path is None
    assert ScheduleConfig(history_path="runs/a/lengths.parquet", history_prompts=1).history_prompts == 1


@pytest.mark.parametrize(
    "field, value, allowed",
    [
        ("history_path", "lengths.csv", "a .parquet file, or null"),
        ("history_path", "", "a .parquet file, or null"),
        ("history_prompts", 0, "at least 1 prompt"),
    ],
)
def test_others_are_named(field, value, allowed):
    with pytest.raises(ConfigError, match=rf"schedule\.{field} = {value!r}: must be {allowed}"):
        ScheduleConfig(**{field: value})
