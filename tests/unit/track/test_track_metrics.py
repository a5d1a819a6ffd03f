"""Metrics: finite numbers only, merged by step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from flexfloor.errors import FlexFloorError
from flexfloor.track.metrics import MetricsFile, finite_metrics, read_metrics, series


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (np.float32("nan"), "nan"),
        (torch.tensor(float("-inf")), "-inf"),
        ("0.5", "'0.5'"),
        (None, "None"),
        (np.zeros(2), "array"),
        (torch.zeros(2), "tensor"),
    ],
)
def test_what_is_no_finite_number_is_refused_by_name(value: object, text: str) -> None:
    with pytest.raises(FlexFloorError, match=r"actor/pg_loss at step 7") as error:
        finite_metrics({"actor/entropy": 1.0, "actor/pg_loss": value}, step=7)
    assert text in str(error.value)


def test_numbers_of_all_kinds_become_plain() -> None:
    given = {"a": 1, "b": np.float32(0.5), "c": torch.tensor([2.5]), "d": np.int64(3), "e": True}
    found = finite_metrics(given, step=0)
    assert found == {"a": 1, "b": 0.5, "c": 2.5, "d": 3, "e": 1}
    assert {type(value) for value in found.values()} <= {int, float}


def test_metrics_of_a_step_are_merged_and_steps_are_in_order(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path)
    file.append({"critic/score/mean": 0.5}, 1)
    file.append({"critic/score/mean": 0.75}, 2)
    file.append({"val-core/x/mean@1": 0.25}, 1)
    file.append({"timing_s/sft": 9.0}, 0)
    file.close()
    assert list(read_metrics(path)) == [0, 1, 2]
    assert read_metrics(path) == {
        0: {"timing_s/sft": 9.0},
        1: {"critic/score/mean": 0.5, "val-core/x/mean@1": 0.25},
        2: {"critic/score/mean": 0.75},
    }
    assert series(read_metrics(path), "val-core/x/mean@1") == {1: 0.25}
