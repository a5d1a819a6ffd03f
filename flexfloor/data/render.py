"""Messages to text to tokens: with the tokenizer's chat template, or plain.

The chat template brings its own special tokens, so none are added to its text; plain text gets those
that the tokenizer adds to any text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flexfloor.data.types import Row
from flexfloor.errors import ConfigError, DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def render(
    rows: Sequence[Row], tokenizer: PreTrainedTokenizerBase, chat_template: bool
) -> tuple[list[str], list[list[int]]]:
    """Text and token ids of each row's prompt.

    Raises:
        ConfigError: the tokenizer has no chat template although `chat_template` asks for it.
        DataError: naming the row whose messages the template rejects, whose text is not Unicode, or
            whose prompt has no tokens.
    """
    if chat_template and tokenizer.chat_template is None:
        raise ConfigError(
            f"data.chat_template=true, but the tokenizer {tokenizer.name_or_path} has no chat template, "
            "allowed: false"
        )
    texts = [_text(row, tokenizer, chat_template) for row in rows]
    if not texts:
        return [], []
    token_ids = tokenizer(texts, add_special_tokens=not chat_template)["input_ids"]
    for row, ids in zip(rows, token_ids, strict=True):
        if not ids:
            raise DataError(f"{row.where}: the prompt is empty")
    return texts, token_ids


def _text(row: Row, tokenizer: PreTrainedTokenizerBase, chat_template: bool) -> str:
    text = _chat_text(row, tokenizer) if chat_template else "\n".join(m["content"] for m in row.messages)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{row.where}: the prompt is not valid Unicode: {error}") from error
    return text


def _chat_text(row: Row, tokenizer: PreTrainedTokenizerBase) -> str:
    from jinja2 import TemplateError

    try:
        messages = list(row.messages)
        return str(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
    except TemplateError as error:
        raise DataError(f"{row.where}: the chat template rejects the messages: {error}") from error
