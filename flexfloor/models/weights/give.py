"""Weights of a model on its ranks to files under Hugging Face's names.

Invariants:
- A tensor is written by one rank: an expert's by the lowest rank that holds the expert, all others by rank 0.
  Others send it what it lacks, rows at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core.models.gpt.gpt_model import GPTModel
from torch import Tensor

from flexfloor import heartbeat
from flexfloor.errors import ConfigError, WeightsError
from flexfloor.models.init import LOCAL_EXPERT, global_tensors
from flexfloor.models.weights import hf_folder
from flexfloor.models.weights.assembly import MAX_SHARD_BYTES, Assembly, Shard, assemble, shard
from flexfloor.models.weights.gathered_rows import GatheredRows
from flexfloor.models.weights.shard_file import chunks_of, write_shard
from flexfloor.models.weights.share import TensorRank
from flexfloor.models.weights.take import whole_shapes
from flexfloor.models.weights.weight_map import WeightMap
from flexfloor.train.shared_failure import on_every_rank, on_first_rank

_MAKE_SPACE = "Free space there, or write to another folder"


def export_weights(
    gpt: GPTModel,
    weight_map: WeightMap,
    folder: Path,
    *,
    vocab_size: int,
    dtype: torch.dtype | None = None,
    fused_experts: bool = False,
    max_shard_bytes: int = MAX_SHARD_BYTES,
    write_more: Callable[[Path], None] = lambda _: None,
) -> None:
    """Write the weights of `gpt`, under any tensor and expert parallelism, to `folder`; all ranks call it.

    Args:
        folder: empty or not there yet.
        vocab_size: rows of the embedding that belong to tokens.
        dtype: of the parameters in the files; the model's when None. Biases of routers stay float32.
        fused_experts: the experts of a layer in one tensor; all on one rank.
        write_more: what else belongs into the folder, config.json and tokenizer; rank 0 calls it.

    Raises:
        ConfigError: `folder` holds something, or the experts that are to be fused lie on several ranks.
        WeightsError: on every rank, when one cannot write.
    """
    own, position = global_tensors(gpt), TensorRank.of(gpt)
    shapes = whole_shapes(own, gpt.config.num_moe_experts, weight_map, position)
    dtypes = _dtypes(gpt, own, dtype)
    tensors = assemble(
        weight_map,
        shapes,
        {name: dtypes[_counterpart(name, own)] for name in shapes},
        vocab_size=vocab_size,
        fused_experts=fused_experts,
    )
    shares = {name: position.share(weight_map, name) for name in shapes}
    gathered = GatheredRows(own, shapes, shares, position)
    shards = shard(tensors, lambda tensor: _owner(tensor, gathered), max_shard_bytes)
    _first(lambda: _begin(folder), folder)
    partial = hf_folder.partial_of(folder)
    complaint = f"cannot write {folder}"
    on_every_rank(lambda: _write(partial, shards, gathered), complaint, WeightsError, _MAKE_SPACE)
    _first(lambda: write_more(partial), folder)
    _first(lambda: hf_folder.finish(folder, shards), folder)


def _write(partial: Path, shards: list[Shard], gathered: GatheredRows) -> None:
    """Write the files of this rank, and send others what they need for theirs."""
    failure: OSError | None = None
    for each in shards:
        chunks = chunks_of(each, gathered.rows_for(each.owner), lambda _: heartbeat.beat())
        if each.owner == dist.get_rank() and failure is None:
            try:
                write_shard(partial, each, chunks)
            except OSError as error:
                failure = error  # told when all others have sent what they would wait to send
        deque(chunks, maxlen=0)
    if failure is not None:
        raise failure


def _first(action: Callable[[], Any], folder: Path) -> None:
    on_first_rank(action, f"cannot write {folder}", WeightsError, _MAKE_SPACE)


def _begin(folder: Path) -> None:
    hf_folder.require_free("folder", folder)
    hf_folder.begin(folder)


def _dtypes(gpt: GPTModel, own: dict[str, Tensor], dtype: torch.dtype | None) -> dict[str, torch.dtype]:
    learned = {id(parameter) for parameter in gpt.parameters()}
    return {name: dtype if dtype and id(t) in learned else t.dtype for name, t in own.items()}


def _counterpart(name: str, own: dict[str, Tensor]) -> str:
    """Of another rank's expert the tensor of the same kind that this rank has."""
    match = LOCAL_EXPERT.fullmatch(name)
    if match is None or name in own:
        return name
    prefix, suffix = match[1], match[3]
    return next(of for of in own if of.startswith(prefix) and of.endswith(suffix))


def _owner(tensor: Assembly, gathered: GatheredRows) -> int:
    """Which rank writes a tensor."""
    ranks = gathered.owners(name for name, _ in tensor.sources)
    if len(ranks) > 1:
        raise ConfigError(
            f"{tensor.name}: experts can be fused in one tensor where one rank holds all of them; "
            "`flexfloor convert export --fused-experts` does so from a checkpoint of any layout"
        )
    return ranks.pop()
