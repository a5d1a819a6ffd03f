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
_ALONE = "torch.distributed is disabled, unavailable or uninitialized, assuming the intent is"
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
    (
        UserWarning,
        "megatron.core.hyper_comm_grid",
        "absl.logging is not installed. Using logging.getLogger(__name__) instead. "
        "Please install absl.logging with `pip install absl-py` to use absl.logging.",
    ),  # 0.19
    # On use: upstream's own defaults and calls, which nothing on our side chooses.
    (
        UserWarning,
        "megatron.core.transformer.transformer_config",
        "full scope is deprecated. Use empty cuda_graph_scope to capture the whole layer.",
    ),
    (
        UserWarning,
        "megatron.core.transformer.transformer_config",
        "full scope is deprecated. Use empty cuda_graph_modules to capture the whole layer.",
    ),  # 0.19
    (
        FutureWarning,
        "torch.distributed.c10d_logger",
        "`torch.distributed.all_gather_into_tensor` is deprecated. "
        "Please use `torch.distributed.all_gather_single` instead.",
    ),
    (
        FutureWarning,
        "torch.distributed.c10d_logger",
        "`torch.distributed.reduce_scatter_tensor` is deprecated. "
        "Please use `torch.distributed.reduce_scatter_single` instead.",
    ),
    # Of experts, which tensor parallelism does not cut, and of streams that a CPU has none of.
    (
        UserWarning,
        "megatron.core.tensor_parallel.layers",
        "`sequence_parallel` is set to `True`, but tensor model parallel size is 1. "
        "Disabling sequence parallel.",
    ),
    (
        UserWarning,
        "megatron.core.tensor_parallel.layers",
        "When using sequence parallelism it is recommended to set the environment variable "
        "CUDA_DEVICE_MAX_CONNECTIONS to 1 for maximum speedup",
    ),
    (
        FutureWarning,
        "megatron.core.dist_checkpointing.strategies.torch",
        "`load_state_dict` is deprecated and will be removed in future versions. Please use `load` instead.",
    ),
    # 0.19 imports models that it calls experimental, and has each rank load its own shards by itself.
    (
        UserWarning,
        "megatron.core.models.mimo.config.base_configs",
        "MimoModelConfig is experimental and still under active development. "
        "The API may change without notice in future releases.",
    ),
    (UserWarning, "torch.distributed.checkpoint.utils", _ALONE + " to load in a single process."),
    (
        UserWarning,
        "torch.distributed.checkpoint.logger",
        "The argument order of load has been changed. Please check the document to avoid future breakages.",
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
    # 0.19 announces successors: of the model class, and of a writer that it still takes for every plain save.
    (
        "megatron.core.models.gpt.gpt_model",
        "GPTModel IS DEPRECATED. GPTModel is only accepting critical bug fixes, no new features. "
        "Please reference the migration guide `docs/user-guide/hybrid-model-migration.md` "
        "for details on how to use `HybridModel`",
    ),
    (
        "megatron.core.dist_checkpointing.strategies.torch",
        "MCore's async save is deprecated and will be removed in the future releases. "
        "Please, use NVRx async solution by setting `async_strategy` to `nvrx`.",
    ),
    # 0.19 when it goes on from a checkpoint of 0.16.
    (
        "megatron.core.dist_checkpointing.strategies.common",
        "load_common is deprecated and will be removed in a future release. "
        "`torch_dist` now handles all non-tensor data as part of default PyTorch DCP behavior.",
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
