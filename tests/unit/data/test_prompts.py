import json

import pytest

from flexfloor.data.config import DataConfig, TaskConfig
from flexfloor.data.prompts import load_prompts
from flexfloor.errors import ConfigError, DataError


@pytest.fixture
def load(tmp_path, tokenizer, record):
    """Load one plain prompt a text; a text has as many tokens as characters."""

    def load(texts, split="train", **settings):
        file = tmp_path / "rows.jsonl"
        rows = [
            {**record, "prompt": [{"role": "user", "content": text}], "extra_info": {"index": index}}
            for index, text in enumerate(texts)
        ]
        file.write_text("\n".join(map(json.dumps, rows)))
        cfg = DataConfig(train_files=[str(file)], chat_template=False, **settings)
        return load_prompts(cfg, tokenizer, split)

    return load


def test_prompts_keep_the_order_and_all_of_a_row(load, tokenizer):
    first, second = load(["one", "seven"])
    assert (first.text, second.text) == ("one", "seven")
    assert list(second.token_ids) == tokenizer("seven")["input_ids"]
    assert (first.data_source, first.ability, first.ground_truth) == ("sums", "maths", "2")
    assert first.extra_info == {"index": 0}
    assert first.uid != second.uid


def test_a_prompt_may_have_the_allowed_length_and_not_one_token_more(load):
    assert len(load(["12345"], max_prompt_length=5)[0].token_ids) == 5
    with pytest.raises(
        DataError, match=r"rows.jsonl, line 2: the prompt has 6 tokens, data.max_prompt_length=5"
    ):
        load(["1234", "123456"], max_prompt_length=5)


@pytest.mark.parametrize(("truncation", "kept"), [("left", "3456"), ("right", "1234")])
def test_a_longer_prompt_is_cut_at_the_side_that_is_named(load, tokenizer, truncation, kept):
    [prompt] = load(["123456"], max_prompt_length=4, truncation=truncation)
    assert tokenizer.decode(list(prompt.token_ids)) == kept
    assert prompt.text == "123456"


@pytest.mark.parametrize("truncation", ["error", "left"])
def test_longer_prompts_are_filtered_before_truncation_is_looked_at(load, truncation):
    settings = {"max_prompt_length": 4, "filter_overlong_prompts": True, "truncation": truncation}
    assert [p.text for p in load(["123456", "12", "12345", "1234"], **settings)] == ["12", "1234"]


def test_no_prompt_left_is_an_error(load):
    with pytest.raises(
        DataError, match=r"leaves none of the 2 train prompts: the shortest has 5 tokens, .*=3"
    ):
        load(["123456", "12345"], max_prompt_length=3, filter_overlong_prompts=True)


def test_two_rows_of_one_uid_are_both_named(tmp_path, tokenizer, record):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(record) + "\n" + json.dumps(record))
    cfg = DataConfig(train_files=[str(file)])
    with pytest.raises(DataError, match=r"rows.jsonl, line 1 and .*rows.jsonl, line 2 have the same uid"):
        load_prompts(cfg, tokenizer, "train")


def test_there_is_no_validation_without_validation_files(load):
    assert load(["1"], split="val") == []


def test_a_missing_validation_file_is_named_with_its_setting(tokenizer):
    cfg = DataConfig(train_files=["also-gone.jsonl"], val_files=["gone.jsonl"])
    with pytest.raises(DataError, match=r"data.val_files: gone.jsonl"):
        load_prompts(cfg, tokenizer, "val")


def test_settings_without_data_are_refused(tokenizer):
    with pytest.raises(ConfigError, match=r"data.train_files and data.tasks are both empty"):
        load_prompts(DataConfig(), tokenizer, "train")


def test_generated_tasks_become_prompts(tokenizer):
    task = TaskConfig(name="spell_backward", config={"min_word_len": 3, "max_word_len": 10})
    cfg = DataConfig(tasks=[task], train_size=30, val_size=10)
    train, val = (load_prompts(cfg, tokenizer, split) for split in ("train", "val"))
    assert (len(train), len(val)) == (30, 10)
    assert not {p.text for p in train} & {p.text for p in val}
    for prompt in train + val:
        word = prompt.ground_truth[::-1]
        assert prompt.text == f"<user>Spell this word backward (example: sun -> nus): {word}<assistant>"
        assert tokenizer.decode(list(prompt.token_ids)) == prompt.text


def test_a_generated_prompt_that_is_too_long_is_named(tokenizer):
    cfg = DataConfig(tasks=[TaskConfig(name="spell_backward")], train_size=5, max_prompt_length=20)
    with pytest.raises(DataError, match=r"spell_backward/train/0.0/0: the prompt has \d+ tokens"):
        load_prompts(cfg, tokenizer, "train")
