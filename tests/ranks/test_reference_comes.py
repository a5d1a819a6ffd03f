"""When the reference policy sets out: once nobody needs the policy, and never while experts are lent."""

import early_ranks
import pytest

from flexfloor.launch import run_ranks

KL = ("parallel.ep=2", "actor.use_kl_loss=true", "trainer.total_training_steps=1")
CASES = {
    "fixed": (*KL, "overlap=off", "elastic=off"),
    "elastic": (*KL, "overlap=off"),
    "early": (*KL, "overlap=on"),
    "recompute": (*KL, "overlap=off", "actor.old_logprobs=recompute"),
}


def orders(folder):
    """By case, what this rank did one after the other."""
    from pathlib import Path

    from flexfloor import parallel
    from flexfloor.rollout.engine import RolloutEngine
    from flexfloor.stages import old_logprobs, rollout
    from flexfloor.train.reference import ReferenceWeights

    done = []

    def noting(name, call):
        def noted(*args, **kwargs):
            found = call(*args, **kwargs)
            done.append(name)
            return found

        return noted

    found = {}
    for owner, name in [
        (RolloutEngine, "generate"),
        (ReferenceWeights, "_change_places"),
        (rollout, "meet"),
        (rollout, "_collect"),
        (old_logprobs, "training_logprobs"),
    ]:
        setattr(owner, name, noting(name.strip("_"), getattr(owner, name)))
    for name, words in CASES.items():
        done.clear()
        releases = () if name == "fixed" else (1,)
        early_ranks.run_case(early_ranks.Case(words=words, releases=releases), Path(folder) / name)
        parallel.destroy()
        found[name] = list(done)
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    limits = {"threads_per_rank": 1, "total_timeout_seconds": 240}
    return run_ranks(orders, 2, str(tmp_path_factory.mktemp("runs")), **limits)


COMPARED = ["training_logprobs", "change_places"]
"""The pass of the reference, and its leave."""


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("fixed", ["generate", "change_places", "collect", *COMPARED]),
        ("elastic", ["generate", "change_places", "collect", "meet", *COMPARED]),
        ("recompute", ["generate", "collect", "meet", "training_logprobs", "change_places", *COMPARED]),
    ],
)
def test_it_sets_out_before_the_scores_are_there_unless_the_policy_has_a_pass_to_make(found, case, expected):
    assert [each[case] for each in found] == [expected, expected]


def test_it_stays_until_all_have_met_where_experts_may_be_lent(found):
    stays, leased = (each["early"] for each in found)
    assert stays == ["generate", "collect", "meet", "change_places", *COMPARED]
    *in_lease, first, second = ["generate", "change_places", "change_places"], stays[1:3], stays[3:]
    assert leased[:1] == in_lease[0][:1] and leased[-len(first + second) :] == first + second
    compares = leased[1 : -len(first + second)]
    assert len(compares) >= 2 and set(compares) == {"change_places"}, "there and back"
