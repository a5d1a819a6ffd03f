"""Means over optimizer steps."""

from flexfloor.train.metrics import mean_over_updates


def test_each_metric_is_averaged_over_the_steps_that_report_it():
    updates = [{"a/skipped": 0.0, "a/loss": 2.0}, {"a/skipped": 1.0}, {"a/skipped": 0.0, "a/loss": 4.0}]
    assert mean_over_updates(updates) == {"a/skipped": 1 / 3, "a/loss": 3.0}
    assert mean_over_updates([]) == {}
