"""A made-up run of any size: its numbers come from a seed, not from a model."""

from __future__ import annotations

import json
import random
from pathlib import Path

from flexfloor.ledger.store import LedgerFile
from flexfloor.ledger.types import EARLY_UPDATE, Interval, State, StepRecord
from flexfloor.track.lengths import LengthLog, StepLengths

Part = tuple[float, State, str, float | None]
"""End in seconds of the step, state, stage, and where its idle part begins."""


EARLY: list[Part] = [
    (6.0, State.WAITING, "rollout", None),
    (7.0, State.TRAINING, EARLY_UPDATE, None),
    (7.5, State.WAITING, EARLY_UPDATE, None),
    (8.0, State.TRAINING, EARLY_UPDATE, None),
]
"""Of a rank that is leased."""


def record(rank: int, step: int, opened_s: float, parts: list[Part]) -> StepRecord:
    """A record whose intervals follow one another from 0 on."""
    intervals, start = [], 0.0
    for end, state, stage, idle in parts:
        intervals.append(Interval(start_s=start, end_s=end, state=state, stage=stage, idle_from_s=idle))
        start = end
    released = [each.start_s for each in intervals if each.is_released]
    return StepRecord(
        rank=rank,
        step=step,
        opened_s=opened_s,
        seconds=start,
        intervals=tuple(intervals),
        released_s=released[0] if released else None,
    )


def made_step(step: int, num_ranks: int, opened_s: float, draw: random.Random) -> list[StepRecord]:
    """8 s of rollout in which the upper half of the ranks leave at 5 s, scoring, 3 s of update.

    The first to leave trains early, from 6 s on but for a wait from 7 to 7.5 s.
    """
    records = []
    for rank in range(num_ranks):
        leaves = rank >= num_ranks / 2
        done = draw.uniform(3.0, 4.9) if leaves else draw.uniform(5.5, 8.0)
        after = EARLY if rank == num_ranks - 1 and num_ranks > 1 else [(8.0, State.WAITING, "rollout", None)]
        parts: list[Part] = [
            (0.01, State.WAITING, "other", None),
            (5.0, State.GENERATING, "rollout", done if leaves else None),
            (5.2, State.SHRINKING, "rollout", None),
            *(after if leaves else [(8.0, State.GENERATING, "rollout", done)]),
            (8.3, State.WAITING, "reward", None),
            (11.3, State.TRAINING, "update", None),
            (11.4, State.WAITING, "join", None),
        ]
        records.append(record(rank, step, opened_s, parts))
    return records


def made_lengths(num_responses: int, draw: random.Random, is_predicted: bool) -> StepLengths:
    """Log-normal lengths of at most 1,024 tokens around a length of the prompt's, which is predicted."""
    uid, tokens, middle = [], [], []
    for i in range(num_responses):
        expected = 300 * 2 ** draw.gauss(0, 1.3)
        uid.append(f"</script><script>alert({i // 4})</script>")
        middle.append(min(expected, 1024.0))
        tokens.append(max(1, min(1024, round(expected * 2 ** draw.gauss(0, 0.7)))))
    # 0.9 = 0.7 octaves of spread times the 1.28 deviations that hold 80 %
    return StepLengths(
        uid=uid,
        response_index=[i % 4 for i in range(num_responses)],
        num_tokens=tokens,
        truncated=[length == 1024 for length in tokens],
        predicted_p10=[value / 2**0.9 for value in middle] if is_predicted else None,
        predicted_p50=middle if is_predicted else None,
        predicted_p90=[value * 2**0.9 for value in middle] if is_predicted else None,
    )


def make_run(
    folder: Path, *, num_steps: int, num_ranks: int, num_responses: int = 64, is_predicted: bool = True
) -> Path:
    """Write ledger, metrics and lengths of a run into `folder` and return it."""
    draw = random.Random(0)
    ledger = LedgerFile(folder / "ledger.jsonl")
    lengths = LengthLog(folder / "lengths.jsonl")
    with (folder / "metrics.jsonl").open("w") as metrics:
        for step in range(num_steps):
            ledger.append(made_step(step, num_ranks, 11.5 * step, draw))
            made = made_lengths(num_responses, draw, is_predicted and step > 0)
            lengths.write(step, made)
            ordered = sorted(made.num_tokens)
            values = {
                "critic/score/mean": 0.4 + 0.4 * step / num_steps + draw.uniform(0, 0.05),
                "response_length/p50": ordered[len(ordered) // 2],
                "response_length/p90": ordered[9 * len(ordered) // 10],
                "response_length/max": ordered[-1],
                "perf/response_tokens": sum(ordered),
            }
            if step % 5 == 0:
                values["val-core/made/mean@1"] = 0.45 + 0.4 * step / num_steps
            metrics.write(json.dumps({"step": step, **values}) + "\n")
    ledger.close()
    lengths.close()
    return folder
