"""The tokenizer that ships with the program: one token a character, built in code, no download.

Every byte that UTF-8 can hold is a token, so each ASCII character is one token and any other
character is two to four; with the special tokens that makes a vocabulary of 256. It is a Hugging
Face fast tokenizer with a chat template, and saves and loads as one.

Invariants:
- `decode(encode(text)) == text` for every text, and nothing is unknown.
- The padding token is not the end-of-sequence token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
ROLES = ("<system>", "<user>", "<assistant>")
NUM_TOKENS = 256

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('role ' ~ message['role'] ~ ' is not one of system, user, assistant') }}"
    "{% endif %}"
    "{{ '<' ~ message['role'] ~ '>' ~ message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)


def build_char_tokenizer() -> PreTrainedTokenizerFast:
    """A new character tokenizer; ids 0, 1, 2 are `<pad>`, `<bos>`, `<eos>`."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = _byte_alphabet(pre_tokenizers.ByteLevel.alphabet())
    specials = [PAD, BOS, EOS, *ROLES]
    specials += [f"<reserved_{i}>" for i in range(NUM_TOKENS - len(specials) - len(alphabet))]
    vocabulary = {token: i for i, token in enumerate(specials + alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in specials])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def _byte_alphabet(all_bytes: list[str]) -> list[str]:
    """The letters that stand for bytes, without the 13 bytes that no UTF-8 text holds."""
    never_in_utf8 = {chr(byte) for byte in (0xC0, 0xC1, *range(0xF5, 0x100))}
    return sorted(set(all_bytes) - never_in_utf8)
