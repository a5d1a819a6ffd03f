"""The progress of a rollout on rank 0's console."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flexfloor.parallel import Layout
from flexfloor.rollout.types import PassProgress
from flexfloor.track.console import Console, NullConsole


@contextmanager
def rollout_progress(
    console: Console | NullConsole, layout: Layout, name: str, total: int
) -> Iterator[Callable[[PassProgress], None]]:
    """Show the finished responses of this rank's expert group, as far as rank 0 knows of them.

    Args:
        total: responses of all ranks.

    Yields what the engine calls before each pass.
    """
    start = time.perf_counter()
    expected = total * layout.ep_size // layout.world_size
    with console.progress(name, total=expected, unit="responses") as bar:

        def on_pass(progress: PassProgress) -> None:
            seconds = max(time.perf_counter() - start, 1e-9)
            rate = f"{progress.finished / seconds:.1f} responses/s"
            bar.reach(progress.finished, rate + _active(progress, layout.ep_size))

        yield on_pass


def _active(progress: PassProgress, ep_size: int) -> str:
    if progress.is_detached:
        return f", {progress.active} ranks each by itself, only rank 0 counted"
    return f", {progress.active} of {ep_size} ranks" if progress.active < ep_size else ""
