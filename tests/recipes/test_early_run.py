"""What `overlap` answers to a user: settings that cannot be, and memory that does not suffice."""

import pytest
from small_run import SMALL, command, metrics_of, run

EAGER = [
    "elastic=on",
    "elastic.policy=greedy",
    "elastic.interval=2",
    "elastic.sequences_per_rank=12",
    "sft.steps=0",
    "trainer.val_before_train=false",
    "trainer.test_freq=-1",
    "trainer.logger=[jsonl]",
]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["overlap=on", "elastic=off"], "overlap.mode = 'on': must be off or auto: elastic.policy=never"),
        (
            ["overlap=on", "elastic.detach=true"],
            "overlap.mode = 'on': must be off or auto: elastic.detach=true",
        ),
        (["overlap.mode=later"], "overlap.mode = 'later': must be one of off, on, auto"),
        (["overlap.micro_batch_tokens=0"], "overlap.micro_batch_tokens = 0: must be at least 1, or null"),
    ],
)
def test_what_cannot_be_is_said_before_a_rank_starts(words, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("flexfloor.launch.run_ranks", None)
    assert run(tmp_path, *words) == 2
    assert message in capsys.readouterr().err


def test_ranks_without_the_memory_for_guests_wait_and_it_is_said(tmp_path):
    """A budget that the rollout fits with one rank, and a lease with its gradients does not."""
    tight = ["memory.budget_bytes=8000000", "actor.micro_batch_tokens=4000"]
    done = command(
        ["train", *SMALL, *EAGER, "overlap=on", *tight, f"trainer.default_local_dir={tmp_path}"], tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("released ranks need") == 1 and "bytes each and have 8000000" in done.stderr
    metrics = metrics_of(tmp_path)
    assert metrics[2]["rollout/shrinks"] == 1
    assert metrics[2]["overlap/trained_fraction"] == 0 and "overlap/hidden_seconds" not in metrics[2]
