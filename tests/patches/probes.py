"""For each patch the smallest use of upstream that goes wrong without it; each runs on 2 ranks."""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import tiny_moe
import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from flexfloor import parallel
from megatron_patches.parallel_state import pop_expert_group, push_expert_group

_NO_CUDA = "Torch not compiled with CUDA enabled|No CUDA GPUs|NVIDIA driver"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A use of upstream, and what it says (a pattern) where the patch is missing."""

    use: Callable[[], None]
    without: str


@contextlib.contextmanager
def _parallel_state() -> Iterator[None]:
    parallel.initialize(ep_size=2, seed=1, timeout_seconds=60)
    try:
        yield
    finally:
        parallel.destroy()


def train() -> None:
    """Two training steps, clipped, with the all-to-all dispatcher over 2 ranks."""
    try:
        training = tiny_moe.build(ep_size=2)
        before = tiny_moe.weights(training)
        norms = [tiny_moe.step(training, number)[1] for number in range(2)]
        assert min(norms) > 0.1, "the gradients are not clipped, so that clipping is not tried"
        moved = [not torch.equal(value, before[name]) for name, value in tiny_moe.weights(training).items()]
        assert all(moved), "a parameter stood still"
    finally:
        parallel.destroy()


def norm_in_float64() -> None:
    """The norm of a float64 gradient keeps digits that float32 has not."""
    from megatron.core.optimizer.clip_grads import get_grad_norm_fp32

    gradients = [torch.tensor([3.0], dtype=torch.float64), torch.tensor([4.0 + 1e-9], dtype=torch.float64)]
    with _parallel_state():
        norm = get_grad_norm_fp32(gradients, grad_stats_parallel_group=parallel.groups().mp)
    assert abs(norm - (5.0 + 0.8e-9)) < 1e-14, f"norm {norm!r} is rounded"


def fork_a_random_state() -> None:
    """A fork draws from its own state, goes on where it stopped, and leaves the outer state alone."""
    from megatron.core.tensor_parallel.random import CudaRNGStatesTracker

    def draw(tracker: CudaRNGStatesTracker) -> torch.Tensor:
        with tracker.fork("state"):
            return torch.rand(3)

    outer = torch.manual_seed(7).get_state()
    tracker = CudaRNGStatesTracker()
    tracker.add("state", 5)
    drawn = torch.cat([draw(tracker), draw(tracker)])
    expected = torch.rand(6, generator=torch.Generator().manual_seed(5))
    assert torch.equal(torch.get_rng_state(), outer), "the fork moved the outer state"
    assert torch.equal(drawn, expected), "the fork did not take hold"


def track_auxiliary_losses() -> None:
    """The tracker sums up auxiliary losses that no layer has reported yet."""
    from megatron.core.transformer.moe import moe_utils

    with _parallel_state():
        try:
            moe_utils.track_moe_metrics(
                loss_scale=1.0,
                iteration=1,
                writer=None,
                total_loss_dict=(totals := {}),
                force_initialize=True,
                track_names=["load_balancing_loss"],
                num_layers=2,
                pg_collection=parallel.groups(),
            )
        finally:
            moe_utils.get_moe_layer_wise_logging_tracker().clear()
    assert totals["load_balancing_loss"] == 0.0


def switch_expert_group() -> None:
    """The three answers follow the active group, by whatever name they were imported, and come home."""
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel.random import get_expert_model_parallel_rank

    def answers() -> tuple[list[int], int, int]:
        group = parallel_state.get_expert_model_parallel_group()
        size = parallel_state.get_expert_model_parallel_world_size()
        return dist.get_process_group_ranks(group), size, get_expert_model_parallel_rank()

    rank = dist.get_rank()
    with _parallel_state():
        alone = [dist.new_group([member]) for member in range(2)][rank]
        push_expert_group(alone)
        active = answers()
        pop_expert_group(alone)
        home = answers()
    assert home == ([0, 1], 2, rank)
    assert active == ([rank], 1, 0), f"the expert group stays {active}"


def build_latent_attention() -> None:
    """A layer of latent attention of upstream's own parts is built."""
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer.identity_op import IdentityOp
    from megatron.core.transformer.spec_utils import build_module
    from megatron.core.transformer.transformer_config import MLATransformerConfig

    config = MLATransformerConfig(num_layers=1, hidden_size=8, num_attention_heads=2, rope_type="rope")
    spec = get_gpt_layer_local_spec(multi_latent_attention=True).submodules.self_attention
    spec.submodules.core_attention = IdentityOp
    with _parallel_state():
        build_module(spec, config=config, layer_number=1, pg_collection=parallel.groups())


def stage_tensors() -> None:
    """Checkpointing brings tensors to the host before it writes them."""
    from megatron.core.dist_checkpointing.strategies.filesystem_async import FileSystemWriterAsync

    tensor = torch.ones(2)
    [(_, _, (_, [(_, staged)]))] = FileSystemWriterAsync.preload_tensors(
        [("file", "key", ([], [("item", tensor)]))]
    )
    assert torch.equal(staged, tensor)


