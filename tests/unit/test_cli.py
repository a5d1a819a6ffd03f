"""The command line: what it starts, what it prints, and how it ends."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from flexfloor import cli, launch
from flexfloor.config import Config, compose
from flexfloor.errors import DataError, FlexFloorError, RankError, RewardError
from flexfloor.jobs import work

SMALL = ["data.tasks=[{name: spell_backward}]", "data.train_size=32", "data.val_size=2"]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Calls of `run_ranks`, which starts nothing here."""
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(launch, "run_ranks", lambda *args, **settings: calls.append((*args, settings)))
    return calls


@pytest.fixture
def small(tmp_path: Path) -> list[str]:
    """Overrides of a run that passes the checks quickly and writes into the test's folder."""
    return [*SMALL, f"trainer.default_local_dir={tmp_path}/run"]


def _failing(error: BaseException) -> Any:
    def run_ranks(*_: Any, **__: Any) -> None:
        raise error

    return run_ranks


def _process(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_config_prints_the_configuration_and_nothing_else() -> None:
    done = _process("-m", "flexfloor", "config", "recipe=tiny-mixtral", "rollout.n=3")
    assert (done.returncode, done.stderr) == (0, "")
    expected = compose(["recipe=tiny-mixtral", "rollout.n=3"])
    assert yaml.safe_load(done.stdout) == dataclasses.asdict(expected)


def test_a_process_with_a_bad_setting_ends_with_2_and_one_line() -> None:
    done = _process("-m", "flexfloor", "train", "recipe=tiny-mixtrl")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == "flexfloor: recipe = tiny-mixtrl: no such recipe; did you mean tiny-mixtral?\n"


def test_the_command_line_starts_without_the_heavy_packages() -> None:
    heavy = {"torch", "megatron", "transformers", "reasoning_gym", "wandb", "matplotlib"}
    code = f"import sys, flexfloor.cli; sys.exit(' '.join({heavy!r} & set(sys.modules)) or 0)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("command", "run"), [("train", work.train_on_rank), ("rollout", work.generate_on_rank)]
)
def test_a_command_starts_the_ranks_that_the_settings_ask_for(
    command: str, run: Any, small: list[str], started: list[tuple[Any, ...]]
) -> None:
    words = [*small, "launch.nproc=2", "launch.timeout_seconds=9", "launch.threads_per_rank=3"]
    assert cli.main([command, *words]) == 0
    [(function, world_size, config, settings)] = started
    assert (function, world_size) == (run, 2)
    assert config == compose(words)
    stoppable = command == "train"
    assert settings == {
        "collective_timeout_seconds": 9.0,
        "hang_seconds": 45.0,
        "stacks_folder": Path(config.trainer.default_local_dir),
        "threads_per_rank": 3,
        "stoppable": stoppable,
    }


def test_under_torchrun_the_process_is_one_rank(
    small: list[str], started: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[Any, ...]] = []
    monkeypatch.setattr(launch, "run_this_rank", lambda *args, **settings: ran.append(args))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert cli.main(["train", *small]) == 0
    assert not started and ran == [(work.train_on_rank, compose(small))]


