"""The whole of `tools/gpu_check.py` on a CUDA device. `make test-gpu` runs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

TOOL = Path(__file__).parents[2] / "tools" / "gpu_check.py"


@pytest.mark.timeout(330)
def test_all_of_it_is_right_within_five_minutes():
    ended = subprocess.run(
        [sys.executable, str(TOOL), "--device", "cuda"], capture_output=True, text=True, timeout=320
    )
    told = json.loads(ended.stdout.splitlines()[-1])
    assert ended.returncode == 0 and told["ok"], ended.stdout + ended.stderr
    assert told["seconds"] < 300
