"""Promise 2: with released ranks training early, the update is the one of a run in which nobody does."""

import functools
import tempfile
from collections import Counter

import early_ranks as ranks
import numpy as np
import pytest

from flexfloor.launch import run_ranks

KL = ("actor.use_kl_loss=true", "actor.kl_loss_coef=0.3")
KINDS = {
    "token-mean": (),
    "kl loss, compared with the training model": (*KL, "actor.old_logprobs=recompute"),
    "kl in the reward": ("algorithm.use_kl_in_reward=true", "algorithm.kl_coef=0.2", *KL),
    "filtered groups, seq-mean-token-mean": (
        "algorithm.filter_groups=true",
        "reward.custom_reward_function.kwargs={equal_share: 0.5}",
        "actor.loss_agg_mode=seq-mean-token-mean",
    ),
    "several mini-batches and epochs, seq-mean-token-sum": (
        "actor.ppo_mini_batch_size=2",
        "actor.ppo_epochs=2",
        "actor.loss_agg_mode=seq-mean-token-sum",
    ),
    "seq-mean-token-sum-norm and entropy": (
        "actor.loss_agg_mode=seq-mean-token-sum-norm",
        "actor.entropy_coeff=0.1",
    ),
    "deepseek": (
        "recipe=tiny-deepseek",
        "model.num_experts=12",
        "model.num_layers=3",
        "model.moe_router_bias_update_rate=0.01",
        *KL,
    ),
    "float32": ("model.dtype=float32",),
}
RELEASES = {2: (1,), 3: (2, 2, 1), 4: (4, 3, 3, 1)}
"""Replicas of the group after each decision, by its first size."""
LEASES = {2: [(1,)], 3: [(2,), (1, 2)], 4: [(3,), (1, 2, 3)]}
"""What the leases of a group of replicas 0 to n - 1 consist of, one after the other."""
QUICK = {
    (3, 3, 1): ("kl in the reward",),
    (2, 2, 1): ("several mini-batches and epochs, seq-mean-token-sum", "deepseek"),
    (6, 6, 2): ("kl loss, compared with the training model",),
}
LAYOUTS = {
    **dict.fromkeys([(4, 4, 1), (2, 2, 1), (3, 3, 1), (4, 2, 1), (6, 6, 2)], tuple(KINDS)),
    (4, 4, 2): ("deepseek",),
    (8, 4, 2): ("deepseek", "kl in the reward"),
}
"""Kinds by (ranks, ep, tp)."""
RUNS = [
    pytest.param(layout, kind, marks=() if kind in QUICK.get(layout, ()) else pytest.mark.slow)
    for layout, kinds in LAYOUTS.items()
    for kind in kinds
]


@functools.cache
def found(layout, kinds):
    """By kind, of each rank: (a run without overlap, one with it)."""
    world, ep, tp = layout
    cases = [
        ranks.Case(
            words=(*KINDS[kind], f"parallel.ep={ep}", f"parallel.tp={tp}", f"overlap={mode}"),
            releases=RELEASES[ep // tp] if mode == "on" else (),
        )
        for kind in kinds
        for mode in ("off", "on")
    ]
    limits = {"threads_per_rank": 1, "hang_seconds": 90, "total_timeout_seconds": 1500}
    with tempfile.TemporaryDirectory() as folder:
        by_rank = run_ranks(ranks.run_cases, world, cases, folder, **limits)
    return {kind: [runs[2 * place : 2 * place + 2] for runs in by_rank] for place, kind in enumerate(kinds)}


@pytest.fixture
def pairs(layout, kind):
    quick = QUICK.get(layout, ())
    slow = tuple(each for each in LAYOUTS[layout] if each not in quick)
    return found(layout, quick if kind in quick else slow)[kind]


def tolerance(kind):
    return 2e-5 if kind == "float32" else 1e-11


@pytest.mark.parametrize(("layout", "kind"), RUNS)
def test_weights_and_metrics_are_those_of_the_run_without(layout, kind, pairs):
    for off, on in pairs:
        for name, weight in off.weights.items():
            np.testing.assert_allclose(on.weights[name], weight, rtol=0, atol=tolerance(kind), err_msg=name)
        for step in (1, 2, 3):
            learned = {
                name: value
                for name, value in off.metrics[step].items()
                if name.startswith(("actor/", "critic/", "rollout_corr/", "response_length/"))
            }
            assert "actor/grad_norm" in learned
            told = {name: on.metrics[step][name] for name in learned}
            assert told == pytest.approx(learned, rel=1e3 * tolerance(kind), abs=1e2 * tolerance(kind))


@pytest.mark.parametrize(("layout", "kind"), RUNS)
def test_every_sample_is_trained_as_often_as_without_and_some_early(layout, kind, pairs):
    without, with_overlap = (Counter(key for pair in pairs for key in pair[way].trained) for way in (0, 1))
    assert with_overlap == without and len(without) >= 3 * 2 * 3
    for _, on in pairs:
        fractions = [on.metrics[step]["overlap/trained_fraction"] for step in (1, 2, 3)]
        assert all(0.03 < each < 1 for each in fractions)


@pytest.mark.parametrize(("layout", "kind"), RUNS)
def test_leases_grow_as_ranks_are_released_and_leave_no_memory_behind(layout, kind, pairs):
    _, ep, tp = layout
    for rank, (off, on) in enumerate(pairs):
        first, position = rank - rank % ep, rank % ep // tp
        own = [
            tuple(first + replica * tp + place for replica in lease for place in range(tp))
            for lease in LEASES[ep // tp]
            if position in lease
        ]
        assert off.leases == []
        assert on.leases == [(step, lease) for step in (1, 2, 3) for lease in own]
        # The first steps make what stays: state of the optimizer, tables of positions.
        assert on.held_bytes[-1] <= on.held_bytes[-2] * 1.03
        assert max(on.guests_after) == 0
        assert max(on.guests_before) == 0 or position == ep // tp - 1
    # The experts of those that joined the lease have gone home; those of position 0 are where it began.
    for first in range(0, len(pairs), ep):
        before = zip(*(on.guests_before for _, on in pairs[first : first + ep]), strict=True)
        assert max(map(sum, before)) == 12 // ep * tp
