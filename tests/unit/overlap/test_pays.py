"""Whether a lease is likely to save time."""

from flexfloor.overlap.config import ElasticConfig, OverlapConfig, is_wanted, may_detach, obstacle
from flexfloor.overlap.pays import loss


class Costs:
    """Two seconds to move experts, a hundredth of a second to train a row."""

    def pass_seconds(self, load):
        raise AssertionError("no pass is asked for")

    def shrink_seconds(self, before, after, moved_tokens):
        assert (before, after, moved_tokens) == (4, 3, 0)
        return 2.0

    def train_seconds(self, tokens):
        return 0.01 * tokens


def test_a_lease_pays_if_the_rollout_outlasts_its_opening_and_a_micro_batch():
    ask = {"num_replicas": 4, "rung": 1, "round_tokens": 100}
    assert loss(Costs(), **ask, seconds_left=3.1) == ""
    assert loss(Costs(), **ask, seconds_left=None) == ""
    assert loss(Costs(), **ask, seconds_left=2.9) == (
        "2.90 s of the rollout are left, and experts take 2.00 s to move and a micro-batch 1.00 s"
    )


def test_what_keeps_ranks_from_training_early_is_said():
    assert "releases no rank" in obstacle(ElasticConfig(), 4, 1)
    assert "no lease" in obstacle(ElasticConfig(policy="idle", detach=True), 4, 1)
    assert "parallel.ep=1" in obstacle(ElasticConfig(policy="guided"), 1, 1)
    assert "one replica of parallel.tp=2 ranks" in obstacle(ElasticConfig(policy="guided"), 2, 2)
    assert obstacle(ElasticConfig(policy="guided"), 4, 2) == ""
    assert obstacle(ElasticConfig(policy="guided"), 4, 1) == ""
    assert is_wanted(OverlapConfig(mode="auto"), ElasticConfig(policy="guided"), 4, 1)
    assert not is_wanted(OverlapConfig(mode="auto"), ElasticConfig(), 4, 1)
    assert not is_wanted(OverlapConfig(), ElasticConfig(policy="guided"), 4, 1)


def test_a_micro_batch_of_a_lease_is_a_quarter_unless_it_is_said():
    assert [OverlapConfig().rows(rows) for rows in (4096, 3)] == [1024, 1]
    assert OverlapConfig(micro_batch_tokens=77).rows(4096) == 77


def test_ranks_may_part_where_no_update_begins_on_released_ones():
    guided, off, auto = ElasticConfig(policy="guided"), OverlapConfig(mode="off"), OverlapConfig(mode="auto")
    assert may_detach(off, guided, 4, 1)
    assert not may_detach(auto, guided, 4, 1)
    assert may_detach(auto, ElasticConfig(policy="guided", detach=True), 4, 1)
    assert not may_detach(off, ElasticConfig(policy="guided", detach=False), 4, 1)
    assert not may_detach(off, ElasticConfig(policy="greedy"), 4, 1)
    assert may_detach(off, ElasticConfig(policy="greedy", detach=True), 4, 1)
    assert not may_detach(off, guided, 4, 2), "ranks of a replica cannot part"
