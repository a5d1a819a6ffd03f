"""The name of a prompt that is the same in every run and process.

`extra_info.uid` where the row has one, else a hash of (data_source, `extra_info.index`), else a hash
of the prompt's tokens. Python's own `hash` differs between processes, so it has no part in this.

Invariants:
- The same row gives the same uid in another process.
- No two prompts of one data set share a uid.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

from flexfloor.data.types import Prompt, Row
from flexfloor.errors import DataError

DIGEST_BYTES = 8


def prompt_uid(row: Row, token_ids: Sequence[int]) -> str:
    """uid of `row`, whose rendered prompt has `token_ids`."""
    given = row.extra_info.get("uid")
    if given is not None:
        return str(given)
    index = row.extra_info.get("index")
    return _digest([row.data_source, index] if index is not None else list(token_ids))


def check_unique(prompts: Sequence[Prompt], places: Sequence[str]) -> None:
    """Raise `DataError` naming both `places` if two prompts share a uid."""
    seen: dict[str, str] = {}
    for prompt, where in zip(prompts, places, strict=True):
        first = seen.setdefault(prompt.uid, where)
        if first is not where:
            raise DataError(
                f"{first} and {where} have the same uid {prompt.uid}: "
                "give them different extra_info.uid, or different extra_info.index"
            )


def fingerprint(prompts: Iterable[Prompt]) -> str:
    """Hash of uids and tokens in order: equal on two ranks or in two runs only for the same prompts."""
    return _digest([[prompt.uid, list(prompt.token_ids)] for prompt in prompts])


def _digest(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value, default=str).encode(), digest_size=DIGEST_BYTES).hexdigest()
