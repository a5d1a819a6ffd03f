"""Prompts of a split: rows from files or tasks, rendered, held to the allowed length, named.

Invariants:
- A prompt has at least one and at most `data.max_prompt_length` tokens.
- Prompts keep the order of the rows, and none is left out unless `data.filter_overlong_prompts` says so.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from flexfloor.data.config import DataConfig
from flexfloor.data.render import render
from flexfloor.data.rows import read_rows
from flexfloor.data.tasks import generate_rows
from flexfloor.data.types import Prompt, Row
from flexfloor.data.uid import check_unique, prompt_uid
from flexfloor.errors import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)


def load_prompts(cfg: DataConfig, tokenizer: PreTrainedTokenizerBase, split: str) -> list[Prompt]:
    """All prompts of `split`, which is `train` or `val`; empty for `val` when there is no validation data.

    Raises:
        ConfigError: the settings name no data, an unknown task or option, or a missing chat template.
        DataError: naming file, row and column of what cannot be used.
    """
    assert split in ("train", "val"), split
    cfg.require_source()
    rows = _rows(cfg, split)
    texts, token_ids = render(rows, tokenizer, cfg.chat_template)
    fitting = [
        (row, text, ids)
        for row, text, ids in zip(rows, texts, token_ids, strict=True)
        if len(ids) <= cfg.max_prompt_length or not cfg.filter_overlong_prompts
    ]
    if len(fitting) < len(rows):
        _report_filtered(cfg, split, len(rows) - len(fitting), min(map(len, token_ids)), len(rows))
    prompts = [_prompt(row, text, ids, cfg) for row, text, ids in fitting]
    check_unique(prompts, [row.where for row, _, _ in fitting])
    return prompts


def _rows(cfg: DataConfig, split: str) -> list[Row]:
    if cfg.tasks:
        return generate_rows(cfg, split)
    files = cfg.train_files if split == "train" else cfg.val_files
    return read_rows(files, f"data.{split}_files", cfg.prompt_key)


def _report_filtered(cfg: DataConfig, split: str, num_filtered: int, shortest: int, num_rows: int) -> None:
    if num_filtered == num_rows:
        raise DataError(
            f"data.filter_overlong_prompts leaves none of the {num_rows} {split} prompts: the shortest has "
            f"{shortest} tokens, data.max_prompt_length={cfg.max_prompt_length}"
        )
    logger.info("%s: left out %d of %d prompts that are too long", split, num_filtered, num_rows)


def _prompt(row: Row, text: str, token_ids: list[int], cfg: DataConfig) -> Prompt:
    return Prompt(
        uid=prompt_uid(row, token_ids),
        data_source=row.data_source,
        text=text,
        token_ids=_truncate(token_ids, cfg, row.where),
        ground_truth=row.ground_truth,
        extra_info=row.extra_info,
        ability=row.ability,
    )


def _truncate(token_ids: list[int], cfg: DataConfig, where: str) -> tuple[int, ...]:
    limit = cfg.max_prompt_length
    if len(token_ids) > limit and cfg.truncation == "error":
        raise DataError(
            f"{where}: the prompt has {len(token_ids)} tokens, data.max_prompt_length={limit}; raise it, "
            "or set data.truncation to left or right, or data.filter_overlong_prompts=true"
        )
    return tuple(token_ids[-limit:] if cfg.truncation == "left" else token_ids[:limit])