def write_in_this_process() -> None:
    """A save asked for in this process is written by it."""
    from megatron.core.dist_checkpointing.strategies.filesystem_async import FileSystemWriterAsync

    class TracedPath(type(Path())):
        opened_in = -1

        def __fspath__(self) -> str:
            TracedPath.opened_in = os.getpid()
            return super().__fspath__()

    with tempfile.TemporaryDirectory() as folder:
        results: queue.Queue = queue.Queue()
        bucket = (TracedPath(folder) / "bucket", "key", ([], []))
        FileSystemWriterAsync.write_preloaded_data_multiproc([], False, 0, [bucket], results)
        assert os.listdir(folder) == ["bucket"]
    assert results.get_nowait() == {0: []}
    assert TracedPath.opened_in == os.getpid(), "the bucket was written elsewhere"


def fail_to_write() -> None:
    """A file that cannot be written is an error that says why."""
    from megatron.core.dist_checkpointing.strategies.filesystem_async import FileSystemWriterAsync

    bucket = ("/dev/null/file", "key", ([], []))
    try:
        FileSystemWriterAsync.write_preloaded_data_multithread([], False, 0, [bucket], queue.Queue())
    except NotADirectoryError:
        return
    raise AssertionError("the reason was lost")


def pass_results_in_this_process(getter: str) -> None:
    """The results of a save need no process of their own."""
    from megatron.core.dist_checkpointing.strategies import filesystem_async

    before = set(psutil.Process().children())
    try:
        get = getattr(filesystem_async, getter)
        results = get()
        started = set(psutil.Process().children()) - before
        for process in started:
            process.kill()
        assert not started, f"started {len(started)} processes"
        results.put("written")
        assert get().get_nowait() == "written"
    finally:
        filesystem_async._results_queue = None


def read_into_place() -> None:
    """A stored tensor is read into the memory that it is to fill."""
    from megatron.core.dist_checkpointing.strategies.torch import _get_filesystem_reader
    from torch.distributed import checkpoint

    place = torch.zeros(4)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.save({"weight": torch.arange(4.0)}, checkpoint_id=folder, no_dist=True)
        with Copies() as copies:
            checkpoint.load({"weight": place}, storage_reader=_get_filesystem_reader(folder), no_dist=True)
    assert place.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert copies.number == 0, "the tensor was read elsewhere and copied"


class Copies(TorchDispatchMode):
    """Counts the tensors that are copied into others."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.number += function is torch.ops.aten.copy_.default
        return function(*args, **(kwargs or {}))


_STORE = "megatron.core.dist_checkpointing.strategies.filesystem_async"
_RANDOM = "megatron.core.tensor_parallel.random"
_CLIP = "megatron.core.optimizer.clip_grads"
_MOE_UTILS = "megatron.core.transformer.moe.moe_utils"

PROBES = {
    "megatron.core.parallel_state:get_expert_model_parallel_group": Probe(
        use=switch_expert_group, without="the expert group stays"
    ),
    f"{_STORE}:FileSystemWriterAsync.write_preloaded_data_multiproc": Probe(
        use=write_in_this_process, without="the bucket was written elsewhere"
    ),
    f"{_STORE}:FileSystemWriterAsync.write_preloaded_data_multithread": Probe(
        use=fail_to_write, without="the reason was lost"
    ),
    **{
        f"{_STORE}:{getter}": Probe(
            use=functools.partial(pass_results_in_this_process, getter), without="started [1-9]"
        )
        for getter in ("_get_write_results_queue", "get_write_results_queue")
    },
    "megatron.core.dist_checkpointing.strategies.torch:_get_filesystem_reader": Probe(
        use=read_into_place, without="read elsewhere and copied"
    ),
    "torch.cuda:current_device": Probe(use=train, without=_NO_CUDA),
    "torch.cuda:Stream": Probe(use=train, without="torch.cuda.Stream requires CUDA|" + _NO_CUDA),
    "torch.cuda:current_stream": Probe(use=train, without=_NO_CUDA),
    "torch.cuda:synchronize": Probe(use=stage_tensors, without=_NO_CUDA),
    f"{_RANDOM}:torch": Probe(use=train, without=_NO_CUDA),
    f"{_RANDOM}:_set_cuda_rng_state": Probe(
        use=fork_a_random_state, without="did not take hold|moved the outer"
    ),
    "megatron.core.tensor_parallel.mappings:_AllToAll.forward": Probe(
        use=train, without="all_to_all_single.*incompatible"
    ),
    f"{_MOE_UTILS}:te_general_gemm": Probe(use=train, without="'te_general_gemm' is not defined"),
    f"{_MOE_UTILS}:torch": Probe(use=track_auxiliary_losses, without=_NO_CUDA),
    "megatron.core.transformer.multi_latent_attention:HAVE_TE": Probe(
        use=build_latent_attention, without="isinstance"
    ),
    "megatron.core.optimizer.optimizer:torch": Probe(use=train, without=_NO_CUDA),
    f"{_CLIP}:torch": Probe(use=train, without=_NO_CUDA),
    f"{_CLIP}:clip_grad_by_total_norm_fp32": Probe(use=train, without="torch.cuda.FloatTensor"),
    "megatron.core.utils:local_multi_tensor_l2_norm": Probe(use=norm_in_float64, without=_NO_CUDA),
}
