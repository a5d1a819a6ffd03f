"""Rows for supervised fine-tuning: a prompt with its ground truth as the answer.

Invariants:
- An answer holds exactly one EOS, its last token, also when padding and EOS are one token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flexfloor.data.types import Prompt
from flexfloor.errors import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """What to answer to a prompt."""

    uid: str
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    """the answer and EOS"""


def demonstrate(
    prompts: Sequence[Prompt], tokenizer: PreTrainedTokenizerBase, max_response_length: int
) -> list[Demonstration]:
    """One demonstration a prompt, in order.

    Raises:
        DataError: naming the prompt whose ground truth is no (Unicode) text, contains EOS, or is longer than
            `max_response_length` tokens with its EOS.
    """
    return [
        Demonstration(
            uid=prompt.uid,
            prompt_ids=prompt.token_ids,
            response_ids=_answer_ids(prompt, tokenizer, max_response_length),
        )
        for prompt in prompts
    ]


def _answer_ids(
    prompt: Prompt, tokenizer: PreTrainedTokenizerBase, max_response_length: int
) -> tuple[int, ...]:
    where = f"prompt {prompt.uid}: its ground truth"
    if not isinstance(prompt.ground_truth, str):
        raise DataError(f"{where} is a {type(prompt.ground_truth).__name__}, SFT needs a text")
    try:
        prompt.ground_truth.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{where} is not valid Unicode: {error}") from error
    token_ids = tokenizer(prompt.ground_truth, add_special_tokens=False)["input_ids"]
    if tokenizer.eos_token_id in token_ids:
        raise DataError(f"{where} contains the end-of-sequence token {tokenizer.eos_token}")
    if len(token_ids) >= max_response_length:
        length = len(token_ids) + 1
        raise DataError(
            f"{where} has {length} tokens with EOS, data.max_response_length={max_response_length}"
        )
    return (*token_ids, tokenizer.eos_token_id)
