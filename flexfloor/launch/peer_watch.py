"""The ranks of torchrun or Slurm watch each other, because no process of ours stands above them.

Each rank shows its beat in the run's store and looks at the others' beats there. The first that sees a hang
writes it into the store; then every rank that still can writes its stacks and ends.

Invariants:
- One rank tells of a hang: the first that sees it.
- Of a rank that raises only itself tells; of one that is gone without a word, the lowest that is left.
- Where the store is gone, so is the rank that holds it: the watch ends, and collectives fail by themselves.
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

from flexfloor.errors import RankError
from flexfloor.heartbeat import PERIOD_SECONDS, Beat, is_gone, is_stopped, lose_peer
from flexfloor.launch.hang import GIB, Hang, HangKind, HangWatch, hang_message
from flexfloor.launch.orphans import end_marked
from flexfloor.launch.rank_failure import error_on_this_rank, is_lost_peer
from flexfloor.launch.rank_process import Seat

_STORE_SECONDS = 30.0
_TELL_SECONDS = 2.0
"""How long the rank that tells waits for the others' stacks; they wait twice as long before they end."""
_RANKS_A_PERIOD = 64
"""Beats of so many ranks are read in one period; of more, less often."""
_VERDICT, _RAISED = "verdict", "raised"
_LEFT = "left"
"""Shown in place of a beat by a rank that is done."""


