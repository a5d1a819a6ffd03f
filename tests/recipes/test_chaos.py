"""A run that is killed again and again ends like one that never was; `make chaos` does it 30 times."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHAOS = Path(__file__).parents[2] / "tools" / "chaos.py"


@pytest.mark.slow
def test_three_kills_leave_no_trace() -> None:
    words = [sys.executable, str(CHAOS), "--kills", "3", "--seed", "1"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kill 3 of 3: rank " in done.stdout
    assert done.stdout.splitlines()[-1] == '{"chaos": 3, "equal": true}'
