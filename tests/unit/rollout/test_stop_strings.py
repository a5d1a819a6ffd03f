"""Stop strings are found at the very token that completes them, however the tokenizer cuts the text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from flexfloor.data.char_tokenizer import build_char_tokenizer
from flexfloor.data.tokenizer import decode_tokens
from flexfloor.rollout.stop import StopStrings

CHARACTERS = build_char_tokenizer()


def characters(token_ids):
    return decode_tokens(CHARACTERS, token_ids)


def byte_pairs():
    """A byte-level tokenizer whose tokens hold up to a few characters, or a part of one."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    text = ["the end. END of it</answer> fin\n\n", "##END## ends a</answer>b", "é→é → THE END"] * 3
    tokenizer.train_from_iterator(
        text, trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet, show_progress=False)
    )
    return tokenizer


def pieces():
    """As sentencepiece: words begin with a mark, and the text's first space is dropped."""
    words = ["▁", "▁the", "▁END", "EN", "D", "E", "N", "</", "answer", ">", "\n", "▁é"]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer = Tokenizer(models.BPE({word: index for index, word in enumerate([*words, *bytes_])}, []))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


TOKENIZERS = {"byte pairs": byte_pairs(), "pieces": pieces()}
STRINGS = [["END"], [" END"], ["</answer>", "\n\n"], ["é"], ["→ T", "nd"], ["."]]


def first_end(strings, decode, token_ids):
    """By the definition: tokens after which the whole text first contains a string."""
    for count in range(1, len(token_ids) + 1):
        if any(string in decode(token_ids[:count]) for string in strings):
            return count
    return None


def found(stop, token_ids):
    return next((n for n in range(1, len(token_ids) + 1) if stop.found_in(token_ids[:n])), None)


def test_a_string_across_token_borders_ends_at_the_token_that_completes_it():
    token_ids = CHARACTERS.encode("abc</answer> and more")
    stop = StopStrings(["</answer>"], characters)
    assert found(stop, token_ids) == len("abc</answer>")


def test_half_a_character_completes_nothing():
    token_ids = CHARACTERS.encode("xé")  # é is two tokens
    assert len(token_ids) == 3
    assert found(StopStrings(["é"], characters), token_ids) == 3
    assert found(StopStrings(["xé"], characters), token_ids) == 3


def test_a_special_token_may_be_a_stop_string():
    token_ids = [
        *CHARACTERS.encode("ab"),
        CHARACTERS.convert_tokens_to_ids("<user>"),
        *CHARACTERS.encode("c"),
    ]
    assert found(StopStrings(["<user>"], characters), token_ids) == 3


def test_a_token_that_goes_on_after_the_string_ends_the_response_too():
    token_ids = TOKENIZERS["byte pairs"].encode("the end.").ids
    decode = TOKENIZERS["byte pairs"].decode
    assert len(token_ids) < len("the end."), "some token holds several characters"
    assert found(StopStrings(["e"], decode), token_ids) == first_end(["e"], decode, token_ids)


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("strings", STRINGS, ids=repr)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_end_is_the_first_token_after_which_the_text_contains_a_string(name, strings, data):
    tokenizer = TOKENIZERS[name]
    size = tokenizer.get_vocab_size()
    some = st.integers(0, size - 1)
    likely = [
        tokenizer.token_to_id(token) for token in ("E", "N", "D", "EN", "END", "▁END", "ĠEND", ">", "Ã")
    ]
    drawn = st.lists(st.one_of(some, st.sampled_from([x for x in likely if x is not None])), max_size=60)
    token_ids = data.draw(drawn)
    expected = first_end(strings, tokenizer.decode, token_ids)
    assert found(StopStrings(strings, tokenizer.decode), token_ids) == expected


def test_what_a_check_costs_does_not_grow_with_the_response():
    lengths = []

    def decode(token_ids):
        lengths.append(len(token_ids))
        return "x" * len(token_ids)

    stop = StopStrings(["END", "é"], decode)
    assert found(stop, list(range(500))) is None
    assert max(lengths) == 2 * 3 + 1
