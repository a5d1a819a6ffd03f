"""A request to stop, which all ranks grant together at the end of a step.

SIGTERM ends a run without loss: a scheduler sends it before it takes a machine away. A rank only notes it;
what follows is agreed on, because a rank that left alone would leave the others in a collective. Under
`torchrun` or Slurm the ranks get the signal themselves. Ranks that FlexFloor has started get it through the
starting process, which makes a file that they look for.

Invariants:
- A request that has reached any rank stops every rank after the same step.
- A request is never lost, whenever it comes: before a rank listens, the file holds it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

STOP_FILE = "FLEXFLOOR_STOP_FILE"
"""Environment variable: the file whose existence asks the ranks of a run to stop."""


class StopRequest:
    """Whether this rank has been asked to stop, and whether the ranks have agreed to."""

    def __init__(self) -> None:
        self._signalled = False
        self.granted = False
        """Whether all ranks stop; the same on each of them."""

    def listen(self) -> None:
        """From now on note SIGTERM instead of ending; only the main thread can."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._note)

    def grant(self) -> bool:
        """Whether any rank has been asked; all ranks call it, and all get the same answer."""
        # Read here: the starting process imports this module, and needs no Torch for it.
        import torch
        import torch.distributed as dist

        from flexfloor import device

        asked = torch.tensor([int(self._asked())], device=device.current_device())
        dist.all_reduce(asked, op=dist.ReduceOp.MAX)
        self.granted = self.granted or bool(asked.item())
        return self.granted

    def _note(self, _signal: int, _frame: FrameType | None) -> None:
        self._signalled = True

    def _asked(self) -> bool:
        file = os.environ.get(STOP_FILE)
        return self._signalled or (file is not None and Path(file).exists())


@contextmanager
def forwarding_sigterm(file: Path) -> Iterator[dict[str, str]]:
    """While the block runs, SIGTERM to this process makes `file` and ends nothing; only in the main thread.

    A handler that was there is called too. Yields what the ranks need in their environment.
    """
    if threading.current_thread() is not threading.main_thread():
        yield {}
        return
    before = signal.getsignal(signal.SIGTERM)

    def note(number: int, frame: FrameType | None) -> None:
        file.touch()
        if callable(before):
            before(number, frame)

    signal.signal(signal.SIGTERM, note)
    try:
        yield {STOP_FILE: str(file)}
    finally:
        signal.signal(signal.SIGTERM, before)
