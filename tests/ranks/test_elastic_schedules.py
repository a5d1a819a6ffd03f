"""Shrink schedules that nobody chose: drawn by the dozen, run on ranks that are started once for all."""

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest
import rollout_ranks as ranks
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

from flexfloor import parallel
from flexfloor.launch import run_ranks

TOP_K = {"mixtral": 2, "deepseek_v3": 4}
LONGEST_SEQUENCE = max(len(r.prompt_ids) + r.max_new_tokens for r in ranks.requests())
DEALS = ["by response", "backwards", "by prompt", "longest first", "last rank"]
WHOLE = {"path": "fast", "deal": "by response"}
RUNS = [
    ("mixtral", 4, 2, 12, 0),
    *(
        pytest.param(name, *layout, 40, number, marks=pytest.mark.slow)
        for name, layout, number in [
            ("mixtral", (2, 2), 1),
            ("mixtral", (4, 4), 2),
            ("mixtral", (4, 2), 3),
            ("deepseek_v3", (2, 2), 4),
            ("deepseek_v3", (3, 3), 5),
            ("deepseek_v3", (4, 4), 6),
            ("deepseek_v3", (4, 2), 7),
        ]
    ),
]


@dataclasses.dataclass(frozen=True)
class Case:
    """One rollout whose group may shrink."""

    elastic: dict[str, Any]
    deal: str
    max_live: int
    admission: str
    kv_tokens: int
    """Of a rank's cache."""
    lengths: list[int] | None
    """Forced, of each request; None = responses end by themselves."""


def cases(ep_size):
    """Any `Case` for a group of `ep_size` ranks."""
    made = ranks.requests()
    forced = st.tuples(*(st.integers(1, r.max_new_tokens) for r in made)).map(list)
    short = st.tuples(*(st.sampled_from([1, 2, r.max_new_tokens]) for r in made)).map(list)
    return st.builds(
        Case,
        elastic=st.fixed_dictionaries(
            {
                "policy": st.sampled_from(["greedy", "greedy", "greedy", "idle"]),
                "interval": st.integers(1, 6),
                "rungs": st.lists(st.integers(1, ep_size - 1), unique=True),
                "sequences_per_rank": st.none() | st.integers(1, len(made)),
            }
        ),
        deal=st.sampled_from(DEALS),
        max_live=st.sampled_from([64, 64, 64, 3, 1]),
        admission=st.sampled_from(["predicted", "predicted", "reserve"]),
        kv_tokens=st.integers(LONGEST_SEQUENCE, 160) | st.just(2_000),
        lengths=st.none() | forced | short,
    )


def drawn(ep_size, number, from_seed):
    """`number` cases, the same at every call, and a third of them once more with `elastic.detach`."""
    found = []

    @seed(from_seed)
    @settings(max_examples=number, database=None, phases=[Phase.generate])
    @given(cases(ep_size))
    def collect(case):
        found.append(case)

    collect()
    return found + [dataclasses.replace(case, elastic=case.elastic | {"detach": True}) for case in found[::3]]


def run_cases(name, ep_size, wanted):
    """What the fixed group and each case gave: (responses by key, statistics of all ranks)."""
    from flexfloor.elastic.ladder import make_ladder
    from flexfloor.rollout.kv_shape import kv_shape

    model = ranks.new_model(ep_size, "float64", name)
    per_token = kv_shape(model.config).bytes_per_token(8)
    rungs = sorted({tuple(sorted(case.elastic["rungs"])) for case in wanted})
    ladders = {
        each: make_ladder(parallel.groups().ep, each, timeout_seconds=60, alone=True) for each in rungs
    }
    lengths = [request.max_new_tokens for request in ranks.requests()]
    found = [ranks.generate(model, **WHOLE), ranks.generate(model, forced=lengths, **WHOLE)]
    for case in wanted:
        found.append(
            ranks.generate(
                model,
                path="fast",
                deal=case.deal,
                max_live=case.max_live,
                admission=case.admission,
                kv_budget_bytes=case.kv_tokens * per_token,
                forced=case.lengths,
                elastic=case.elastic,
                ladder=ladders[tuple(sorted(case.elastic["rungs"]))],
            )
        )
    return found


@functools.cache
def outcome(name, world_size, ep_size, number, from_seed):
    wanted = drawn(ep_size, number, from_seed)
    found = run_ranks(
        run_cases, world_size, name, ep_size, wanted, threads_per_rank=1, total_timeout_seconds=280
    )[0]
    return found[0][0], found[1][0], list(zip(wanted, found[2:], strict=True))


def expected(case, ended, whole):
    """{key: tokens}: those of the fixed group; of a forced response, the first of the longest one."""
    if case.lengths is None:
        return {key: response.token_ids for key, response in ended.items()}
    keys = [(request.uid, request.response_index) for request in ranks.requests()]
    return {key: whole[key].token_ids[:n] for key, n in zip(keys, case.lengths, strict=True)}


@pytest.mark.parametrize(("name", "world_size", "ep_size", "number", "from_seed"), RUNS)
def test_no_schedule_changes_a_token_or_loses_a_row(name, world_size, ep_size, number, from_seed):
    ended, whole, told = outcome(name, world_size, ep_size, number, from_seed)
    seen = {"shrinks": 0, "moved_sequences": 0, "preemptions": 0, "is_detached": 0}
    for case, (responses, stats) in told:
        got = {key: response.token_ids for key, response in responses.items()}
        assert got == expected(case, ended, whole), case
        check_rows(case, stats, TOP_K[name])
        check_sizes(case, stats, ep_size)
        for what in seen:
            seen[what] += sum(getattr(each, what) for each in stats)
    # What was drawn is worth something: cases shrink, move what is unfinished, yield, and some detach.
    assert seen["is_detached"] > 1 and all(3 * seen[what] >= number for what in list(seen)[:3]), seen
    if world_size > ep_size:
        assert any(len({each.passes for each in stats[::ep_size]}) > 1 for _, (_, stats) in told)


def check_rows(case, stats, top_k):
    """Every row of every sequence, and none else, was routed to each of its experts once."""
    counts = np.sum([each.expert_load for each in stats], axis=0)
    total = {
        what: sum(getattr(each, what) for each in stats)
        for what in ("prefilled_tokens", "recomputed_tokens", "decoded_tokens", "preemptions")
    }
    # A token that comes from a prefill has no row of its own, and a response's last one is never fed.
    rows = sum(total.values()) - 2 * total["preemptions"] - len(ranks.requests())
    assert (counts.sum(axis=1) == top_k * rows).all(), case


def check_sizes(case, stats, ep_size):
    """A group takes allowed rungs only, downward, and each rank knows of them until it leaves."""
    allowed = set(case.elastic["rungs"]) or set(range(1, ep_size))
    for first in range(0, len(stats), ep_size):
        group = stats[first : first + ep_size]
        sizes = [size for _, size in group[0].active_ranks]
        parted = [each.is_detached for each in group]
        if any(parted):
            # a rank with nothing left knows how many go on, too
            assert case.elastic["detach"] and sum(parted) == sizes.pop() and all(e.is_released for e in group)
        assert sizes[0] == ep_size and set(sizes[1:]) <= allowed, case
        assert sizes == sorted(set(sizes), reverse=True), case
        if not any(parted):
            assert [each.is_released for each in group] == [p >= sizes[-1] for p in range(ep_size)], case
