"""Ranks that part with all experts: when memory allows it, what is told, and that nobody waits."""

import gc
import time

import pytest
import rollout_ranks as ranks
import torch
import torch.distributed as dist
from test_memory_floor import held_bytes

from flexfloor import parallel
from flexfloor.launch import run_ranks
from flexfloor.rollout.types import Request

DETACH = {"policy": "idle", "interval": 1, "detach": True}
TIMEOUT_SECONDS, PASS_SECONDS, PASSES = 2.0, 0.5, 12


def new_engine(model, path, budget=None):
    from flexfloor.elastic.config import ElasticConfig
    from flexfloor.elastic.ladder import make_ladder
    from flexfloor.rollout.config import RolloutConfig
    from flexfloor.rollout.engine import RolloutEngine

    group = parallel.groups().ep
    return RolloutEngine(
        model,
        group=group,
        rollout=RolloutConfig(path=path, ignore_eos=True, max_live_sequences=4),
        eos_id=ranks.EOS,
        elastic=ElasticConfig(**DETACH),
        ladder=make_ladder(group, [], timeout_seconds=TIMEOUT_SECONDS, alone=True),
        budget_bytes=budget,
    )


def requests(rank, lengths):
    return [
        Request(uid=f"{rank}", response_index=i, prompt_ids=(3, 4 + rank), max_new_tokens=length)
        for i, length in enumerate(lengths)
    ]


def generate_slowly_on_rank_1(path):
    """Seconds until this rank is done, and what it was told before its passes."""
    from flexfloor.elastic.reunion import meet

    model = ranks.new_model(2, "float64")
    engine, told = new_engine(model, path), []

    def on_pass(progress):
        told.append((progress.finished, progress.active, progress.is_detached))
        if progress.is_detached and dist.get_rank() == 1:
            time.sleep(PASS_SECONDS)

    mine = requests(dist.get_rank(), [1, 3] if dist.get_rank() == 0 else [1, PASSES])
    start = time.monotonic()
    responses, stats = engine.generate(mine, seed=3, on_pass=on_pass)
    seconds = time.monotonic() - start
    meet()
    dist.all_reduce(total := torch.tensor([len(responses)]))
    return seconds, told, stats.passes, total.item()


@pytest.mark.parametrize("path", ["fast", "reference"])
def test_no_pass_and_no_join_waits_for_another_rank(path):
    assert TIMEOUT_SECONDS < PASS_SECONDS * (PASSES - 1) / 2
    (quick, told, passes, total), (slow, told_1, passes_1, _) = run_ranks(
        generate_slowly_on_rank_1,
        2,
        path,
        collective_timeout_seconds=TIMEOUT_SECONDS,
        threads_per_rank=1,
        total_timeout_seconds=120,
    )
    assert (passes, passes_1, total) == (3, PASSES, 4)
    assert slow - quick > TIMEOUT_SECONDS
    # after the first pass both ranks have ended one response each; then each counts its own
    assert told == [(0, 2, False), (2, 2, True), (2, 2, True), (3, 2, True)]
    assert told_1 == [(0, 2, False)] + [(2, 2, True)] * (PASSES - 1) + [(3, 2, True)]


def generate_under(experts_beside):
    """For each number of experts that a full rank can have besides its own: what happened on this one."""
    from flexfloor.elastic.floor import Need
    from flexfloor.rollout.footprint import rank_memory

    model = ranks.new_model(2, "float64")
    weights = sum(weight.nbytes for weight in model.parameters())
    gc.collect()
    gc.freeze()  # what is there by now is not looked at again
    memory = rank_memory(model, budget=1, training=0)
    longest = 2 + 30
    # what four live sequences need, in a pass that all eight of the group join
    full = Need(sequences=4, kv_tokens=4 * longest, rows=8 * 2 + longest)
    found = []
    for beside in experts_beside:
        budget, told, held = memory.needed(4 + beside, full), [], []
        responses, stats = new_engine(model, "fast", budget).generate(
            requests(dist.get_rank(), [2, 5, 9, 30]),
            seed=3,
            on_pass=lambda progress, told=told, held=held: (
                told.append(progress.is_detached),
                held.append(held_bytes() + weights),
            ),
        )
        tokens = {response.response_index: response.token_ids for response in responses}
        found.append((stats.moved_bytes, told, max(held) <= budget, tokens))
    return found


def test_ranks_part_when_finished_sequences_have_freed_the_memory():
    for found in run_ranks(generate_under, 2, (0, 3, 4), threads_per_rank=1, total_timeout_seconds=120):
        moved, told, is_within_budget, tokens = zip(*found, strict=True)
        never, later, at_once = (passes.index(True) if any(passes) else None for passes in told)
        assert never is None and at_once == 1 < later < 9, (never, later, at_once)
        assert moved[0] == 0 < moved[1] == moved[2]
        assert all(is_within_budget)
        assert tokens[0] == tokens[1] == tokens[2]
