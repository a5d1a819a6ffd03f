"""torchrun with two nodes on one machine: the same run as ranks that FlexFloor starts itself."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist
from small_run import SMALL, learned, metrics_of, run

from flexfloor import launch
from flexfloor.config import Config, compose
from flexfloor.errors import ConfigError
from flexfloor.jobs.work import train_on_rank
from flexfloor.launch import peer_watch, run_ranks, shared_folder, start

FLOAT64 = [
    "launch.threads_per_rank=1",
    "model.dtype=float64",
    "trainer.test_freq=-1",
    "trainer.val_before_train=false",
    "trainer.total_training_steps=1",
]
REPORT = """
import os, socket, sys
import torch, torch.distributed as dist
from flexfloor import launch

def report():
    told = [None] * dist.get_world_size()
    place = os.environ["GROUP_RANK"], int(os.environ["LOCAL_RANK"]), torch.get_num_threads()
    dist.all_gather_object(told, place)
    if dist.get_rank() == 0:
        open(sys.argv[1], "w").write(repr(told))

launch.run_this_rank(report)
"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def torchrun(words: list[str], *, ranks: int, folders: list[Path]) -> list[tuple[int, str]]:
    """Status and output of a torchrun for each of `folders`, which are the nodes' working folders."""
    meeting = [f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-backend=c10d", "--rdzv-id=test"]
    nodes = []
    for node, folder in enumerate(folders):
        shape = [f"--nnodes={len(folders)}", f"--node-rank={node}", f"--nproc-per-node={ranks}"]
        nodes.append(
            subprocess.Popen(
                [sys.executable, "-m", "torch.distributed.run", *meeting, *shape, *words],
                cwd=folder,
                env={**os.environ, "PYTHONHASHSEED": "0"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    return [(node.wait(), out) for node in nodes for out, _ in [node.communicate(timeout=200)]]


def test_two_nodes_train_as_two_ranks_do(tmp_path) -> None:
    words = ["-m", "flexfloor", "train", *SMALL, *FLOAT64, f"trainer.default_local_dir={tmp_path}/nodes"]
    for status, out in torchrun(words, ranks=1, folders=[tmp_path, tmp_path]):
        assert status == 0, out
    assert run(tmp_path / "ranks", *FLOAT64) == 0
    nodes, ranks = metrics_of(tmp_path / "nodes"), metrics_of(tmp_path / "ranks")
    assert sorted(nodes) == [0, 1]
    assert {step: learned(nodes[step]) for step in nodes} == {step: learned(ranks[step]) for step in ranks}


@pytest.mark.slow
def test_a_rank_knows_its_place_on_its_node(tmp_path) -> None:
    (tmp_path / "report.py").write_text(REPORT)
    words = [str(tmp_path / "report.py"), str(tmp_path / "told")]
    for status, out in torchrun(words, ranks=2, folders=[tmp_path, tmp_path]):
        assert status == 0, out
    threads = max(1, len(os.sched_getaffinity(0)) // 2)
    places = [(node, local_rank, threads) for node in "01" for local_rank in (0, 1)]
    assert (tmp_path / "told").read_text() == repr(places), "threads are shared among a node's own ranks"


def train_elsewhere(config: Config, folder: Path) -> None:
    """Train with a working folder of this rank's own."""
    own = folder / str(dist.get_rank())
    own.mkdir()
    os.chdir(own)
    shared_folder.PATIENCE_SECONDS = 0.5
    train_on_rank(config)


def test_ranks_that_share_no_folder_are_told(tmp_path) -> None:
    config = compose([*SMALL, "trainer.default_local_dir=run"])
    with pytest.raises(ConfigError) as raised:
        run_ranks(train_elsewhere, 2, config, tmp_path)
    assert str(raised.value).startswith(
        "trainer.default_local_dir = run: must be a folder that all machines share; rank 1 does not see in "
    )
    assert f":{tmp_path}/1/run what rank 0 writes in " in str(raised.value)
    assert [path.name for path in tmp_path.rglob("*")].count("run") == 1
    assert not list((tmp_path / "0" / "run").iterdir()), "nothing is left there"


def test_a_rank_takes_the_seat_that_its_launcher_says(monkeypatch) -> None:
    seats = []
    monkeypatch.setattr(start, "take_seat", lambda seat: seats.append(seat) or (lambda: None))
    monkeypatch.setattr(peer_watch, "open_store", lambda: None)
    monkeypatch.setattr(peer_watch.PeerWatch, "publish", lambda self, beat: False)
    monkeypatch.setattr(peer_watch.PeerWatch, "leave", lambda self: None)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)))
    for name, value in {"RANK": 5, "WORLD_SIZE": 6, "LOCAL_RANK": 2, "LOCAL_WORLD_SIZE": 3}.items():
        monkeypatch.setenv(name, str(value))
    assert launch.run_this_rank(lambda: "done") == "done"
    [seat] = seats
    assert (seat.rank, seat.world_size, seat.local_rank, seat.threads) == (5, 6, 2, 4)
    assert seat.init_method == "env://"
