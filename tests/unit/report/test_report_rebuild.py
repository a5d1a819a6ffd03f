"""`flexfloor report`: what a run's folder becomes again, and what is said of a folder without a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flexfloor import cli
from flexfloor.ledger.store import LedgerFile
from flexfloor.ledger.types import Interval, State, StepRecord
from flexfloor.track import names


def record(rank: int, step: int) -> StepRecord:
    """6 s: generating, a shrink at 1, released (rank 1) or generating (rank 0) to 4, training to 6."""
    stays = State.GENERATING if rank == 0 else State.WAITING
    parts = [
        (0.0, 1.0, State.GENERATING, "rollout"),
        (1.0, 1.5, State.SHRINKING, "rollout"),
        (1.5, 4.0, stays, "rollout"),
        (4.0, 6.0, State.TRAINING, "update"),
    ]
    intervals = tuple(Interval(start_s=b, end_s=e, state=state, stage=stage) for b, e, state, stage in parts)
    released = 1.5 if rank else None
    return StepRecord(
        rank=rank, step=step, opened_s=10.0 * step, seconds=6.0, intervals=intervals, released_s=released
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of two ranks and two steps, killed while it wrote the third."""
    folder = tmp_path / "my_run"
    ledger = LedgerFile(folder / "ledger.jsonl")
    for step in (0, 1):
        ledger.append([record(0, step), record(1, step)])
    ledger.close()
    metrics = [{"step": step, names.REWARD: 0.25 + 0.5 * step, "timing_s/step": 6.0} for step in (0, 1)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics))
    for name in ("ledger.jsonl", "metrics.jsonl"):
        with (folder / name).open("a") as file:
            file.write('{"step": 2, "ra')
    return folder


def test_a_stopped_run_gets_page_picture_trace_and_table(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    assert cli.main(["report", str(run)]) == 0
    after = {path.name: path.read_bytes() for path in run.iterdir()}
    assert after.keys() == before.keys() | {"report.html", "timeline.png", "trace.json"}
    assert all(after[name] == content for name, content in before.items())
    assert after["timeline.png"].startswith(b"\x89PNG")
    events = json.loads(after["trace.json"])["traceEvents"]
    assert events[0]["args"] == {"name": "my_run"}
    [shrink] = [e for e in events if e.get("cat") == "shrinking" and e["tid"] == 1 and e["args"]["step"] == 1]
    assert (shrink["ts"], shrink["dur"]) == (11.0e6, 0.5e6)
    out = capsys.readouterr().out
    [reward] = [line for line in out.splitlines() if "mean reward" in line]
    assert "0.250" in reward and "0.750" in reward
    assert str(run / "timeline.png") in out and str(run / "report.html") in out


def test_a_second_report_writes_the_same(run: Path) -> None:
    written = []
    for _ in range(2):
        assert cli.main(["report", str(run)]) == 0
        written.append([(run / name).read_bytes() for name in ("trace.json", "report.html")])
    assert written[0] == written[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{tmp}/none"], "{tmp}/none: there is no such folder"),
        (["{tmp}"], "{tmp} holds no run, no step in ledger.jsonl"),
        ([], "takes the folder of one run, and 0 were given"),
        (["a", "b"], "takes the folder of one run, and 2 were given"),
    ],
)
def test_what_is_no_run_is_told(
    tmp_path: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["report", *(word.format(tmp=tmp_path) for word in words)]) == 2
    assert message.format(tmp=tmp_path) in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_broken_line_inside_of_the_ledger_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run / "ledger.jsonl"
    path.write_text("broken\n" + path.read_text())
    assert cli.main(["report", str(run)]) == 1
    assert f"{path}, line 1: no JSON object" in capsys.readouterr().err
