"""What to lower when a stage gets no more memory.

Which settings decide over a stage's memory is the same for a device's and for the host's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from flexfloor import device
from flexfloor.checks import shown
from flexfloor.config import Config
from flexfloor.errors import OutOfMemoryError

GIB = 2**30
_ROLLOUT = ("rollout.kv_budget_bytes", "rollout.max_live_sequences", "data.max_response_length")
_PASSES = ("actor.micro_batch_tokens", "data.max_response_length")
_SETTINGS = {
    "rollout": _ROLLOUT,
    "validation": _ROLLOUT,
    "sft": ("actor.micro_batch_tokens",),
    "early_update": ("overlap.micro_batch_tokens", "data.max_response_length"),
    "old_log_prob": _PASSES,
    "ref": _PASSES,
    "update": _PASSES,
}
_WITH_GRADIENT = ("sft", "early_update", "update")
_OF_THE_MODEL = ("model.num_layers", "model.hidden_size", "model.num_experts")
_FEWER_EXPERTS = "raise parallel.ep, so that each rank holds fewer experts"


@contextmanager
def explaining_shortage(stage: str, config: Config) -> Iterator[None]:
    """Turn an allocation that fails in the block into an `OutOfMemoryError` that says what to lower."""
    try:
        yield
    except (MemoryError, RuntimeError, OSError) as error:
        if not device.is_out_of_memory(error):
            raise
        text = str(error).partition("\n")[0] or type(error).__name__
        raise OutOfMemoryError(
            f"out of memory in stage {stage}: {advice(stage, config)}\n"
            f"(this rank holds {psutil.Process().memory_info().rss / GIB:.1f} GiB of host memory, "
            f"{device.free_memory_bytes() / GIB:.1f} GiB are free; {text})"
        ) from error


def advice(stage: str, config: Config) -> str:
    """The settings to lower for `stage`, with their values; for a stage without any, what else helps."""
    if stage in _SETTINGS:
        recomputes = stage not in _WITH_GRADIENT or config.actor.recompute == "full"
        or_recompute = (
            "" if recomputes else f", or set actor.recompute = full (it is {config.actor.recompute})"
        )
        return f"lower {_with_values(_SETTINGS[stage], config)}{or_recompute}"
    if stage == "set-up":
        lower = _with_values(_OF_THE_MODEL, config)
        return f"{_FEWER_EXPERTS} (parallel.ep = {config.parallel.ep}), or lower {lower}"
    return f"no setting of its own decides; {_FEWER_EXPERTS}, or start fewer ranks on a machine"


def _with_values(names: tuple[str, ...], config: Config) -> str:
    return " or ".join(f"{name} = {shown(_value(name, config))}" for name in names)


def _value(name: str, config: Config) -> object:
    section, field = name.split(".")
    return getattr(getattr(config, section), field)
