"""Rotary angles of a config.json, which transformers has written in two ways.

Up to version 4: `rope_theta` at the top, and `rope_scaling`, null for plain angles. From 5 on both are in
`rope_parameters`. Either is read; the first is written, since both versions read it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from flexfloor.checks import require
from flexfloor.errors import ConfigError
from flexfloor.models.hf_file import HfFile
from flexfloor.models.hf_keys import Key
from flexfloor.models.rope_config import RopeScaling

_YARN = {
    "factor": Key(("factor",), float),
    "original_max_position_embeddings": Key(("original_max_position_embeddings",), int),
    "beta_fast": Key(("beta_fast",), float, 32.0),
    "beta_slow": Key(("beta_slow",), float, 1.0),
    "mscale": Key(("mscale",), float, 1.0),
    "mscale_all_dim": Key(("mscale_all_dim",), float, 0.0),
}
_FIXED = {"partial_rotary_factor": (1.0,), "truncate": (True,), "attention_factor": (None,)}
_KIND = ("rope_type", "type")


def read_rope(file: HfFile, *, may_scale: bool) -> dict[str, Any]:
    """`rope_theta` and `rope_scaling` of ModelConfig.

    Args:
        may_scale: whether the family's angles may be YaRN's.

    Raises ConfigError naming the key, its value and what is allowed.
    """
    inner = file.inside("rope_parameters" if file.content.get("rope_parameters") else "rope_scaling")
    kind = next((inner.content[name] for name in _KIND if name in inner.content), "default")
    known = ("default", "yarn") if may_scale else ("default",)
    require(kind in known, inner.field(_KIND[0]), kind, f"{' or '.join(known)} for this model_type")
    settings = set(_YARN) if kind == "yarn" else set()
    for name in inner.content.keys() - {*_KIND, *_FIXED, "rope_theta"} - settings:
        raise ConfigError(f"{inner.field(name)} = {inner.content[name]!r}: is not known for {kind} angles")
    for holder in (file, inner):
        for name, allowed in _FIXED.items():
            holder.require_fixed(name, allowed)
    scaling = {name: inner.value(key) for name, key in _YARN.items()} if kind == "yarn" else {}
    return {"rope_theta": _theta(file, inner), "rope_scaling": inner.built(lambda: RopeScaling(**scaling))}


def rope_content(rope_theta: float, scaling: RopeScaling) -> dict[str, Any]:
    """The keys of config.json, as transformers 4 and 5 read them."""
    if not scaling.is_on:
        return {"rope_theta": rope_theta, "rope_scaling": None}
    yarn = {"type": "yarn", "rope_type": "yarn", **dataclasses.asdict(scaling)}
    return {"rope_theta": rope_theta, "rope_scaling": yarn}


def _theta(file: HfFile, inner: HfFile) -> float:
    holder = inner if "rope_theta" in inner.content else file
    return holder.value(Key(("rope_theta",), float))
