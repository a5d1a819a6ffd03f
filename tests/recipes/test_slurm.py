"""A job handed in with `launch=slurm` runs: stand-ins for sbatch and srun do here what Slurm does."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import psutil
import pytest
from small_run import SMALL, learned, metrics_of, run

from flexfloor.cli import main

SBATCH = """#!{python}
# Keeps the job file, gives it the variables of its job, and runs it in the background.
import os, re, shutil, subprocess, sys
file = sys.argv[1]
if os.environ.get("REFUSE"):
    sys.exit("sbatch: error: invalid partition specified")
text = open(file).read()
asked = dict(re.findall(r"^#SBATCH --([a-z-]+)=(.*)$", text, re.M))
nodes, per_node = int(asked["nodes"]), int(asked["ntasks-per-node"])
number = 4000 + len(os.listdir("{folder}/jobs"))
shutil.copy(file, f"{folder}/jobs/{{number}}")
job = dict(SLURM_JOB_ID=str(number), SLURM_NTASKS=str(nodes * per_node), SLURM_JOB_NUM_NODES=str(nodes))
job["SLURM_JOB_NODELIST"] = f"127.0.0.[1-{{nodes}}]" if nodes > 1 else "127.0.0.1"
end = f"bash {{file}}; echo $? > {folder}/ended-{{number}}"
subprocess.Popen(["bash", "-c", end], env={{**os.environ, **job}}, stdin=subprocess.DEVNULL,
                 stdout=open("{folder}/job.out", "w"), stderr=subprocess.STDOUT, start_new_session=True)
print("Submitted batch job", number)
"""
SRUN = """#!{python}
# Starts the tasks of the job with the variables of each, and ends them all when one fails.
import os, subprocess, sys, time
words = sys.argv[1:]
kill = "--kill-on-bad-exit=1" in words
while words[0].startswith("-"):
    option = words.pop(0)
    if option == "--output":
        out = words.pop(0)
    elif option == "--error":
        err = words.pop(0)
