"""Both supported versions of Megatron-Core learn the same, and the newer goes on where the older stopped.

Each run is a process of its own, because a process can import one version only. `make test-mcore-next`
says in MCORE_NEXT where the newer version is installed.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN = str(ROOT / "tests" / "versions" / "run_under.py")
NEXT = os.environ.get("MCORE_NEXT")
VERSIONS = {"0.16.1": [], "0.19.2": [NEXT]}

pytestmark = [
    pytest.mark.skipif(NEXT is None, reason="make test-mcore-next installs the second version"),
    pytest.mark.timeout(900),
]


def train(version, folder):
    """Metrics by step of three steps under `version`, going on from the newest checkpoint in `folder`."""
    path = os.pathsep.join([*VERSIONS[version], str(ROOT), str(ROOT / "tests" / "recipes")])
    done = subprocess.run(
        [sys.executable, RUN, str(folder), "trainer.total_training_steps=3"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["version"] == version
    return {int(step): metrics for step, metrics in report["steps"].items()}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Version to (folder, metrics by step) of a run without a stop."""
    folder = tmp_path_factory.mktemp("whole")
    return {version: (folder / version, train(version, folder / version)) for version in VERSIONS}


def test_losses_of_three_steps_are_the_same(runs):
    ours, expected = (steps for _, steps in runs.values())
    assert expected[0]["sft/loss"] > 1 and expected[1]["actor/grad_norm"] > 0.1, "there is something to learn"
    assert len({expected[step]["actor/entropy"] for step in (1, 2, 3)}) == 3, "the weights move"
    for step in range(4):
        assert ours[step] == pytest.approx(expected[step], rel=1e-9, abs=1e-12), step


def test_a_run_stopped_under_the_older_version_goes_on_under_the_newer(runs, tmp_path):
    folder, expected = runs["0.16.1"]
    shutil.copytree(folder, tmp_path / "stopped")
    shutil.rmtree(tmp_path / "stopped" / "checkpoints" / "step_000003")
    resumed = train("0.19.2", tmp_path / "stopped")
    assert resumed[3] == pytest.approx(expected[3], rel=1e-9, abs=1e-12)
