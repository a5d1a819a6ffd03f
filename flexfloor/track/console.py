"""What the person who started the run sees: progress, a line for each step, a closing table.

On a terminal progress is live; elsewhere (a pipe, a log file, CI) everything is plain lines. Colours
follow NO_COLOR. Only rank 0 has a console, the other ranks have one that says nothing.

Invariants:
- off a terminal no control character is ever written, whatever a model or a data set contains;
- text never fails to print: what the stream's encoding cannot hold is written as an escape;
- `NullConsole` has the same interface and writes nothing.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich import box
from rich.console import Console as RichConsole
from rich.table import Table
from rich.text import Text

from flexfloor.track.progress import Bar, CountingBar, LiveBar, PlainBar, live_display
from flexfloor.track.samples import SampleRow, printable
from flexfloor.track.summary import Summary
from flexfloor.track.text import stage_rows, step_line, summary_rows, summary_title

PLAIN_WIDTH = 120
"""Columns of tables where there is no terminal to ask."""

SHOWN_CHARACTERS = 200
"""Most characters of a prompt or response in the sample table; of a prompt the end is kept."""


class Console:
    """The console of rank 0.

    Args:
        file: stream to write to; None = standard output.
        interval_s: seconds between two progress lines where there is no terminal.
        clock: reads seconds, for those lines.
    """

    def __init__(
        self,
        file: TextIO | None = None,
        interval_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        stream = file or sys.stdout
        self.is_live = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._encoding = getattr(stream, "encoding", None) or "utf-8"
        self._interval_s, self._clock = interval_s, clock
        self._rich = RichConsole(
            file=stream,
            force_terminal=self.is_live,
            force_interactive=self.is_live,
            width=None if self.is_live else PLAIN_WIDTH,
            highlight=False,
        )
        self._display = live_display(self._rich)

    def line(self, text: str, style: str = "") -> None:
        """Write one line; `style` is a rich style, seen on terminals only."""
        self._rich.print(self._text(text, style), soft_wrap=True)

    @contextmanager
    def progress(self, name: str, total: int | None = None, unit: str = "") -> Iterator[Bar]:
        """Show the progress of the work in the block; blocks may be nested.

        Args:
            name: what is done.
            total: how much there is to do; None = not known.
            unit: what is counted (responses, micro-batches).
        """
        bar: CountingBar
        if self.is_live:
            bar = LiveBar(name, total, unit, self._display)
        else:
            bar = PlainBar(name, total, unit, self.line, self._clock, self._interval_s)
        try:
            yield bar
        finally:
            bar.close()

    def step(self, step: int, num_steps: int, metrics: Mapping[str, float]) -> None:
        """Write the line of a finished step."""
        self.line(step_line(step, num_steps, metrics))

    def samples(self, rows: Sequence[SampleRow], title: str, limit: int = 4) -> None:
        """Show the first `limit` samples as a table."""
        cells = [
            (_last(row.prompt), _first(row.response), _first(row.ground_truth), f"{row.score:g}")
            for row in rows[:limit]
        ]
        self.table(title, ("prompt", "response", "ground truth", "score"), cells, num_left=3)

    def summary(self, summary: Summary) -> None:
        """Show what the run came to: its start against its end, then where time and memory went."""
        self.table(summary_title(summary), ("", "start", "end"), summary_rows(summary))
        self.table("", ("", "seconds", "share"), stage_rows(summary))
        if summary.peak_gib is not None:
            self.line(f"peak memory of all ranks: {summary.peak_gib:.2f} GiB")

    def table(
        self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], num_left: int = 1
    ) -> None:
        """Print a table whose first `num_left` columns are set to the left, the others to the right."""
        table = Table(box=box.ROUNDED)
        for index, column in enumerate(columns):
            table.add_column(column, justify="left" if index < num_left else "right", overflow="fold")
        for row in rows:
            table.add_row(*(self._text(cell) for cell in row))
        if title:
            self.line(title, "bold")
        self._rich.print(table)

    def _text(self, text: str, style: str = "") -> Text:
        """Text without markup or control characters that the stream's encoding can hold."""
        held = printable(text).encode(self._encoding, "backslashreplace").decode(self._encoding)
        return Text(held, style=style)


class NullConsole:
    """The console of the other ranks: the same interface, and silence."""

    is_live = False

    def line(self, text: str, style: str = "") -> None:
        """Nothing is written."""

    @contextmanager
    def progress(self, name: str, total: int | None = None, unit: str = "") -> Iterator[Bar]:
        """Count and show nothing."""
        yield CountingBar(name, total, unit)

    def step(self, step: int, num_steps: int, metrics: Mapping[str, float]) -> None:
        """Nothing is written."""

    def samples(self, rows: Sequence[SampleRow], title: str, limit: int = 4) -> None:
        """Nothing is written."""

    def summary(self, summary: Summary) -> None:
        """Nothing is written."""

    def table(
        self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], num_left: int = 1
    ) -> None:
        """Nothing is written."""


def make_console(rank: int, enabled: bool = True) -> Console | NullConsole:
    """The console of a rank; rank 0's too says nothing when `trainer.logger` lists no console."""
    return Console() if enabled and rank == 0 else NullConsole()


def _first(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "..."


def _last(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else "..." + text[-SHOWN_CHARACTERS:]
