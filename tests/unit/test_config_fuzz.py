"""Whatever words the command line gives: a valid configuration or a `ConfigError` on one screen."""

from __future__ import annotations

import dataclasses
import types
import typing

from hypothesis import given, settings
from hypothesis import strategies as st

from flexfloor.config import Config, compose, to_yaml, validate
from flexfloor.errors import ConfigError

BASE = ["data.tasks=[{name: spell_backward}]"]
SCREEN_LINES, SCREEN_CHARACTERS = 24, 2000


def _field_names(section: object, prefix: str = "") -> list[str]:
    names = []
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        names.append(prefix + field.name)
        if dataclasses.is_dataclass(value):
            names += _field_names(value, f"{prefix}{field.name}.")
    return names


def _check_types(section: object) -> None:
    """Every value is of the kind that its field declares."""
    kinds = typing.get_type_hints(type(section))
    for field in dataclasses.fields(section):
        value, kind = getattr(section, field.name), kinds[field.name]
        if dataclasses.is_dataclass(kind):
            _check_types(value)
        plain = kind if isinstance(kind, types.UnionType) else typing.get_origin(kind) or kind
        assert isinstance(value, plain), (field.name, value)


NAMES = [*_field_names(Config()), "recipe", "data.tasks.0.weight", "reward.custom_reward_function.kwargs.x"]
VALUES = st.one_of(
    st.integers(-3, 2**40).map(str),
    st.floats().map(str),
    st.sampled_from(
        [
            *["", "null", "true", "???", "[]", "[1,2]", "{}", "{n: 3}", "[{name: x}]", "a,b", "[[1]]"],
            *[
                "${trainer.seed}",
                "${nope}",
                "${oc.env:NOPE}",
                "${",
                "int(x)",
                "range(3)",
                "'q",
                "tiny-mixtral",
            ],
        ]
    ),
    st.text(max_size=8),
)
ANY_TEXT = st.text(alphabet=st.sampled_from("abn.=+~@/[]{}:,'\"$\\ \n\té0-#"), max_size=14)


@st.composite
def words(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(NAMES))
    if draw(st.integers(0, 4)) == 0:
        cut = draw(st.integers(0, len(name)))
        name = name[:cut] + draw(st.text(alphabet="ab.@/", max_size=2)) + name[cut + 1 :]
    prefix = draw(st.sampled_from(["", "", "", "", "+", "++", "~"]))
    return f"{prefix}{name}={draw(VALUES)}"


@settings(max_examples=250, deadline=None)
@given(st.lists(st.one_of(words(), words(), ANY_TEXT), min_size=1, max_size=3))
def test_any_words_give_a_config_or_a_config_error(overrides: list[str]) -> None:
    try:
        config = compose([*BASE, *overrides])
    except ConfigError as error:
        message = str(error)
        assert message.strip()
        assert len(message.splitlines()) <= SCREEN_LINES and len(message) <= SCREEN_CHARACTERS
        assert "hydra" not in message.lower() or "hydra" in "".join(overrides).lower()
    else:
        assert isinstance(config, Config)
        assert to_yaml(config)
        validate(config)
        _check_types(config)
