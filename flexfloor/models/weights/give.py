"""Weights of a model on its ranks to files under Hugging Face's names, each rank what it holds.

Invariants:
- A tensor is written by one rank: an expert's by the lowest rank that holds the expert, all others by rank 0.
"""

from __future__ import annotations

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
from flexfloor.models.weights.assembly import MAX_SHARD_BYTES, Assembly, assemble, shard
from flexfloor.models.weights.shard_file import write_shard
from flexfloor.models.weights.take import as_rows, whole_shapes
from flexfloor.models.weights.weight_map import WeightMap
from flexfloor.train.shared_failure import on_every_rank, on_first_rank


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
    """Write the weights of `gpt`, of any EP size, to `folder`; all ranks call it.

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
    own = global_tensors(gpt)
    shapes = whole_shapes(own, gpt.config.num_moe_experts)
    dtypes = _dtypes(gpt, own, dtype)
    tensors = assemble(
        weight_map,
        shapes,
        {name: dtypes[_counterpart(name, own)] for name in shapes},
        vocab_size=vocab_size,
        fused_experts=fused_experts,
    )
    shards = shard(tensors, _owners(own), max_shard_bytes)
    _first(lambda: _begin(folder), folder)
    partial, rows_of = hf_folder.partial_of(folder), _rows_of(own)

    def write_mine() -> None:
        for each in shards:
            if each.owner == dist.get_rank():
                write_shard(partial, each, rows_of, lambda _: heartbeat.beat())

    on_every_rank(write_mine, f"cannot write {folder}", WeightsError)
    _first(lambda: write_more(partial), folder)
    _first(lambda: hf_folder.finish(folder, shards), folder)


def _first(action: Callable[[], Any], folder: Path) -> None:
    on_first_rank(action, f"cannot write {folder}", WeightsError)


def _begin(folder: Path) -> None:
    hf_folder.require_free("folder", folder)
    hf_folder.begin(folder)


def _rows_of(own: dict[str, Tensor]) -> Callable[[str, int, int], Tensor]:
    return lambda name, row, rows: as_rows(own[name])[row : row + rows]


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


def _owners(own: dict[str, Tensor]) -> Callable[[Assembly], int]:
    """Which rank writes a tensor."""
    hosted: list[list[int]] = [[]] * dist.get_world_size()
    mine = {int(match[2]) for name in own if (match := LOCAL_EXPERT.fullmatch(name))}
    dist.all_gather_object(hosted, sorted(mine))
    lowest = {expert: rank for rank, experts in reversed(list(enumerate(hosted))) for expert in experts}

    def owner(tensor: Assembly) -> int:
        matches = [LOCAL_EXPERT.fullmatch(name) for name, _ in tensor.sources]
        ranks = {lowest[int(match[2])] if match else 0 for match in matches}
        if len(ranks) > 1:
            raise ConfigError(
                f"{tensor.name}: experts can be fused in one tensor where one rank holds all of them; "
                "`flexfloor convert export --fused-experts` does so from a checkpoint of any layout"
            )
        return ranks.pop()

    return owner
