"""Unfinished sequences on their way from one rank to another, with what the cache keeps of them.

Nothing is computed again: a sequence arrives with its tokens, their log-probabilities, what is left of its
allowed length and its keys and values (or latents), and goes on at its next token.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from flexfloor.rollout.kv_cache import KVCache
from flexfloor.rollout.live import LiveSequence


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Handed:
    """A sequence without a place, and what a cache kept of it."""

    sequence: LiveSequence
    kept: Tensor
    """[L, P, G, tokens, D]; no tokens for a sequence that waited."""


def take_out(sequences: Sequence[LiveSequence], cache: KVCache) -> list[Handed]:
    """The sequences without their places, with copies of what the cache keeps of them."""
    handed = []
    for sequence in sequences:
        kept = cache.kept(sequence.place, sequence.length - 1)
        sequence.place = None
        handed.append(Handed(sequence=sequence, kept=kept))
    return handed


def pack(handed: Sequence[Handed]) -> tuple[Tensor, Tensor]:
    """(bytes that describe the sequences, what caches kept of them end to end), both flat."""
    told = [(each.sequence, tuple(each.kept.shape)) for each in handed]
    kept = torch.cat([each.kept.reshape(-1) for each in handed])
    described = torch.frombuffer(bytearray(pickle.dumps(told)), dtype=torch.uint8)
    return described.to(kept.device), kept


def unpack(described: Tensor, kept: Tensor) -> list[Handed]:
    """What `pack` packed."""
    told = pickle.loads(described.cpu().numpy().tobytes())
    parts = kept.split([torch.Size(shape).numel() for _, shape in told])
    return [
        Handed(sequence=sequence, kept=part.view(shape))
        for (sequence, shape), part in zip(told, parts, strict=True)
    ]
