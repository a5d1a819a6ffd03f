"""How far a long piece of work has come: a live bar on a terminal, now and then a line elsewhere.

Invariants:
- a bar is gone when its block ends, also by an exception;
- off a terminal work that is shorter than the interval between lines prints nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rich.console import Console as RichConsole
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class Bar(Protocol):
    """What the work tells of its progress."""

    def advance(self, amount: int = 1, note: str = "") -> None:
        """`amount` more is done; `note` replaces the last one (tokens/s, loss), empty keeps it."""

    def reach(self, done: int, note: str = "") -> None:
        """`done` in all is done."""


class CountingBar:
    """Keeps count and note; subclasses show them."""

    def __init__(self, name: str, total: int | None, unit: str) -> None:
        self.name, self.total, self.unit = name, total, unit
        self.done = 0
        self.note = ""

    def advance(self, amount: int = 1, note: str = "") -> None:
        """`amount` more is done; `note` replaces the last one, empty keeps it."""
        self.reach(self.done + amount, note)

    def reach(self, done: int, note: str = "") -> None:
        """`done` in all is done."""
        self.done = done
        self.note = note or self.note
        self.show()

    def show(self) -> None:
        """Show the count; not at all here."""

    def close(self) -> None:
        """The work is over."""

    @property
    def count(self) -> str:
        """Done of total with the unit, as text."""
        total = "" if self.total is None else f"/{self.total:,}"
        return f"{self.done:,}{total} {self.unit}".rstrip()


class LiveBar(CountingBar):
    """A row of the terminal's live display, which starts with its first bar and goes with its last."""

    def __init__(self, name: str, total: int | None, unit: str, display: Progress) -> None:
        super().__init__(name, total, unit)
        self._display = display
        self._display.start()
        self._task: TaskID = display.add_task(name, total=total, count=self.count, note="")

    def show(self) -> None:
        """Redraw at the display's next refresh."""
        self._display.update(self._task, completed=self.done, count=self.count, note=self.note)

    def close(self) -> None:
        """Take the row away."""
        self._display.remove_task(self._task)
        if not self._display.task_ids:
            self._display.stop()


class PlainBar(CountingBar):
    """A line every `interval_s` seconds, and one at the end of work that took longer than that."""

    def __init__(
        self,
        name: str,
        total: int | None,
        unit: str,
        write: Callable[[str], None],
        clock: Callable[[], float],
        interval_s: float,
    ) -> None:
        super().__init__(name, total, unit)
        self._write, self._clock, self._interval_s = write, clock, interval_s
        self._start = self._last_line = clock()

    def show(self) -> None:
        """Write a line when the last one is long enough ago."""
        if self._clock() - self._last_line >= self._interval_s:
            self._write_line()

    def close(self) -> None:
        """Write the last line, when there were others."""
        if self._last_line > self._start:
            self._write_line()

    def _write_line(self) -> None:
        self._last_line = self._clock()
        parts = [f"{self.name} {self.count}", self.note, f"{self._last_line - self._start:.0f} s"]
        self._write(", ".join(part for part in parts if part))


def live_display(console: RichConsole) -> Progress:
    """The terminal's live display; it leaves nothing behind."""
    return Progress(
        TextColumn("{task.description}", style="bold", markup=False),
        BarColumn(bar_width=28),
        TextColumn("{task.fields[count]}", markup=False),
        TextColumn("{task.fields[note]}", style="dim", markup=False),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        refresh_per_second=5,
    )
