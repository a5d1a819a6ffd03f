"""Random numbers that are a function of what they are for, not of who draws them or when.

A counter-based generator: (seed, prompt uid, response index, position, token) is hashed to 52 random
bits by SplitMix64's finaliser (Steele, Lea and Flood, OOPSLA 2014), in wrapping 64-bit integers that
CPU and GPU compute alike.

Invariants:
- The same key gives the same number on any rank, in any batch, in any order.
- Numbers lie strictly between 0 and 1.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

_GOLDEN = -0x61C8864680B583EB  # 0x9E3779B97F4A7C15 as a signed 64-bit integer
_MULTIPLIERS = (-0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15)  # 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def sequence_key(seed: int | str, uid: str, response_index: int) -> int:
    """Signed 64-bit key of one response."""
    digest = hashlib.blake2b(f"{seed}/{response_index}/{uid}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def uniform(keys_B: Tensor, positions_B: Tensor, vocab_size: int) -> Tensor:
    """[B, V] float64 uniforms for each response's token at each position.

    Args:
        keys_B: [B] int64 from `sequence_key`.
        positions_B: [B] int64 index of the token within its response.
        vocab_size: V.
    """
    base_B = _mix(_mix(keys_B + _GOLDEN) + positions_B * _GOLDEN)
    token_V = torch.arange(1, vocab_size + 1, device=keys_B.device) * _GOLDEN
    bits_BV = _shift(_mix(base_B[:, None] + token_V), 12)
    return bits_BV.double().add_(0.5).mul_(2.0**-52)


def _shift(z: Tensor, by: int) -> Tensor:
    # An arithmetic shift of signed integers; the mask makes it the logical one that the hash wants.
    return (z >> by).bitwise_and_((1 << (64 - by)) - 1)


def _mix(z: Tensor) -> Tensor:
    for by, multiplier in zip((30, 27), _MULTIPLIERS, strict=True):
        z = _shift(z, by).bitwise_xor_(z).mul_(multiplier)
    return _shift(z, 31).bitwise_xor_(z)
