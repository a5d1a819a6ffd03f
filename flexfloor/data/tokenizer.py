"""Loading a tokenizer, and which text a response is.

A tokenizer needs an end-of-sequence token and no padding: nothing is ever padded, so that no mask can
take one for the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flexfloor.checks import require
from flexfloor.data.char_tokenizer import build_char_tokenizer
from flexfloor.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BUILTIN = {"builtin:char": build_char_tokenizer}


def load_tokenizer(path: str) -> PreTrainedTokenizerBase:
    """The tokenizer `builtin:char`, or the Hugging Face one at `path` (folder or hub name).

    Raises:
        ConfigError: nothing usable is there, or the tokenizer has no end-of-sequence token.
    """
    tokenizer = BUILTIN[path]() if path in BUILTIN else _load_pretrained(path)
    if tokenizer.eos_token_id is None:
        raise ConfigError(f"tokenizer.path={path}: it has no end-of-sequence token (eos_token)")
    return tokenizer


def num_tokens(tokenizer: PreTrainedTokenizerBase) -> int:
    """Rows of an embedding that has one for every token, added ones too."""
    return max(tokenizer.get_vocab().values()) + 1


def embedding_rows(rows: int | None, tokenizer: PreTrainedTokenizerBase) -> int:
    """Rows of the embedding: `rows` as `model.vocab_size` says, or one for every token.

    Raises ConfigError when there are more tokens than rows.
    """
    tokens = num_tokens(tokenizer)
    allowed = f"{tokens} or more, for the tokens of the tokenizer; does tokenizer.path fit model.path?"
    require(rows is None or rows >= tokens, "model.vocab_size", rows, allowed)
    return rows or tokens


def decode_response(tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int]) -> str:
    """Text of a response without its final EOS; other special tokens stay visible to the scorer."""
    ids = list(token_ids)
    if ids and ids[-1] == tokenizer.eos_token_id:
        ids.pop()
    return decode_tokens(tokenizer, ids)


def decode_tokens(tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int]) -> str:
    """Text of any tokens, special ones visible."""
    return str(tokenizer.decode(list(token_ids), skip_special_tokens=False))


def _load_pretrained(path: str) -> PreTrainedTokenizerBase:
    if path.startswith("builtin:"):
        raise ConfigError(f"tokenizer.path={path}, allowed: {', '.join(BUILTIN)} or a Hugging Face path")
    if path.startswith((".", "/", "~")) and not Path(path).expanduser().exists():
        raise ConfigError(f"tokenizer.path={path}: no such folder")
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(Path(path).expanduser()))
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"tokenizer.path={path}: no tokenizer there ({reason}), "
            f"allowed: a folder with a Hugging Face tokenizer, its hub name, or {', '.join(BUILTIN)}"
        ) from error
