"""The console on a terminal, in a pipe, with NO_COLOR, and on the other ranks."""

from __future__ import annotations

import inspect
import io
import os
import pty
import re
import subprocess
import sys
import textwrap

import pytest

from flexfloor.track.console import Console, NullConsole, make_console
from flexfloor.track.progress import Bar
from flexfloor.track.samples import SampleRow, printable
from flexfloor.track.summary import summarize

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
"""Every control character but the line feed."""

NASTY = "a\x1b[2J[/b] [bold]x[/bold] \r\x07\u2028\u202e é漢"


class HandClock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def use_everything(console: Console | NullConsole) -> None:
    console.line(NASTY, style="bold")
    with console.progress("rollout", total=3, unit="responses") as bar:
        bar.advance(1, note="[/x] 12 tokens/s")
        bar.reach(3)
    console.step(1, 2, {"critic/score/mean": 0.5})
    row = SampleRow(uid="u", prompt=NASTY * 40, response=NASTY, ground_truth=NASTY, score=0.5)
    console.samples([row], title=NASTY)
    console.summary(summarize({1: {"critic/score/mean": 0.5, f"val-core/{NASTY}/mean@1": 1.0}}))


def test_a_pipe_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    stream = io.StringIO()
    use_everything(Console(stream))
    text = stream.getvalue()
    assert not CONTROL.search(text)
    assert "step 1/2 | reward 0.500" in text
    assert r"a\x1b[2J[/b] [bold]x[/bold] \r\x07\u2028\u202e é漢" in text


def test_a_stream_that_holds_ascii_only_gets_ascii() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    use_everything(Console(stream))
    stream.flush()
    assert rb"\xe9\u6f22" in raw.getvalue()


def test_lines_are_not_wrapped_in_a_pipe() -> None:
    stream = io.StringIO()
    Console(stream).line("x " * 200)
    assert stream.getvalue() == "x " * 200 + "\n"


def test_progress_in_a_pipe_is_a_line_now_and_then() -> None:
    stream, clock = io.StringIO(), HandClock()
    console = Console(stream, interval_s=10, clock=clock)
    with console.progress("sft", total=1000, unit="steps") as bar:
        for second in range(1, 26):
            clock.now = float(second)
            bar.advance(40, note=f"loss {1 / second:.2f}")
    assert stream.getvalue().splitlines() == [
        "sft 400/1,000 steps, loss 0.10, 10 s",
        "sft 800/1,000 steps, loss 0.05, 20 s",
        "sft 1,000/1,000 steps, loss 0.04, 25 s",
    ]


def test_short_work_in_a_pipe_says_nothing() -> None:
    stream, clock = io.StringIO(), HandClock()
    with Console(stream, interval_s=10, clock=clock).progress("update", total=2) as bar:
        clock.now = 9.0
        bar.advance(2)
    assert stream.getvalue() == ""


def test_progress_ends_with_an_exception() -> None:
    stream, clock = io.StringIO(), HandClock()
    console = Console(stream, interval_s=10, clock=clock)
    with pytest.raises(KeyError), console.progress("rollout") as bar:
        clock.now = 12.0
        bar.advance(5)
        clock.now = 13.0
        raise KeyError
    assert stream.getvalue().splitlines() == ["rollout 5, 12 s", "rollout 5, 13 s"]


TERMINAL_PROGRAM = textwrap.dedent("""
    import time
    from flexfloor.track.console import Console
    console = Console()
    assert console.is_live
    with console.progress("rollout", total=4, unit="responses") as bar:
        bar.advance(1, note="[/x] 12 tokens/s")
        time.sleep(0.5)
        console.line("said meanwhile", style="red")
        with console.progress("reward", total=2) as inner:
            inner.advance(2)
            time.sleep(0.5)
        bar.reach(4)
    try:
        with console.progress("update", total=2):
            time.sleep(0.3)
            raise KeyError
    except KeyError:
        console.line("after", style="red")
""")


def run_in_terminal(monkeypatch: pytest.MonkeyPatch, **environment: str) -> str:
    """Output of the program above on a pseudo-terminal."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    outer, inner = pty.openpty()
    settings = {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30", **environment}
    command = [sys.executable, "-c", TERMINAL_PROGRAM]
    process = subprocess.Popen(command, stdout=inner, stderr=inner, env={**os.environ, **settings})
    os.close(inner)
    output = b""
    while True:
        try:
            chunk = os.read(outer, 65536)
        except OSError:  # Linux says so when the other end is closed
            break
        if not chunk:
            break
        output += chunk
    os.close(outer)
    assert process.wait() == 0, output.decode()
    return output.decode()


def test_a_terminal_gets_live_progress_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    output = run_in_terminal(monkeypatch)
    assert "1/4 responses" in output and "[/x] 12 tokens/s" in output and "2/2" in output
    assert "\x1b[31msaid meanwhile" in output
    assert output.count("\x1b[?25l") == output.count("\x1b[?25h") > 0  # the cursor is shown again
    assert output.endswith("\x1b[31mafter\x1b[0m\r\n")
    last_erased = output.rindex("\x1b[2K")
    assert "update" in output[:last_erased] and "update" not in output[last_erased:]


def test_no_color_means_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    output = run_in_terminal(monkeypatch, NO_COLOR="1")
    assert "said meanwhile" in output
    assert not re.search(r"\x1b\[[0-9;]*[34][0-9]", output)


def test_other_ranks_say_nothing_through_the_same_interface(capfd: pytest.CaptureFixture[str]) -> None:
    assert isinstance(make_console(0), Console)
    assert isinstance(make_console(0, enabled=False), NullConsole)
    null = make_console(3)
    assert isinstance(null, NullConsole)
    use_everything(null)
    assert capfd.readouterr() == ("", "")


def test_the_null_console_and_all_bars_have_the_interface() -> None:
    def methods(kind: type) -> dict[str, inspect.Signature]:
        members = inspect.getmembers(kind, inspect.isfunction)
        return {name: inspect.signature(member) for name, member in members if not name.startswith("_")}

    assert methods(NullConsole) == methods(Console)
    with NullConsole().progress("x") as bar:
        assert methods(Bar).items() <= methods(type(bar)).items()


def test_printable_keeps_one_line() -> None:
    assert printable("a\nb\tc\\n é\u200b") == "a\\nb\\tc\\n é\\u200b"
