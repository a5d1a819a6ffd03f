import re
import subprocess
import sys
from collections import Counter

import pytest

from flexfloor.data.config import DataConfig, TaskConfig
from flexfloor.data.tasks import CHUNK_ENTRIES, generate_rows
from flexfloor.errors import ConfigError, DataError

SHORT = TaskConfig(name="spell_backward", weight=0.7, config={"min_word_len": 3, "max_word_len": 4})
LONG = TaskConfig(name="spell_backward", weight=0.3, config={"min_word_len": 9, "max_word_len": 10})


def rows(split="train", tasks=(SHORT, LONG), **settings):
    return generate_rows(
        DataConfig(tasks=list(tasks), **{"train_size": 50, "val_size": 20, **settings}), split
    )


def question(row):
    return row.messages[0]["content"]


def test_a_row_carries_what_its_scorer_needs():
    row = rows()[0]
    word = row.extra_info["metadata"]["word"]
    assert row.data_source == "reasoning_gym/spell_backward"
    assert row.messages == ({"role": "user", "content": row.extra_info["question"]},)
    assert row.extra_info["question"].endswith(f": {word}")
    assert row.ground_truth == word[::-1]
    assert row.extra_info["task_options"] == SHORT.config
    assert row.extra_info["uid"] == row.where == "spell_backward/train/0.0/0"


def test_every_stretch_of_rows_has_the_shares_of_the_mixture():
    long = [len(row.ground_truth) >= 9 for row in rows(train_size=100)]
    assert all(len(r.ground_truth) in (3, 4, 9, 10) for r in rows())
    assert [sum(long[start : start + 10]) for start in range(0, 100, 10)] == [3] * 10


def test_the_first_rows_do_not_depend_on_how_many_are_asked_for():
    size = CHUNK_ENTRIES + 10
    few, many = rows(tasks=[SHORT], train_size=size), rows(tasks=[SHORT], train_size=size + 40)
    assert few == many[:size]


def test_a_new_chunk_brings_new_questions():
    questions = [question(row) for row in rows(tasks=[LONG], train_size=2 * CHUNK_ENTRIES)]
    repeated = sum(count - 1 for count in Counter(questions).values())
    # 512 draws of about 63,000 words: 512 * 511 / 2 / 63,000 = 2 repeats are to be expected
    assert repeated < 10


def test_rows_depend_on_the_task_seed_and_on_nothing_else():
    assert rows() == rows()
    assert [question(r) for r in rows(task_seed=1)] != [question(r) for r in rows()]
    assert not {r.extra_info["uid"] for r in rows(task_seed=1)} & {r.extra_info["uid"] for r in rows()}


def test_uids_are_unique_in_mixture_and_splits():
    uids = [r.extra_info["uid"] for split in ("train", "val") for r in rows(split)]
    assert len(set(uids)) == len(uids) == 70


def test_another_process_generates_the_same_rows():
    program = (
        "from flexfloor.data.config import *; from flexfloor.data.tasks import *\n"
        f"tasks = [{SHORT!r}, {LONG!r}]\n"
        "for row in generate_rows(DataConfig(tasks=tasks, train_size=50, val_size=20), 'val'):\n"
        "    print(row.where, row.messages[0]['content'])"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert out.stdout.splitlines() == [f"{row.where} {question(row)}" for row in rows("val")]


def test_validation_has_no_question_of_training_and_none_twice():
    # 1,370 words of 3 letters: of 60 validation words about 60 * 600 / 1,370 = 26 would be known ones
    words = TaskConfig(name="spell_backward", config={"min_word_len": 3, "max_word_len": 3})
    settings = {"tasks": [words], "train_size": 600, "val_size": 60}
    train, val = ([question(r) for r in rows(split, **settings)] for split in ("train", "val"))
    assert len(val) == len(set(val)) == 60
    assert not set(train) & set(val)


def test_a_task_without_enough_questions_for_validation_is_named(tmp_path):
    (tmp_path / "words.txt").write_text("abc\ndef\nghi\n")
    words = TaskConfig(name="spell_backward", config={"data_file": str(tmp_path / "words.txt")})
    with pytest.raises(
        DataError, match=r"data.val_size: task spell_backward has too few questions .*\(0 found\)"
    ):
        rows("val", tasks=[words], train_size=50, val_size=2)
    assert rows("val", tasks=[words], train_size=50, val_size=0) == []


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (TaskConfig(name="spell_backwards"), "name='spell_backwards' is unknown, nearest: 'spell_backward'"),
        (
            TaskConfig(name="spell_backward", config={"max_len": 3}),
            "[spell_backward].config.max_len is unknown, allowed: min_word_len, max_word_len, data_file",
        ),
        (
            TaskConfig(name="spell_backward", config={"min_word_len": 5, "max_word_len": 3}),
            "the task rejects it: max_word_len must be >= min_word_len",
        ),
        (
            TaskConfig(name="spell_backward", config={"min_word_len": "five"}),
            "data.tasks[spell_backward].config={'min_word_len': 'five'}: the task rejects it",
        ),
        (
            TaskConfig(name="spell_backward", config={"min_word_len": 30, "max_word_len": 40}),
            "data.tasks[spell_backward].config={'min_word_len': 30, 'max_word_len': 40}: the task rejects it",
        ),
        (TaskConfig(name="mine", path="gone.py"), "data.tasks[mine].path=gone.py: no such file"),
    ],
)
def test_a_task_that_cannot_be_made_is_named(task, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        rows(tasks=[task])


OWN_TASK = """
from dataclasses import dataclass
from reasoning_gym.factory import ProceduralDataset, register_dataset

@dataclass
class EchoConfig:
    seed: int = 0
    size: int = 0
    suffix: str = "!"

class Echo(ProceduralDataset):
    def __init__(self, config):
        super().__init__(config=config, seed=config.seed, size=config.size)

    def __getitem__(self, idx):
        question = f"{self.seed + idx}"
        return {"question": question, "answer": question + self.config.suffix, "metadata": {}}

register_dataset("echo_of_a_test", Echo, EchoConfig)
"""


def test_a_task_of_the_user_is_registered_by_its_file(tmp_path):
    (tmp_path / "echo.py").write_text(OWN_TASK)
    task = TaskConfig(name="echo_of_a_test", path=str(tmp_path / "echo.py"), config={"suffix": "?"})
    train, val = rows("train", tasks=[task]), rows("val", tasks=[task])
    assert all(row.ground_truth == question(row) + "?" for row in train + val)
    assert len(train) == 50
    assert len(val) == 20
