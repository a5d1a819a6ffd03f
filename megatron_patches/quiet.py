"""Silence for exactly the messages that a healthy host without Transformer Engine prints.

Invariants:
- Each filter names one message of one upstream module; every other warning and log line still shows.
"""

from __future__ import annotations

import logging
import re
import warnings

_NO_KERNELS = "Transformer Engine and Apex are not installed. Falling back to "
_LOCAL_SCALE = _NO_KERNELS + "local implementations of multi_tensor_applier and multi_tensor_scale"
_SHARDED_TENSOR = "Please use DTensor instead and we are deprecating ShardedTensor."

EXPECTED_WARNINGS: tuple[tuple[type[Warning], str, str], ...] = (
    # On import: the fall-backs that this host wants.
    (UserWarning, "megatron.core.distributed.fsdp.src.megatron_fsdp.mixed_precision", _LOCAL_SCALE),
    (UserWarning, "megatron.core.optimizer", _NO_KERNELS + "Torch optimizers."),
    (UserWarning, "megatron.core.optimizer.optimizer", _LOCAL_SCALE),
    (
        UserWarning,
        "megatron.core.optimizer.clip_grads",
        _NO_KERNELS
        + "local implementations of multi_tensor_applier, multi_tensor_l2norm, and multi_tensor_scale",
    ),
    (UserWarning, "megatron.core.models.backends", "Apex is not installed. Falling back to Torch Norm"),
    (
        UserWarning,
        "megatron.core.models.gpt.gpt_layer_specs",
        "Apex is not installed. Falling back to Torch Norm",
    ),
    # On use: upstream's own defaults and calls, which nothing on our side chooses.
    (
        UserWarning,
        "megatron.core.transformer.transformer_config",
        "full scope is deprecated. Use empty cuda_graph_scope to capture the whole layer.",
    ),
    (
        FutureWarning,
        "torch.distributed.c10d_logger",
        "`torch.distributed.all_gather_into_tensor` is deprecated. "
        "Please use `torch.distributed.all_gather_single` instead.",
    ),
    (
        FutureWarning,
        "megatron.core.dist_checkpointing.strategies.torch",
        "`load_state_dict` is deprecated and will be removed in future versions. Please use `load` instead.",
    ),
    (FutureWarning, "torch.distributed.checkpoint.planner_helpers", _SHARDED_TENSOR),
    (FutureWarning, "torch.distributed.checkpoint.default_planner", _SHARDED_TENSOR),
)
"""(category, module that warns, whole message)."""

EXPECTED_LOGS: tuple[tuple[str, str], ...] = (
    # With one generator for both, a fork of the "CUDA" state is a change of the CPU's, and is undone.
    ("megatron.core.tensor_parallel.random", "CPU RNG state changed within GPU RNG context"),
    # Upstream knows its own MLP classes only; ours gets its process groups through the spec's parameters.
    (
        "megatron.core.transformer.transformer_layer",
        "Unknown MLP type: <class 'megatron.core.transformer.spec_utils.ModuleSpec'>. Using default kwargs.",
    ),
)
"""(logger, whole message)."""


class _DropMessage(logging.Filter):
    def __init__(self, message: str) -> None:
        super().__init__()
        self.message = message

    def filter(self, record: logging.LogRecord) -> bool:
        return record.getMessage() != self.message

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _DropMessage) and other.message == self.message

    def __hash__(self) -> int:
        return hash(self.message)


def warning_filters() -> list[str]:
    """The filters of `EXPECTED_WARNINGS` in the notation of `python -W` and of pytest's `filterwarnings`."""
    return [
        f"ignore:{re.escape(message)}:{category.__name__}:{re.escape(module)}"
        for category, module, message in EXPECTED_WARNINGS
    ]


def silence_expected() -> None:
    """Install the filters, once each; to be called before the first import of `megatron.core`."""
    for category, module, message in EXPECTED_WARNINGS:
        warnings.filterwarnings("ignore", f"{re.escape(message)}$", category, f"{re.escape(module)}$")
    for name, message in EXPECTED_LOGS:
        logging.getLogger(name).addFilter(_DropMessage(message))
