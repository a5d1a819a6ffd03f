"""Loading a tokenizer, and the two questions that go wrong when each caller answers them alone.

Which id fills unused places: never the end-of-sequence id, whatever the tokenizer says, so that
no mask that is derived from ids can take one for the other. Which text a response is: the tokens
as they are without the one end-of-sequence token that finished it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

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


def padding_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """The id for unused places: the tokenizer's own, unless it has none or shares it with EOS."""
    eos = tokenizer.eos_token_id
    candidates = (tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.bos_token_id, 0, 1)
    return next(i for i in candidates if i is not None and i != eos)


def decode_response(tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int]) -> str:
    """Text of a response without its final EOS; other special tokens stay visible to the scorer."""
    ids = list(token_ids)
    if ids and ids[-1] == tokenizer.eos_token_id:
        ids.pop()
    return str(tokenizer.decode(ids, skip_special_tokens=False))


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
