"""What a data row is before and after it is rendered into tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a file or of a generated task, checked but not rendered."""

    where: str
    """for error messages: file and row, or task and index"""
    data_source: str
    messages: tuple[dict[str, str], ...]
    """each with `role` and `content`"""
    ground_truth: Any
    extra_info: Mapping[str, Any] = field(default_factory=dict)
    ability: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One prompt, ready to be generated from and scored."""

    uid: str
    """the same in every run and process for the same row"""
    data_source: str
    """where the row comes from, e.g. `reasoning_gym/spell_backward`; picks the scorer"""
    text: str
    """as rendered, before it was cut"""
    token_ids: tuple[int, ...]
    """tokens of `text`, at least one, at most `data.max_prompt_length`"""
    ground_truth: Any
    """what the reward compares with"""
    extra_info: Mapping[str, Any] = field(default_factory=dict)
    """the row's `extra_info`; for a generated task also what its scorer needs"""
    ability: str = ""