def test_only_the_first_rank_of_torchrun_reports_at_length(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    long = DataError("first line\nsecond line")
    monkeypatch.setattr(cli, "compose", _failing(long))
    monkeypatch.setenv("RANK", "0")
    assert cli.main(["train"]) == 2
    monkeypatch.setenv("RANK", "3")
    assert cli.main(["train"]) == 2
    assert capsys.readouterr().err == "flexfloor: first line\nsecond line\nflexfloor: rank 3: first line\n"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (DataError("no row"), 2),
        (RewardError("prompt 7"), 1),
        (RankError("rank 1 of 2"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_a_failure_on_the_ranks_gives_its_status(
    error: BaseException,
    status: int,
    small: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(launch, "run_ranks", _failing(error))
    assert cli.main(["train", *small]) == status
    err = capsys.readouterr().err
    told = error if isinstance(error, FlexFloorError) else "interrupted; all ranks have ended"
    assert err == f"flexfloor: {told}\n"


def test_the_message_says_where_an_error_was_raised_and_what_to_lower_for_a_killed_rank(
    small: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reward = RewardError("prompt 7")
    reward.place = "rank 1 of 2, step 3, stage rollout"
    killed = RankError("rank 1 of 2 was killed by SIGKILL")
    killed.was_killed, killed.stage = True, "update"
    for error in (reward, killed):
        monkeypatch.setattr(launch, "run_ranks", _failing(error))
        assert cli.main(["train", *small, "actor.micro_batch_tokens=77"]) == 1
    told = capsys.readouterr().err.splitlines()
    assert told[:2] == ["flexfloor: prompt 7", "(on rank 1 of 2, step 3, stage rollout)"]
    assert told[2] == "flexfloor: rank 1 of 2 was killed by SIGKILL"
    assert told[3].startswith("if memory was short: lower actor.micro_batch_tokens = 77 or ")


def test_a_failed_rank_shows_the_end_of_its_traceback_above_the_message(
    small: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = RankError("rank 1 of 2: KeyError: 'x'")
    error.rank_traceback = "\n".join(f"frame {number}" for number in range(100))
    monkeypatch.setattr(launch, "run_ranks", _failing(error))
    cli.main(["train", *small])
    lines = capsys.readouterr().err.splitlines()
    assert lines[-2:] == ["frame 99", "flexfloor: rank 1 of 2: KeyError: 'x'"]
    assert len(lines) <= 24


def test_an_error_that_is_no_ones_setting_keeps_its_traceback(
    small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "run_ranks", _failing(ZeroDivisionError("a bug")))
    with pytest.raises(ZeroDivisionError):
        cli.main(["train", *small])


def test_without_words_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "flexfloor train recipe=tiny-mixtral" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["-h"],
        ["train", "-h"],
        ["rollout", "--help"],
        ["config", "-h"],
        ["doctor", "-h"],
        ["report", "-h"],
        ["simulate", "-h"],
    ],
)
def test_help_is_no_error(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 0
    assert "examples:" in capsys.readouterr().out


def test_the_help_of_a_command_lists_the_recipes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["train", "-h"])
    assert ", tiny-deepseek, tiny-mixtral, " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian"], "unknown command trian; did you mean train?"),
        (["zzz"], "unknown command zzz; there is config, convert, doctor, report, rollout, simulate, train"),
        (["train", "--recipe=tiny-mixtral"], "settings have no dashes: recipe=tiny-mixtral"),
        (["train", "tiny-mixtral"], "'tiny-mixtral': a setting is written name=value, a recipe recipe=name"),
        (["config", "--config-dir", "/nope", "recipe=x"], "--config-dir /nope: there is no such folder"),
    ],
)
def test_a_command_line_that_cannot_be_meant_is_told(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    assert message in capsys.readouterr().err


def test_words_before_and_behind_an_option_all_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["config", "recipe=tiny-mixtral", "--config-dir", str(tmp_path), "trainer.seed=4"]
    assert cli.main(words) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown["trainer"]["seed"] == 4 and shown["launch"]["nproc"] == 4


def test_a_rank_runs_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Config] = []
    for module, name in (("grpo", "train"), ("generate", "generate")):
        fake = type(sys)(f"flexfloor.recipes.{module}")
        setattr(fake, name, ran.append)
        monkeypatch.setitem(sys.modules, f"flexfloor.recipes.{module}", fake)
    config = Config()
    work.train_on_rank(config)
    work.generate_on_rank(config)
    assert ran == [config, config]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--checkpoint", "{runs}/x", "--max-shard-size", "5"],
            "--max-shard-size = '5': must be a number of MB",
        ),
        (["--checkpoint", "{runs}", "--hf", "{runs}"], "is neither a checkpoint nor the folder of a run"),
    ],
)
def test_an_export_that_cannot_be_is_told(words, message, tmp_path, capsys) -> None:
    words = [*words, "--checkpoint", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    assert cli.main(["convert", "export", *words]) in (1, 2)
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