total, nodes = int(os.environ["SLURM_NTASKS"]), int(os.environ["SLURM_JOB_NUM_NODES"])
tasks = []
for task in range(total):
    node, local = divmod(task, total // nodes)
    place = dict(SLURM_PROCID=str(task), SLURM_LOCALID=str(local), SLURM_NODEID=str(node))
    logs = [name.replace("%j", os.environ["SLURM_JOB_ID"]).replace("%t", str(task)) for name in (out, err)]
    out_t, err_t = (open(name, "a") for name in logs)
    tasks.append(subprocess.Popen(words, env={{**os.environ, **place}}, stdout=out_t, stderr=err_t))
while any(task.poll() is None for task in tasks):
    if kill and any(task.poll() for task in tasks):
        time.sleep(2)
        [task.kill() for task in tasks]
    time.sleep(0.1)
sys.exit(max(abs(task.returncode) for task in tasks))
"""
WORDS = [
    "launch=slurm",
    "trainer.total_training_steps=1",
    "model.dtype=float64",
    "launch.threads_per_rank=1",
    "trainer.val_before_train=false",
]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of the stand-ins, which are the first on PATH; `jobs/` keeps what was handed in."""
    folder = tmp_path / "cluster"
    (folder / "jobs").mkdir(parents=True)
    for name, text in (("sbatch", SBATCH), ("srun", SRUN)):
        file = folder / name
        file.write_text(text.format(python=sys.executable, folder=folder))
        file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def status_of(cluster: Path, number: int) -> int:
    """Exit status of a job, when it has ended."""
    file, deadline = cluster / f"ended-{number}", time.monotonic() + 200
    while not file.exists() or not file.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return int(file.read_text())


def test_a_job_of_two_nodes_learns_what_two_ranks_here_learn(tmp_path, cluster, capfd) -> None:
    words = [*SMALL, *WORDS, "launch.slurm.nodes=2", "launch.nproc=1"]
    assert main(["train", *words, f"trainer.default_local_dir={tmp_path}/job"]) == 0
    log = tmp_path / "job" / "slurm" / "4000_0_log.out"
    assert capfd.readouterr().out == f"handed in as job 4000; log of rank 0: {log}\n"
    assert run(tmp_path / "here", *WORDS[1:]) == 0
    assert status_of(cluster, 4000) == 0, (cluster / "job.out").read_text()
    job, here = metrics_of(tmp_path / "job"), metrics_of(tmp_path / "here")
    assert sorted(job) == [0, 1]
    assert {step: learned(job[step]) for step in job} == {step: learned(here[step]) for step in here}
    assert "step 1/1" in log.read_text()


def test_a_job_that_fails_says_why_in_its_log_and_ends(tmp_path, cluster) -> None:
    (tmp_path / "scorer.py").write_text("def compute_score(*args, **kwargs):\n    raise KeyError('answer')\n")
    scorer = f"reward.custom_reward_function.path={tmp_path / 'scorer.py'}"
    words = [*SMALL, *WORDS, scorer, f"trainer.default_local_dir={tmp_path}/job"]
    assert main(["train", *words, "launch.nproc=1", "parallel.ep=1"]) == 0
    assert status_of(cluster, 4000) == 1
    told = (tmp_path / "job" / "slurm" / "4000_0_log.err").read_text()
    assert "flexfloor: reward of reasoning_gym/spell_backward" in told and "KeyError: 'answer'" in told


def ranks_of(number: int) -> list[psutil.Process]:
    """The tasks of a job, which alone have a place in it."""
    own = {"SLURM_JOB_ID": str(number), "SUBMITIT_EXECUTOR": "slurm"}
    found = []
    for process in psutil.process_iter(["environ"]):
        environ = process.info["environ"] or {}
        if own.items() <= environ.items() and "SLURM_PROCID" in environ:
            found.append(process)
    return found


@pytest.mark.slow
def test_a_job_whose_time_is_over_saves_and_the_next_one_goes_on(tmp_path, cluster) -> None:
    words = [*SMALL, *WORDS, f"trainer.default_local_dir={tmp_path}/job", "launch.nproc=2"]
    assert main(["train", *words, "trainer.total_training_steps=500"]) == 0
    metrics, deadline = tmp_path / "job" / "metrics.jsonl", time.monotonic() + 100
    while not metrics.exists() or 1 not in metrics_of(tmp_path / "job"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    for rank in ranks_of(4000):
        rank.terminate()
    assert status_of(cluster, 4000) == 0, (cluster / "job.out").read_text()
    [saved] = (tmp_path / "job" / "checkpoints").iterdir()
    step = int(saved.name.removeprefix("step_"))
    assert main(["train", *words, f"trainer.total_training_steps={step + 1}"]) == 0
    assert status_of(cluster, 4001) == 0
    log = (tmp_path / "job" / "slurm" / "4001_0_log.out").read_text()
    assert f"resumed from {saved}" in log and sorted(metrics_of(tmp_path / "job")) == list(range(step + 2))


def test_a_sweep_hands_in_a_job_for_each_combination(tmp_path, cluster, capfd, monkeypatch) -> None:
    (cluster / "srun").write_text("#!/bin/sh\nexit 0\n")
    words = [*SMALL, *WORDS, f"trainer.default_local_dir={tmp_path}", "launch.slurm.nodes=1,2"]
    assert main(["train", "-m", *words]) == 0
    out = capfd.readouterr().out
    assert "handed in as job 4000" in out and "handed in as job 4001" in out
    for number, nodes in ((4000, 1), (4001, 2)):
        assert f"#SBATCH --nodes={nodes}\n" in (cluster / "jobs" / str(number)).read_text()
        assert (tmp_path / f"launch.slurm.nodes={nodes}" / "slurm" / f"{number}_submitted.pkl").exists()
        assert status_of(cluster, number) == 0


def test_a_refusal_of_sbatch_is_told(tmp_path, cluster, capsys, monkeypatch) -> None:
    monkeypatch.setenv("REFUSE", "1")
    assert main(["train", *SMALL, *WORDS, f"trainer.default_local_dir={tmp_path}/job"]) == 2
    assert "sbatch: error: invalid partition specified" in capsys.readouterr().err
