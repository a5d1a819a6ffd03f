"""What the tests of weights run on their ranks."""

import dataclasses
from pathlib import Path

import torch
import torch.distributed as dist

from flexfloor import parallel
from flexfloor.models.build import build_model
from flexfloor.models.config import ModelConfig
from flexfloor.models.forward import packed_logits
from flexfloor.models.hf_config import read_hf_config
from flexfloor.models.registry import weight_map_of
from flexfloor.models.weights.give import export_weights

TOKENS = 40


def taken(folder, *, extra_vocab=0, **changes):
    """The model in `folder`, built and filled; parallel state must be there."""
    hf = read_hf_config(folder)
    config = ModelConfig(**hf.fields, path=str(folder))
    config = dataclasses.replace(config, **changes)
    gpt = build_model(
        config,
        vocab_size=hf.vocab_size + extra_vocab,
        max_sequence_length=hf.max_positions,
        groups=parallel.groups(),
    )
    return gpt, weight_map_of(config)


def logits_of(gpt, vocab):
    """Logits of the same tokens on every rank."""
    ids = torch.arange(TOKENS) % vocab
    with torch.no_grad():
        return packed_logits(gpt, ids, torch.arange(TOKENS), torch.tensor([0, TOKENS], dtype=torch.int32))


def in_and_out(ep_size, folders, dtype, out, max_shard_bytes):
    """Logits of each folder's model; what was taken is written to `out`/<name of the folder>."""
    parallel.initialize(ep_size=ep_size, seed=0, timeout_seconds=60)
    found = {}
    for name, folder in folders.items():
        gpt, weight_map = taken(folder, dtype=dtype)
        export_weights(
            gpt, weight_map, Path(out) / name, vocab_size=gpt.vocab_size, max_shard_bytes=max_shard_bytes
        )
        found[name] = logits_of(gpt, gpt.vocab_size).double().numpy()
    return found


def complaints(ep_size, folders):
    """What each folder's weights are refused with, on this rank."""
    parallel.initialize(ep_size=ep_size, seed=0, timeout_seconds=60)
    found = []
    for folder in folders:
        try:
            taken(folder)
        except ValueError as error:
            found.append(f"{type(error).__name__}: {error}")
        else:
            found.append("taken")
        dist.barrier()
    return found
