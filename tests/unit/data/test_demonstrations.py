import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from flexfloor.data.demonstrations import demonstrate
from flexfloor.data.types import Prompt
from flexfloor.errors import DataError


def prompt(ground_truth):
    return Prompt(uid="p", data_source="sums", text="", token_ids=(7, 8), ground_truth=ground_truth)


def test_the_answer_is_the_ground_truth_and_eos(tokenizer):
    [demonstration] = demonstrate([prompt("ab")], tokenizer, max_response_length=3)
    assert demonstration.uid == "p"
    assert demonstration.prompt_ids == (7, 8)
    assert tokenizer.convert_ids_to_tokens(list(demonstration.response_ids)) == ["a", "b", "<eos>"]


@pytest.mark.parametrize("pad", ["</s>", None], ids=["pad is eos", "no pad"])
def test_exactly_one_eos_ends_an_answer_whatever_padding_is(pad):
    words = Tokenizer(models.WordLevel({"a": 0, "b": 1, "</s>": 2, "<s>": 3}, "a"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 3)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="</s>", pad_token=pad)
    [demonstration] = demonstrate([prompt("a b")], tokenizer, max_response_length=8)
    assert demonstration.response_ids == (0, 1, 2)


@pytest.mark.parametrize(
    ("ground_truth", "message"),
    [
        (None, "prompt p: its ground truth is a NoneType, SFT needs a text"),
        (3, "prompt p: its ground truth is a int, SFT needs a text"),
        ("\ud800", "prompt p: its ground truth is not valid Unicode"),
        ("a<eos>b", "prompt p: its ground truth contains the end-of-sequence token <eos>"),
        ("abcd", "prompt p: its ground truth has 5 tokens with EOS, data.max_response_length=4"),
    ],
)
def test_a_ground_truth_that_cannot_be_demonstrated_is_named(tokenizer, ground_truth, message):
    with pytest.raises(DataError, match=message):
        demonstrate([prompt("a"), prompt(ground_truth)], tokenizer, max_response_length=4)
