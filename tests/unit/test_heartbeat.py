"""What a rank publishes of itself."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from flexfloor import heartbeat
from flexfloor.heartbeat import Beat
from flexfloor.launch.beat_file import BeatFile
from flexfloor.launch.stacks import innermost_calls, main_thread


@pytest.fixture(autouse=True)
def own_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that has done nothing yet."""
    monkeypatch.setattr(heartbeat, "_rank", heartbeat._Rank())


def test_stages_nest_and_a_failed_one_stays_to_be_named() -> None:
    heartbeat.enter_step(3)
    with heartbeat.stage("rollout"):
        with heartbeat.stage("reward"):
            assert heartbeat.now().place == "step 3, stage reward"
        assert heartbeat.now().place == "step 3, stage rollout"
    assert heartbeat.now().place == "step 3, between two stages"
    with pytest.raises(KeyError), heartbeat.stage("update"):
        raise KeyError
    assert heartbeat.now().place == "step 3, stage update"


def test_an_allowance_ends_with_a_beat_and_never_shortens_an_outer_one() -> None:
    with heartbeat.allow(100), pytest.raises(KeyError), heartbeat.allow(10):
        assert heartbeat.now().allowed_seconds == 100
        inside = heartbeat.now().beats
        raise KeyError
    after = heartbeat.now()
    assert after.allowed_seconds == 0 and after.beats > inside


def test_the_published_beat_grows_and_names_the_line_of_the_main_thread(tmp_path: Path) -> None:
    file, ended = BeatFile(str(tmp_path), 7), threading.Event()
    assert file.read() is None

    def publish(beat: Beat) -> bool:
        file.write(beat)
        return not ended.is_set()

    heartbeat.publish_with(publish)
    deadline = time.monotonic() + 30
    while (beat := file.read()) is None or beat.alive < 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "test_heartbeat.py" in beat.where and not beat.waits
    assert beat.rss_bytes > 2**20 and beat.beats == 0
    with heartbeat.stage("rollout"):
        assert file.read().place == "stage rollout", "a change of stage is published at once"
    ended.set()


def test_a_shorter_beat_leaves_nothing_of_a_longer_one(tmp_path: Path) -> None:
    file = BeatFile(str(tmp_path), 0)
    file.write(Beat(where="x" * 1000))
    file.write(Beat(where="y", step=1))
    assert BeatFile(str(tmp_path), 0).read() == Beat(where="y", step=1)
    (tmp_path / "rank_0.beat").write_text('{"beats": 1')
    assert file.read() is None


STACKS = """Thread 0x01 (most recent call first):
  File "reward.py", line 4 in compute_score
  File "pool.py", line 9 in _work

Current thread 0x02 (most recent call first):
  File "torch/nn.py", line 3 in forward
  File "step.py", line 2 in update
"""


def test_the_stacks_of_a_hang_are_shown_the_way_of_a_traceback() -> None:
    assert [line.strip() for line in main_thread(STACKS).splitlines()] == [
        'File "step.py", line 2 in update',
        'File "torch/nn.py", line 3 in forward',
    ]
    calls = [line.split()[1] for line in innermost_calls(STACKS).splitlines()]
    assert calls == ['"reward.py",', '"pool.py",', '"torch/nn.py",', '"step.py",']
    assert main_thread("") == innermost_calls("") == ""
