"""The part `elastic` of `gpu_check`: ranks leave while others generate, and the tokens stay the same.

NCCL takes one rank of a device, and gloo sends no tensor of a GPU from one rank to another, as a shrink has
to. So there are as many ranks as GPUs, four at most, and on one GPU there is nothing to leave: EP = 1. On a
CPU two ranks do it over gloo.
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gpu_parts import Result, seat

from flexfloor import device

MOST_RANKS, RANKS_ON_CPU = 4, 2
SHAPE = {"num_layers": 2, "hidden_size": 64, "moe_ffn_hidden_size": 96, "num_experts": 12, "init_std": 0.2}
VOCAB, PROMPT, LONGEST = 64, 6, 40
FOUND = "found.json"


def run(size: str) -> Iterator[Result]:
    """Float64 must give the same tokens; bfloat16, or float32 on a CPU, is told."""
    ranks = min(MOST_RANKS, device.num_accelerators()) if device.num_accelerators() else RANKS_ON_CPU
    if ranks == 1:
        why = "one GPU takes one rank of NCCL: EP = 1, and no rank can leave"
        yield "ranks that leave", True, {"ran": False, "why": why}
        return
    dtypes = ("float64", "float32" if device.is_cpu_host() else "bfloat16")
    for dtype, (fixed, shrunk) in _on_ranks(ranks, dtypes).items():
        same = sum(shrunk["tokens"][key] == tokens for key, tokens in fixed["tokens"].items())
        is_whole = len(fixed["tokens"]) == len(shrunk["tokens"]) == 3 * ranks
        is_right = is_whole and shrunk["shrinks"] > 0 and (same == 3 * ranks or dtype != "float64")
        figures = {"shrinks": shrunk["shrinks"], "moved_bytes": shrunk["moved_bytes"]}
        told = {"ran": True, "ranks": ranks, **figures, "same": f"{same} of {3 * ranks}"}
        yield f"ranks that leave, {dtype}", is_right, told


def _on_ranks(world_size: int, dtypes: Sequence[str]) -> dict[str, Any]:
    """By type: what all ranks generated without and with leaving; a rank that fails ends this process."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="gpu-check-ranks-") as folder:
        ranks = [
            context.Process(target=_rank, args=(rank, world_size, dtypes, folder))
            for rank in range(world_size)
        ]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join(120)
        codes = [rank.exitcode for rank in ranks]
        for rank in ranks:
            rank.kill()
        if any(code != 0 for code in codes):
            raise SystemExit(f"ranks ended with {codes}; None is one that did not end")
        return json.loads((Path(folder) / FOUND).read_text())


def _rank(rank: int, world_size: int, dtypes: Sequence[str], folder: str) -> None:
    with seat(folder, rank=rank, world_size=world_size):
        from flexfloor import parallel

        parallel.initialize(ep_size=world_size, seed=0, timeout_seconds=60)
        found = {dtype: [_generate(policy, dtype) for policy in ("never", "greedy")] for dtype in dtypes}
        if rank == 0:
            (Path(folder) / FOUND).write_text(json.dumps(found))


def _generate(policy: str, dtype: str) -> dict[str, Any]:
    import torch.distributed as dist

    from flexfloor import parallel
    from flexfloor.elastic.config import ElasticConfig
    from flexfloor.elastic.ladder import make_ladder
    from flexfloor.models.build import build_model
    from flexfloor.models.config import ModelConfig
    from flexfloor.rollout.config import RolloutConfig
    from flexfloor.rollout.engine import RolloutEngine
    from flexfloor.rollout.types import Request

    groups, rank = parallel.groups(), dist.get_rank()
    model = build_model(
        ModelConfig(**SHAPE, dtype=dtype),
        vocab_size=VOCAB,
        max_sequence_length=LONGEST,
        groups=groups,
        groups_experts=True,
    )
    engine = RolloutEngine(
        model,
        group=groups.ep,
        rollout=RolloutConfig(ignore_eos=True),
        eos_id=0,
        elastic=ElasticConfig(policy=policy, interval=2),
        ladder=make_ladder(groups.ep, [], timeout_seconds=60),
    )
    requests = [
        Request(
            uid=f"{rank}",
            response_index=i,
            prompt_ids=tuple(range(1, PROMPT + rank)),
            max_new_tokens=4 + 8 * i + rank,
        )
        for i in range(3)
    ]
    responses, stats = engine.generate(requests, seed=0)
    told: list[Any] = [None] * dist.get_world_size()
    tokens = {f"{each.uid}/{each.response_index}": list(each.token_ids) for each in responses}
    dist.all_gather_object(told, (tokens, stats.shrinks, stats.moved_bytes))
    return {
        "tokens": {key: value for each, _, _ in told for key, value in each.items()},
        "shrinks": max(shrinks for _, shrinks, _ in told),
        "moved_bytes": sum(moved for _, _, moved in told),
    }
