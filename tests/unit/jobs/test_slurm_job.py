"""What a job asks of Slurm: settings that cannot be meant, and the lines of the job file."""

from __future__ import annotations

from pathlib import Path

import pytest

from flexfloor.cli import main
from flexfloor.config import LaunchConfig, SlurmConfig, compose, world_size
from flexfloor.errors import ConfigError
from flexfloor.jobs import slurm
from flexfloor.jobs.work import ROLLOUT, TRAIN

BASE = ["data.tasks=[{name: spell_backward}]", "data.train_size=32", "data.val_size=2", "launch=slurm"]


def job_file(folder: Path, *words: str, work=TRAIN) -> list[str]:
    """Lines of the file of a job in `folder`."""
    words = (*BASE, f"trainer.default_local_dir={folder}", "launch.slurm.dry_run=true", *words)
    return slurm.submit(work, compose(list(words))).text.splitlines()


def test_without_the_word_a_run_stays_on_this_machine() -> None:
    assert compose(BASE[:-1]).launch == LaunchConfig(kind="local", slurm=SlurmConfig())
    assert compose(BASE).launch.kind == "slurm"
    assert compose([*BASE[:-1], "launch=local"]).launch.kind == "local"


def test_ranks_are_those_of_all_nodes() -> None:
    shape = {"nproc": 4, "slurm": SlurmConfig(nodes=3)}
    assert world_size(LaunchConfig(kind="slurm", **shape), {}) == 12
    assert world_size(LaunchConfig(kind="local", **shape), {}) == 4
    words = ["launch.nproc=2", "launch.slurm.nodes=2", "model.num_experts=8"]
    assert compose([*BASE, *words, "parallel.ep=4"]).parallel.ep == 4
    with pytest.raises(ConfigError, match=r"launch\.slurm\.nodes x launch\.nproc = 4: must be a multiple of"):
        compose([*BASE, *words, "parallel.ep=8"])


def test_the_job_file_asks_for_what_is_set(tmp_path: Path) -> None:
    lines = job_file(
        tmp_path,
        "launch.nproc=4",
        "launch.slurm.nodes=2",
        "launch.slurm.gpus_per_node=8",
        "launch.slurm.cpus_per_rank=12",
        "launch.slurm.time_minutes=90",
        "launch.slurm.stop_seconds=120",
        "launch.slurm.partition=h200",
        "launch.slurm.account=rl",
        "launch.slurm.sbatch={constraint: 'a&b', exclusive: true}",
        "launch.slurm.sbatch.mail-user=me@example.org",
        "launch.slurm.setup=['module load cuda/13']",
        "trainer.experiment_name='a b'",
    )
    asked = {line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH")}
    assert asked == {
        "nodes=2",
        "ntasks-per-node=4",
        "gpus-per-node=8",
        "cpus-per-task=12",
        "time=90",
        "signal=TERM@120",
        "partition=h200",
        "account=rl",
        "constraint='a&b'",
        "exclusive",
        "mail-user=me@example.org",
        "job-name=flexfloor_train_a_b",
        f"output={tmp_path}/slurm/%j_0_log.out",
        f"error={tmp_path}/slurm/%j_0_log.err",
        "open-mode=append",
    }
    [srun] = [line for line in lines if line.startswith("srun")]
    assert "--kill-on-bad-exit=1" in srun and srun.endswith(f"-m submitit.core._submit {tmp_path}/slurm")
    before = lines[: lines.index(srun)]
    assert {"export PYTHONHASHSEED=0", "module load cuda/13"} <= set(before)


def test_what_is_not_set_is_left_to_the_cluster(tmp_path: Path) -> None:
    options = {line.split("=")[0] for line in job_file(tmp_path, work=ROLLOUT) if line.startswith("#SBATCH")}
    needed = {"nodes", "ntasks-per-node", "time", "signal", "job-name", "output", "error", "open-mode"}
    assert options == {f"#SBATCH --{name}" for name in needed}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["launch=slurmm"], "launch = slurmm: no such launch; did you mean slurm?"),
        (["launch.slurm.nodes=0"], "launch.slurm.nodes = 0: must be >= 1"),
        (["launch.slurm.time_minutes=5"], "launch.slurm.stop_seconds = 300: must be >= 1 and < 300"),
        (["launch.slurm.cpus_per_rank=0"], "launch.slurm.cpus_per_rank = 0: must be >= 1"),
        (["launch.nproc=4", "launch.slurm.gpus_per_node=2"], "must be launch.nproc = 4 or more, one a rank"),
        (["launch.slurm.partition=''"], "launch.slurm.partition = '': must be a name, or null"),
        (["launch.slurm.setup=['a\nrm b']"], "must be shell lines without a line break"),
        (["launch.slurm.sbatch.time=5"], "sbatch.time = 5: must be set as launch.slurm.time_minutes"),
        (["launch.slurm.sbatch.output=x"], "sbatch.output = 'x': must be left out"),
        (
            ["launch.slurm.sbatch.QoS=x"],
            "launch.slurm.sbatch = 'QoS': must be an option of sbatch without",
        ),
        (["launch.slurm.sbatch.qos='a\nb'"], "sbatch.qos = 'a\\nb': must be text, a number, or true"),
        (["launch.slurm.sbatch.exclusive=false"], "exclusive = false: must be text, a number, or true"),
        (["launch.slurm.sbatch.qos=[a]"], "sbatch.qos = ['a']: must be text, a number, or true"),
        (
            ["launch.slurm.partion=a"],
            "launch.slurm.partion: no such field; did you mean launch.slurm.partition",
        ),
    ],
)
def test_what_cannot_be_meant_is_told(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        compose([*BASE, *words])
    assert message in str(raised.value)


def test_a_machine_without_slurm_is_told_before_anything_is_written(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    words = [*BASE, f"trainer.default_local_dir={tmp_path}/run"]
    assert main(["train", *words]) == 2
    assert (
        "there is no sbatch and no srun on this machine; start from a login node" in capsys.readouterr().err
    )
    assert not (tmp_path / "run" / "slurm").exists()
    assert main(["train", *words, "launch.slurm.dry_run=true"]) == 0
    assert "#SBATCH --nodes=1" in capsys.readouterr().out


def test_a_folder_that_slurm_would_read_otherwise_is_refused(tmp_path, capsys) -> None:
    words = [*BASE, f"trainer.default_local_dir={tmp_path}/50%j", "launch.slurm.dry_run=true"]
    assert main(["train", *words]) == 2
    assert "must be a folder without %" in capsys.readouterr().err


def test_the_machine_of_the_job_is_not_judged_by_this_one(tmp_path, capsys) -> None:
    words = [*BASE, f"trainer.default_local_dir={tmp_path}", "launch.slurm.dry_run=true"]
    assert main(["train", *words, "model.dtype=bfloat16"]) == 0
    assert main(["train", *words, "launch=local", "model.dtype=bfloat16"]) == 2
    assert "model.dtype" in capsys.readouterr().err
