import subprocess
import sys
import threading

import pytest

from flexfloor.data.config import DataConfig, TaskConfig
from flexfloor.data.prompts import load_prompts
from flexfloor.data.tokenizer import load_tokenizer
from flexfloor.errors import ConfigError
from flexfloor.reward.scorers import TaskScorer


@pytest.fixture
def spelling(make_prompt):
    return make_prompt(
        ground_truth="sun", data_source="reasoning_gym/spell_backward", metadata={"word": "nus"}
    )


@pytest.mark.parametrize(
    ("response", "score"),
    [
        ("sun", 1.0),
        (" Sun\n", 1.0),
        ("sup", 2 / 3),
        ("", 0.0),
        ("I think <answer>nus</answer>, no: <answer> sun </answer> it is", 1.0),
        ("sun <answer>xyz</answer>", 0.0),
    ],
)
def test_the_task_scores_the_answer_of_a_response(spelling, response, score):
    assert TaskScorer([spelling])(spelling, response, "eos") == pytest.approx(score)


def test_a_scorer_knows_the_options_its_task_was_made_with(make_prompt):
    # the score is 1 - difference / max_time_difference_seconds
    source, truth = "reasoning_gym/time_intervals", "00:00:10"
    metadata = {"task_type": "time_seconds"}
    prompts = [
        make_prompt(
            str(limit), truth, source, metadata=metadata, task_options={"max_time_difference_seconds": limit}
        )
        for limit in (100, 1000)
    ]
    scorer = TaskScorer(prompts)
    assert [scorer(p, "00:00:20", "eos") for p in prompts] == pytest.approx([0.9, 0.99])


@pytest.mark.parametrize(
    "task", ["spell_backward", "rubiks_cube", "propositional_logic", "countdown", "maze"]
)
def test_generated_prompts_of_any_kind_can_be_scored(task):
    cfg = DataConfig(tasks=[TaskConfig(name=task)], train_size=3, val_size=0, max_prompt_length=10_000)
    prompts = load_prompts(cfg, load_tokenizer("builtin:char"), "train")
    scorer = TaskScorer(prompts)
    for prompt in prompts:
        assert 0 <= scorer(prompt, "no idea", "eos") < 0.1
        if isinstance(prompt.ground_truth, str):
            assert scorer(prompt, prompt.ground_truth, "eos") == 1.0


def test_prompts_without_what_the_scorer_needs_are_refused(make_prompt):
    prompt = make_prompt(uid="bare", data_source="reasoning_gym/spell_backward")
    with pytest.raises(
        ConfigError, match=r"prompt bare of reasoning_gym/spell_backward: .* extra_info.metadata"
    ):
        TaskScorer([prompt])


@pytest.mark.parametrize(
    ("extra_info", "message"),
    [
        ({"metadata": [1]}, "the task's scorer needs the object extra_info.metadata"),
        ({"metadata": {}, "task_options": ["min_word_len"]}, "extra_info.task_options must be an object"),
        ({"metadata": {}, "task_options": {"min_word_len": "a"}}, "has no scorer: .* the task rejects it"),
    ],
)
def test_what_the_scorer_cannot_use_names_the_prompt(make_prompt, extra_info, message):
    with pytest.raises(ConfigError, match=f"^prompt odd of reasoning_gym/spell_backward.*{message}"):
        TaskScorer([make_prompt("odd", data_source="reasoning_gym/spell_backward", **extra_info)])


def test_an_option_that_only_another_row_of_a_parquet_file_has_is_not_there(make_prompt):
    options = {"min_word_len": 3, "max_time_difference_seconds": None}
    prompt = make_prompt(
        ground_truth="sun", data_source="reasoning_gym/spell_backward", metadata={}, task_options=options
    )
    assert TaskScorer([prompt])(prompt, "sun", "eos") == 1.0


def test_unknown_tasks_are_refused(make_prompt):
    prompt = make_prompt(data_source="reasoning_gym/spell_backwards", metadata={})
    with pytest.raises(ConfigError, match="'spell_backwards' is unknown, nearest: 'spell_backward'"):
        TaskScorer([prompt])


def test_threads_take_turns(spelling, monkeypatch):
    inside, most = 0, 0

    def score_answer(answer, entry):
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        threading.Event().wait(0.002)
        inside -= 1
        return 1.0

    scorer = TaskScorer([spelling])
    [task] = scorer._tasks.values()
    monkeypatch.setattr(task, "score_answer", score_answer, raising=True)
    threads = [threading.Thread(target=scorer, args=(spelling, "sun", "eos")) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_heavy_packages_are_not_loaded_before_they_are_needed():
    heavy = {"reasoning_gym", "torch", "transformers", "pyarrow"}
    program = f"import sys, flexfloor.data.prompts, flexfloor.reward.load; print({heavy} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"
