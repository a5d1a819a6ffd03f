"""Bad inputs are told on one screen, with status 2, before any rank is started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flexfloor import cli, device, launch
from flexfloor.train import checkpoint_folder

ROW = {
    "data_source": "mine",
    "prompt": [{"role": "user", "content": "What is 1 + 1?"}],
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "2"},
    "extra_info": {"split": "train", "index": 0},
}
SCORER = "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return 1.0\n"


@pytest.fixture
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a good row file and scorer, from which the command is started."""
    monkeypatch.chdir(tmp_path)
    _write(tmp_path / "good.jsonl", ROW)
    (tmp_path / "score.py").write_text(SCORER, encoding="utf-8")
    return tmp_path


def _write(path: Path, *rows: dict[str, Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _sealed(path: Path, *names: str) -> Path:
    """A whole checkpoint of so many empty files."""
    path.mkdir()
    for name in names:
        (path / name).touch()
    checkpoint_folder.seal(path, 0, layout={"ranks": 1, "ep": 1}, sums=dict.fromkeys(names, 0))
    return path


def _outcome(command: str, *words: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    started: list[Any] = []
    monkeypatch.setattr(launch, "run_ranks", lambda *args, **_: started.append(args))
    good = ["data.train_files=good.jsonl", "data.train_batch_size=1", "actor.ppo_mini_batch_size=1"]
    scorer = "reward.custom_reward_function.path=score.py"
    return cli.main([command, *good, scorer, *words]), len(started)


@pytest.mark.parametrize("command", ["train", "rollout"])
def test_good_inputs_start_the_ranks(command: str, run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["trainer.default_local_dir=out/here", "generate.split=train"]
    assert _outcome(command, *words, monkeypatch=monkeypatch) == (0, 1)
    assert (run_folder / "out" / "here").is_dir()
    assert list((run_folder / "out" / "here").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["data.train_files=nope.jsonl"], ["nope.jsonl"]),
        (["data.train_files=empty.jsonl"], ["empty.jsonl"]),
        (["data.train_files=no_prompt.jsonl"], ["no_prompt.jsonl", "prompt"]),
        (["data.train_files=no_source.jsonl"], ["no_source.jsonl", "data_source"]),
        (["data.val_files=no_prompt.jsonl"], ["no_prompt.jsonl", "prompt"]),
        (["data.max_prompt_length=4"], ["good.jsonl", "data.max_prompt_length=4"]),
        (["sft.steps=1", "sft.batch_size=1", "data.max_response_length=1"], ["data.max_response_length=1"]),
        (["sft.steps=1", "sft.batch_size=2"], ["sft.batch_size = 2", "training prompts, 1"]),
        (["model.family=mixtrall"], ["model.family", "mixtrall", "did you mean mixtral"]),
        (["model.vocab_size=100"], ["model.vocab_size = 100: must be 256 or more", "tokenizer.path"]),
        (
            [
                *("launch.nproc=3", "parallel.ep=3", "parallel.tp=3", "model.num_experts=3"),
                *("model.num_attention_heads=3", "model.num_query_groups=3", "model.head_dim=8"),
            ],
            ["model.vocab_size = 256: must be a multiple of parallel.tp = 3; model.vocab_size=258 leaves 2"],
        ),
        (["model.path=nope"], ["model.path = 'nope': holds no config.json"]),
        (["model.moe_router_topk=1"], ["model.moe_router_topk = 1", "model.norm_topk_prob=false"]),
        (["rollout.stop=['']"], ["rollout.stop = ['']", "none of them empty"]),
        pytest.param(
            ["model.dtype=bfloat16"],
            ["model.dtype", "bfloat16", "float32"],
            marks=pytest.mark.skipif(not device.is_cpu_host(), reason="an accelerator trains in bfloat16"),
        ),
        (["data.train_batch_size=2"], ["data.train_batch_size=2"]),
        (["tokenizer.path=./nope"], ["tokenizer.path", "./nope"]),
        (["tokenizer.path=builtin:chars"], ["tokenizer.path", "builtin:char"]),
        (
            ["data.train_files=[]", "data.tasks=[{name: spell_backwards}]"],
            ["spell_backwards", "spell_backward"],
        ),
        (["reward.custom_reward_function.path=null"], ["mine", "reward.custom_reward_function.path"]),
        (["reward.custom_reward_function.path=nope.py"], ["nope.py"]),
        (["reward.custom_reward_function.name=other"], ["other", "score.py"]),
        (
            ["trainer.resume_mode=path", "trainer.resume_from_path=nope"],
            ["trainer.resume_from_path = 'nope'"],
        ),
        (["trainer.default_local_dir=good.jsonl/run"], ["trainer.default_local_dir", "good.jsonl/run"]),
        (["trainer.default_local_dir=/proc/run"], ["trainer.default_local_dir", "/proc/run"]),
        (["trainer.default_local_dir=/proc"], ["trainer.default_local_dir: cannot write in /proc"]),
    ],
)
def test_a_bad_input_is_told_before_any_rank_starts(
    words: list[str],
    parts: list[str],
    run_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (run_folder / "empty.jsonl").touch()
    for column, name in (("prompt", "no_prompt"), ("data_source", "no_source")):
        _write(run_folder / f"{name}.jsonl", {key: value for key, value in ROW.items() if key != column})
    assert _outcome("train", *words, monkeypatch=monkeypatch) == (2, 0)
    message = capsys.readouterr().err
    assert all(part in message for part in parts), message
    assert len(message.splitlines()) <= 8 and "Traceback" not in message


def test_weights_alone_are_generated_with_but_not_gone_on_from(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `flexfloor convert import` leaves them: see `test_imported_model.py` for the whole of it."""
    _sealed(run_folder / "imported", "plain.json", "plain.npz")
    _sealed(run_folder / "saved", "plain.json", "plain.npz", "rank_00000.json", "rank_00000.npz")
    resume = ["generate.split=train", "trainer.resume_mode=path", "trainer.resume_from_path="]
    imported, saved = ([*resume[:2], resume[2] + name] for name in ("imported", "saved"))
    assert _outcome("train", *imported, monkeypatch=monkeypatch) == (2, 0)
    message = " ".join(capsys.readouterr().err.split())
    assert "trainer.resume_from_path = 'imported': must be a run's checkpoint" in message
    assert "model.path=imported begins a run" in message
    assert _outcome("rollout", *imported, monkeypatch=monkeypatch) == (0, 1)
    assert _outcome("train", *saved, monkeypatch=monkeypatch) == (0, 1)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (
            ["generate.split=train", "trainer.resume_mode=path", "trainer.resume_from_path=nope"],
            "trainer.resume_from_path = 'nope': must be a folder that exists",
        ),
        (["generate.split=val"], "generate.split = 'val': must be train without data.val_files"),
        (
            ["generate.split=train", "generate.output=good.jsonl/out.jsonl"],
            "generate.output: cannot write in",
        ),
    ],
)
def test_rollout_has_its_own_checks(
    words: list[str],
    part: str,
    run_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _outcome("rollout", *words, monkeypatch=monkeypatch) == (2, 0)
    assert part in capsys.readouterr().err
