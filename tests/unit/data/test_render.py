import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from flexfloor.data.render import render
from flexfloor.data.types import Row
from flexfloor.errors import ConfigError, DataError


def row(*messages):
    contents = tuple({"role": role, "content": content} for role, content in messages)
    return Row(where="f, row 1", data_source="sums", messages=contents, ground_truth="")


def word_tokenizer():
    """Words a and b; adds <s> before a text, and has no chat template."""
    tokenizer = Tokenizer(models.WordLevel({"<s>": 0, "a": 1, "b": 2, "</s>": 3}, "</s>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


def test_a_chat_ends_where_the_answer_begins(tokenizer):
    texts, token_ids = render([row(("system", "s"), ("user", "u"))], tokenizer, chat_template=True)
    assert texts == ["<system>s<user>u<assistant>"]
    assert tokenizer.convert_ids_to_tokens(token_ids[0]) == ["<system>", "s", "<user>", "u", "<assistant>"]


def test_plain_prompts_are_the_contents_with_what_the_tokenizer_adds():
    texts, token_ids = render([row(("system", "a"), ("user", "b"))], word_tokenizer(), chat_template=False)
    assert texts == ["a\nb"]
    assert token_ids == [[0, 1, 2]]


def test_a_chat_gets_no_second_start_token():
    tokenizer = word_tokenizer()
    tokenizer.chat_template = "<s>{% for m in messages %} {{ m['content'] }}{% endfor %}"
    assert render([row(("user", "a b"))], tokenizer, chat_template=True)[1] == [[0, 1, 2]]


def test_a_missing_chat_template_is_a_config_error():
    with pytest.raises(ConfigError, match=r"data.chat_template=true, .* no chat template, allowed: false"):
        render([row(("user", "a"))], word_tokenizer(), chat_template=True)


@pytest.mark.parametrize(
    ("messages", "chat_template", "message"),
    [
        ([("judge", "a")], True, "f, row 1: the chat template rejects the messages: role judge"),
        ([("user", "\ud800")], True, "f, row 1: the prompt is not valid Unicode"),
        ([("user", "")], False, "f, row 1: the prompt is empty"),
    ],
)
def test_a_prompt_that_cannot_be_rendered_is_named(tokenizer, messages, chat_template, message):
    with pytest.raises(DataError, match=message):
        render([row(*messages)], tokenizer, chat_template)


def test_no_rows_give_no_prompts(tokenizer):
    assert render([], tokenizer, chat_template=True) == ([], [])