class PeerWatch:
    """Publishes this rank's beat and looks at all others'.

    Args:
        store: shared by the ranks of this run and no other.
        hang_seconds: as for `HangWatch`.
        stacks_folder: where each rank writes its stacks at a hang.
        mark: of the helpers that this rank starts.
    """

    def __init__(
        self, store: dist.Store, seat: Seat, *, hang_seconds: float, stacks_folder: Path | None, mark: str
    ) -> None:
        self._store, self._seat, self._mark = store, seat, mark
        self._stacks_folder = stacks_folder
        self._watch = HangWatch(hang_seconds)
        self._keys = [f"beat/{rank}" for rank in range(seat.world_size)]
        self._next_look = 0.0
        self._gone: dict[int, Beat] = {}
        self._leaving = self._explaining = False
        self._turn = threading.Lock()
        self._ending = threading.Lock()

    def publish(self, beat: Beat) -> bool:
        """Show `beat` and look at the others'. False when it is over."""
        try:
            with self._turn:
                if self._leaving:
                    return False
                self._store.set(self._keys[self._seat.rank], beat.to_json())
            if time.monotonic() >= self._next_look and not self._explaining:
                self._next_look = time.monotonic() + PERIOD_SECONDS * self._seat.world_size / _RANKS_A_PERIOD
                self._look()
        except RuntimeError:
            return False
        return True

    def leave(self) -> None:
        """This rank is done: nobody waits for it any more."""
        with self._turn, contextlib.suppress(RuntimeError):
            self._leaving = True
            self._store.set(self._keys[self._seat.rank], _LEFT)

    def explain(self, error: Exception) -> BaseException:
        """What to raise for `error` of this rank: itself with its place, or word of the rank that is gone."""
        self._end_for_a_hang()
        if not is_lost_peer(error):
            with contextlib.suppress(RuntimeError):
                self._store.set(_RAISED, "1")
            return error_on_this_rank(self._seat, error)
        return self._word_of_the_lost(error)

    def _word_of_the_lost(self, error: Exception) -> BaseException:
        if threading.current_thread() is threading.main_thread():
            # The launcher ends the ranks that are left, and this one has something to say first.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._explaining = True  # a rank that is gone stands still, too
        time.sleep(_TELL_SECONDS)
        try:
            before = self._beats()
            time.sleep(2 * PERIOD_SECONDS + 0.5)
            after = self._beats()
            told = self._store.check([_RAISED])
        except RuntimeError:
            return error_on_this_rank(self._seat, error)
        lost = [rank for rank, beat in after.items() if beat and beat == before.get(rank)]
        speaks = self._seat.rank == min((rank for rank in after if rank not in lost), default=None)
        if told or not speaks:
            return SystemExit(1)
        if not lost:
            return error_on_this_rank(self._seat, error)
        places = [f"{self._name(rank)}{_last_seen(after[rank])}" for rank in lost]
        return RankError(f"{self._seat.name} lost its connection to {' and '.join(places)}")

    def _end_for_a_hang(self) -> None:
        with contextlib.suppress(RuntimeError):
            if self._store.check([_VERDICT]):
                self._end(json.loads(self._store.get(_VERDICT)))

    def _look(self) -> None:
        self._end_for_a_hang()
        beats = self._beats()
        self._look_for_lost(beats)
        hang = self._watch.look(time.monotonic(), beats)
        if hang is not None:
            self._store.compare_set(_VERDICT, "", json.dumps(self._verdict(hang, beats)))
            self._end_for_a_hang()

    def _look_for_lost(self, beats: Mapping[int, Beat | None]) -> None:
        """Tell a rank that waits in no collective; on other hosts only the hang of a lost rank is seen."""
        host = os.uname().nodename
        here = {rank: beat for rank, beat in beats.items() if beat and beat.pid and beat.host == host}
        gone = {rank: beat for rank, beat in here.items() if is_gone(beat.pid)}
        for rank, beat in gone.items():
            # Seen twice: it did not just leave, nor does it run on another host of the same name.
            if self._gone.get(rank) == beat:
                lose_peer(self._name(rank))
        self._gone = gone

    def _beats(self) -> dict[int, Beat | None]:
        """Of the ranks that are not done; until all have shown one, none is looked at."""
        if not self._store.check(self._keys):
            return {}
        texts = [text.decode() for text in self._store.multi_get(self._keys)]
        return {rank: Beat.from_json(text) for rank, text in enumerate(texts) if text != _LEFT}

    def _verdict(self, hang: Hang, beats: Mapping[int, Beat | None]) -> dict[str, str | int]:
        culprit = beats[hang.rank]
        assert culprit is not None, hang
        stopped = culprit.host == os.uname().nodename and is_stopped(culprit.pid)
        known = {**beats, hang.rank: dataclasses.replace(culprit, stopped=stopped)}
        message = hang_message(self._name(hang.rank), hang, known, self._watch.hang_seconds)
        frozen = culprit.pid if hang.kind is HangKind.FROZEN else 0
        return {"message": message, "speaks": self._seat.rank, "frozen": frozen, "host": culprit.host}

    def _name(self, rank: int) -> str:
        return dataclasses.replace(self._seat, rank=rank).name

    def _end(self, verdict: Mapping[str, str | int]) -> None:
        # The heartbeat's thread and the main thread may both come here: the first ends the process.
        self._ending.acquire()
        message = str(verdict["message"]) + self._write_stacks()
        if verdict["speaks"] == self._seat.rank:
            time.sleep(_TELL_SECONDS)
            sys.stderr.write(f"flexfloor: {message}\n")
            sys.stderr.flush()
        else:
            time.sleep(2 * _TELL_SECONDS)
        end_marked(self._mark)
        if verdict["frozen"] and verdict["host"] == os.uname().nodename:
            # The launcher's SIGTERM does not reach it, and its patience is half a minute.
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(verdict["frozen"]), signal.SIGKILL)
        os._exit(1)

    def _write_stacks(self) -> str:
        if self._stacks_folder is None:
            return ""
        path = self._stacks_folder / f"stacks_{self._seat.rank}.txt"
        with contextlib.suppress(OSError), path.open("w") as file:
            faulthandler.dump_traceback(file, all_threads=True)
        return f"\nall ranks' stacks: {path.with_name('stacks_*.txt')}"


def open_store() -> dist.Store:
    """A connection of its own to the store that `env://` ranks meet at."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(address, port, is_master=False, timeout=timedelta(seconds=_STORE_SECONDS))
    return dist.PrefixStore(f"flexfloor/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def _last_seen(beat: Beat | None) -> str:
    if beat is None or not beat.place:
        return ""
    return (
        f", last seen in {beat.place}, when it held {beat.rss_bytes / GIB:.1f} GiB of memory\n"
        "likely cause: it was killed, by the kernel's out-of-memory killer or by hand"
    )
