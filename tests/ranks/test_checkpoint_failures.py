"""A full disk or a corrupt file ends all ranks at once with its name; the checkpoint before stays."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_moe
import torch.distributed as dist
from test_checkpoint import load, run_two, save

from flexfloor.errors import CheckpointError
from flexfloor.train.checkpoint_folder import latest_checkpoint

SECONDS_TO_END = 20
"""Far below the 30 s after which a collective gives up in `run_two`."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB, of which a checkpoint here takes a third."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a small disk needs privileges that this process lacks")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def save_until_full(folder: str, fill: str | None) -> None:
    """Save step 1, take up what is left of the disk but a little, and save step 2."""
    training = tiny_moe.build(ep_size=2)
    tiny_moe.step(training, 0)
    save(training, folder, 1, extra={"save": 1})
    if dist.get_rank() == 0 and fill is not None:
        free = shutil.disk_usage(folder).free
        Path(fill).write_bytes(bytes(max(0, free - 300_000)))
    dist.barrier()
    save(training, folder, 2, extra={"save": 2})


def save_under_a_limit(folder: str, failing_rank: int) -> None:
    """Save step 1, and step 2 with files of the failing rank limited by the operating system."""
    training = tiny_moe.build(ep_size=2)
    tiny_moe.step(training, 0)
    save(training, folder, 1, extra={"save": 1})
    if dist.get_rank() == failing_rank:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
    save(training, folder, 2, extra={"save": 2})


def save_with_a_full_disk_at(folder: str, place: str) -> None:
    """Save step 1, and step 2 with a disk that is full for rank 0 alone when it comes to `place`."""
    training = tiny_moe.build(ep_size=2)
    save(training, folder, 1, extra={"save": 1})
    if dist.get_rank() == 0:
        _fill_at(place)
    save(training, folder, 2, extra={"save": 2})


def _fill_at(place: str) -> None:
    from megatron.core.dist_checkpointing import serialization
    from torch.distributed.checkpoint import FileSystemWriter

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if place == "the plan":
        serialization.save_preprocess = full
    elif place == "the shards' index":
        FileSystemWriter.finish = full
    else:
        serialization.save_config = full


def require_intact(folder: str, step: int) -> None:
    """All ranks compare the checkpoint's files with what was written."""
    from flexfloor.train import checkpoint

    checkpoint.require_intact(Path(folder) / f"step_{step:06d}")


def load_intact(folder: str) -> None:
    """Check the checkpoint of step 1, and load it into a fresh model."""
    require_intact(folder, 1)
    load(tiny_moe.build(ep_size=2), Path(folder) / "step_000001")


def assert_first_stays(folder: Path) -> None:
    """Only the checkpoint of step 1 is found; it is what was written, and loads."""
    found = latest_checkpoint(folder)
    assert found == folder / "step_000001" and '"save": 1' in (found / "plain.json").read_text()
    run_two(load_intact, str(folder))


def test_full_disk(small_disk: Path) -> None:
    started = time.monotonic()
    message = r"cannot write .*/step_000002\.partial \(rank \d\): OSError: .*No space left.*Free space there"
    with pytest.raises(CheckpointError, match=message):
        run_two(save_until_full, str(small_disk), str(small_disk / "other"))
    assert time.monotonic() - started < SECONDS_TO_END
    assert_first_stays(small_disk)
    (small_disk / "other").unlink()
    assert shutil.disk_usage(small_disk).free > 1_000_000, "the broken save has given back its space"
    run_two(save_until_full, str(small_disk), None)
    assert latest_checkpoint(small_disk) == small_disk / "step_000002"


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_cannot_write_ends_all_with_its_reason(tmp_path: Path, rank: int) -> None:
    started = time.monotonic()
    message = (
        rf"cannot write .*/step_000002\.partial \(rank {rank}\): OSError: .*File too large.*same command"
    )
    with pytest.raises(CheckpointError, match=message):
        run_two(save_under_a_limit, str(tmp_path), rank)
    assert time.monotonic() - started < SECONDS_TO_END
    assert_first_stays(tmp_path)


@pytest.mark.parametrize("place", ["the plan", "the shards' index", "the last file"])
def test_rank_0_failing_where_the_others_wait_ends_all(tmp_path: Path, place: str) -> None:
    started = time.monotonic()
    with pytest.raises(CheckpointError, match=r"cannot write .*\(rank 0\): OSError: .*No space left"):
        run_two(save_with_a_full_disk_at, str(tmp_path), place)
    assert time.monotonic() - started < SECONDS_TO_END
    assert latest_checkpoint(tmp_path) == tmp_path / "step_000001"


def flip_a_bit(path: Path) -> None:
    """Change the file in the middle without changing its size."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def find_flipped_bits(folder: str) -> dict[str, str]:
    """What every file with one flipped bit is answered with, by its name; all are whole again afterwards."""
    training = tiny_moe.build(ep_size=2)
    tiny_moe.step(training, 0)
    path = save(training, folder, 1)
    require_intact(folder, 1)
    answers = {}
    for name in ("weights/__1_0.distcp", "rank_00001.npz", "plain.json", "weights/.metadata"):
        for _ in range(2):
            if dist.get_rank() == 0:
                flip_a_bit(path / name)
            dist.barrier()
            try:
                require_intact(folder, 1)
            except CheckpointError as error:
                answers[name] = str(error)
            dist.barrier()
    return answers


def test_a_flipped_bit_is_found_and_its_file_named_on_every_rank(tmp_path: Path) -> None:
    for answers in run_two(find_flipped_bits, str(tmp_path)):
        assert len(answers) == 4
        for name, answer in answers.items():
            assert f"step_000001/{name} is corrupt: its checksum is " in answer
    run_two(load_intact, str(tmp_path))
