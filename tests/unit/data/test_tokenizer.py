import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from flexfloor.data.char_tokenizer import build_char_tokenizer
from flexfloor.data.tokenizer import decode_response, embedding_rows, load_tokenizer
from flexfloor.errors import ConfigError

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
BUILT = build_char_tokenizer()


@given(text=TEXTS)
@example(text="a . b , c ? it 's n't <pad><eos>")
def test_any_text_survives_encoding(text):
    assert BUILT.decode(BUILT(text)["input_ids"]) == text


def test_each_ascii_character_is_one_token_and_others_are_their_bytes(tokenizer):
    ascii_text = "".join(map(chr, range(128)))
    assert len(set(tokenizer(ascii_text)["input_ids"])) == len(tokenizer(ascii_text)["input_ids"]) == 128
    assert [len(tokenizer(c)["input_ids"]) for c in "é漢🎉"] == [2, 3, 4]


def test_the_vocabulary_is_256_tokens_with_padding_apart_from_eos(tokenizer):
    assert len(tokenizer) == 256
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 1, 2)


def test_it_is_saved_and_loaded_as_a_hugging_face_tokenizer(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    tokenizer.save_pretrained(tmp_path)
    for loaded in (AutoTokenizer.from_pretrained(tmp_path), load_tokenizer(str(tmp_path))):
        assert isinstance(loaded, PreTrainedTokenizerFast)
        assert loaded.get_vocab() == tokenizer.get_vocab()
        assert (loaded.pad_token_id, loaded.eos_token_id) == (0, 2)
        text = "Ünï\t🎉 a  b <eos>"
        assert loaded(text)["input_ids"] == tokenizer(text)["input_ids"]
        assert loaded.decode(loaded(text)["input_ids"]) == text
        messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
        rendered = loaded.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        assert rendered == "<system>s<user>u<assistant>"


def test_a_chat_marks_the_end_of_each_answer(tokenizer):
    messages = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]
    assert tokenizer.apply_chat_template(messages, tokenize=False) == "<user>u<assistant>a<eos>"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("builtin:word", ["tokenizer.path=builtin:word", "builtin:char"]),
        ("./nothing/here", ["tokenizer.path=./nothing/here", "no such folder"]),
        ("not a name!", ["tokenizer.path=not a name!", "builtin:char"]),
    ],
)
def test_a_path_without_a_tokenizer_is_named(path, words):
    with pytest.raises(ConfigError) as error:
        load_tokenizer(path)
    for word in words:
        assert word in str(error.value)


def test_a_folder_without_a_tokenizer_is_named(tmp_path):
    with pytest.raises(ConfigError, match="no tokenizer there") as error:
        load_tokenizer(str(tmp_path))
    assert str(tmp_path) in str(error.value)


def word_tokenizer(**specials):
    vocabulary = {"a": 0, "b": 1, "</s>": 2, "<s>": 3}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(vocabulary, "a")), **specials)


def test_a_tokenizer_without_eos_is_refused(tmp_path):
    word_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="no end-of-sequence token"):
        load_tokenizer(str(tmp_path))


def test_the_scorer_sees_all_of_a_response_but_its_end(tokenizer):
    eos = tokenizer.eos_token_id
    ids = tokenizer("a<user>b")["input_ids"]
    assert decode_response(tokenizer, ids) == "a<user>b"
    assert decode_response(tokenizer, [*ids, eos]) == "a<user>b"
    assert decode_response(tokenizer, [eos]) == decode_response(tokenizer, []) == ""


def test_an_embedding_has_a_row_for_every_token_or_as_many_as_the_model_says():
    built = build_char_tokenizer()
    assert (embedding_rows(None, built), embedding_rows(300, built)) == (256, 300)
    built.add_tokens(["<tool>"])
    assert embedding_rows(None, built) == 257
    with pytest.raises(ConfigError, match=r"model.vocab_size = 256: must be 257 or more"):
        embedding_rows(256, built)
