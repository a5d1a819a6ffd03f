"""verl's data row: what each column must hold, and the error when it does not.

Columns: `data_source: str`, `prompt: [{"role", "content"}, ...]` (a plain string counts as one user
message), `reward_model: {"ground_truth", ...}`, and optionally `ability: str` and `extra_info: {...}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flexfloor.data.files import read_records
from flexfloor.data.types import Row
from flexfloor.errors import DataError

MAX_NAME_CHARACTERS = 200
"""Of a data source and of a uid, which stand in metrics' names, files and messages."""


def read_rows(paths: Sequence[str], setting: str, prompt_key: str) -> list[Row]:
    """All rows of the files `paths` in order; `setting` is the field that names them, for errors.

    Raises:
        DataError: naming file, row and column.
    """
    return [
        parse_row(record, where=where, prompt_key=prompt_key)
        for path in paths
        for where, record in read_records(path, setting)
    ]


def parse_row(record: Mapping[str, Any], *, where: str, prompt_key: str = "prompt") -> Row:
    """Check one record; raises `DataError` naming `where`, the column, and what it must hold."""
    columns = _Columns(record, where)
    reward_model = columns.required("reward_model", Mapping, "an object with ground_truth")
    if "ground_truth" not in reward_model:
        raise DataError(f"{where}: column reward_model has no ground_truth, it has: {_names(reward_model)}")
    prompt = columns.required(prompt_key, (list, str), "a list of messages")
    extra_info = columns.optional("extra_info", Mapping, "an object", default={})
    _check_uid(extra_info.get("uid"), f"{where}: column extra_info, uid")
    data_source = columns.required("data_source", str, "a string")
    _check_name(data_source, f"{where}: column data_source")
    return Row(
        where=where,
        data_source=data_source,
        messages=_messages(prompt, f"{where}: column {prompt_key}"),
        ground_truth=reward_model["ground_truth"],
        extra_info=extra_info,
        ability=columns.optional("ability", str, "a string", default=""),
    )


@dataclass(frozen=True, slots=True)
class _Columns:
    """Typed access to one record."""

    record: Mapping[str, Any]
    where: str

    def required(self, name: str, kinds: type | tuple[type, ...], allowed: str) -> Any:
        if name not in self.record:
            raise DataError(f"{self.where}: column {name} is missing, columns there: {_names(self.record)}")
        value = self.record[name]
        if not isinstance(value, kinds):
            raise DataError(f"{self.where}: column {name} holds {_kind(value)}, allowed: {allowed}")
        return value

    def optional(self, name: str, kinds: type, allowed: str, default: Any) -> Any:
        """The default also where the column is null, as parquet has it for rows without a value."""
        return default if self.record.get(name) is None else self.required(name, kinds, allowed)


def _messages(value: list[Any] | str, where: str) -> tuple[dict[str, str], ...]:
    if isinstance(value, str):
        return ({"role": "user", "content": value},)
    if not value:
        raise DataError(f"{where} holds no message")
    for number, message in enumerate(value, start=1):
        _check_message(message, f"{where}, message {number}")
    return tuple({"role": message["role"], "content": message["content"]} for message in value)


def _check_message(message: Any, where: str) -> None:
    if not isinstance(message, Mapping):
        raise DataError(f"{where} is {_kind(message)}, allowed: an object with role and content")
    for key in ("role", "content"):
        if not isinstance(message.get(key), str):
            raise DataError(f"{where}: {key} is {_kind(message.get(key))}, allowed: a string")


def _check_uid(value: Any, where: str) -> None:
    if value is not None and not isinstance(value, str | int):
        raise DataError(f"{where} is {_kind(value)}, allowed: a string or a whole number")
    if isinstance(value, str):
        _check_name(value, where)


def _check_name(value: str, where: str) -> None:
    """What becomes part of files and metrics' names has to be text that can be written."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{where} is not valid Unicode: {error}") from error
    if not 0 < len(value.strip()) <= MAX_NAME_CHARACTERS:
        allowed = f"1 to {MAX_NAME_CHARACTERS}, one of them no space"
        raise DataError(f"{where} has {len(value)} characters, allowed: {allowed}")


def _kind(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__


def _names(record: Mapping[str, Any]) -> str:
    return ", ".join(map(str, record)) or "none"
