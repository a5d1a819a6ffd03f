"""One forward pass of a rollout: which rows it has and how they attend through the KV cache.

The rows of a pass are one row for each decoding sequence, by the size of its slot and within a size in
the order of slots, followed by the prompts that join, packed end to end. Both kinds share the pass, so
that ranks need not agree on who prefills and who decodes.

Shapes: T rows of the pass, of which the first B decode; N query heads, G key/value heads, D channels;
P planes of the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import torch
from megatron.core.inference.contexts import BaseInferenceContext
from torch import Tensor

from flexfloor.models.packed_attention import attend_packed
from flexfloor.rollout.kv_cache import KVCache
from flexfloor.rollout.live import LiveSequence
from flexfloor.rollout.single_query import attend_heads


class PassRows:
    """Rows of one pass: token, position, and where its keys and values go."""

    def __init__(
        self, *, decoding: Sequence[LiveSequence], joining: Sequence[LiveSequence], device: torch.device
    ):
        """Args:
        decoding: with a row for their newest token, in the order of size and slot, from slot 0 on.
        joining: with rows for all of their tokens, in the order of size.
        """
        self.decoding, self.joining, self.device = decoding, joining, device
        ids = [sequence.token_ids[-1] for sequence in decoding]
        self.newest_sum = sum(ids)
        """Of the decoding rows' tokens, to tell whether two ranks have the same."""
        for sequence in joining:
            ids += [*sequence.request.prompt_ids, *sequence.token_ids]
        self.input_ids_T = torch.tensor(ids, dtype=torch.long, device=device)
        newest = torch.tensor([each.length - 1 for each in decoding], dtype=torch.long, device=device)
        self.prompt_lengths = [sequence.length for sequence in joining]
        starts = [torch.arange(length, device=device) for length in self.prompt_lengths]
        self.position_ids_T = torch.cat([newest, *starts])
        ends = torch.tensor(self.prompt_lengths, dtype=torch.long, device=device).cumsum(0) - 1
        self.last_rows = torch.cat([torch.arange(len(decoding), device=device), ends + len(decoding)])
        """Rows whose logits are wanted: each decoding row and the last one of each that joins."""

    def __len__(self) -> int:
        return self.input_ids_T.numel()

    @property
    def num_joining(self) -> int:
        """Rows of prompts that join."""
        return sum(self.prompt_lengths)

    @property
    def num_attended(self) -> int:
        """Tokens in the cache that decoding rows attend to."""
        return sum(sequence.length for sequence in self.decoding)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """Rows that lie in one slab, and where their keys and values go."""

    size: int
    rows: slice
    places: Tensor


@dataclass(frozen=True, kw_only=True)
class DecodingRows:
    """Decoding rows whose sequences lie in one slab."""

    size: int
    rows: slice
    positions_B: Tensor
    num_positions: int
    """C: one more than the greatest."""
    dtype: torch.dtype

    @cached_property
    def bias_BC(self) -> Tensor:
        """[B, C] with -inf at positions that a row does not see."""
        hidden_BC = (
            torch.arange(self.num_positions, device=self.positions_B.device) > self.positions_B[:, None]
        )
        bias_BC = torch.zeros(hidden_BC.shape, dtype=self.dtype, device=self.positions_B.device)
        return bias_BC.masked_fill_(hidden_BC, float("-inf"))


Decode = Callable[[DecodingRows, list[Tensor]], Tensor]
"""(rows, planes [B, G, C, D] of what their sequences hold) to [B, ...]."""
Prefill = Callable[[slice, list[int]], Tensor]
"""(rows of the prompts, rows of each prompt) to [rows, ...]."""


class RolloutContext(BaseInferenceContext):
    """Megatron's inference context for a pass over per-sequence lengths.

    To Megatron it looks like static batching, whose code paths leave rows and cache to the
    attention module.
    """

    materialize_only_last_token_logits = False
    """Read by 0.16, to which the logits of every row go."""

    def __init__(self, cache: KVCache):
        # Not the base's constructor: 0.16 takes the flag above, 0.19 a whole InferenceConfig that only
        # Megatron's own engines read.
        self.cache = cache
        self.max_sequence_length = cache.longest
        self.sequence_len_offset = 0
        self.batch_size_offset = 0
        self.begin(PassRows(decoding=[], joining=[], device=cache.device))

    def is_static_batching(self) -> bool:
        """True: rows, positions and cache are this context's own business."""
        return True

    def is_decode_only(self) -> bool:
        """False: nothing of Megatron's flash-decode path is used."""
        return False

    def begin(self, rows: PassRows) -> None:
        """Set the rows of the coming pass; their slots are in the cache."""
        self.rows = rows
        self._stored: list[_Stored] = []
        self._decoding: list[DecodingRows] = []
        first = 0
        for size, found in groupby(rows.decoding, key=_size_index):
            sequences = list(found)
            part = slice(first, first + len(sequences))
            self._stored.append(self._store_at(size, part, _slots(sequences)))
            self._decoding.append(self._decode_in(size, part, max(each.length for each in sequences)))
            first = part.stop
        for size, found in groupby(rows.joining, key=_size_index):
            slots = _slots(each for each in found for _ in range(each.length))
            part = slice(first, first + len(slots))
            self._stored.append(self._store_at(size, part, slots))
            first = part.stop

    def _store_at(self, size: int, part: slice, slots: list[int]) -> _Stored:
        slots_T = torch.tensor(slots, dtype=torch.long, device=self.rows.device)
        places = self.cache.places(size, slots_T, self.rows.position_ids_T[part])
        return _Stored(size=size, rows=part, places=places)

    def _decode_in(self, size: int, part: slice, num_positions: int) -> DecodingRows:
        positions_B = self.rows.position_ids_T[part]
        return DecodingRows(
            size=size,
            rows=part,
            positions_B=positions_B,
            num_positions=num_positions,
            dtype=self.cache.dtype,
        )

    def attend(self, layer: int, query_TND: Tensor, key_TGD: Tensor, value_TGD: Tensor) -> Tensor:
        """Store the rows' keys and values and attend; [T, N, D]. `layer` counts from 0."""

        def decode(part: DecodingRows, planes: list[Tensor]) -> Tensor:
            keys, values = planes
            scale = query_TND.size(2) ** -0.5
            return attend_heads(query_TND[part.rows], keys, values, part.bias_BC, scale)

        def prefill(rows: slice, lengths: list[int]) -> Tensor:
            return attend_packed(query_TND[rows], key_TGD[rows], value_TGD[rows], lengths)

        if not query_TND.size(0):
            return query_TND
        kept = torch.stack((key_TGD, value_TGD))
        return self.attend_with(layer, kept, decode=decode, prefill=prefill)

    def attend_with(self, layer: int, kept_PTGD: Tensor, *, decode: Decode, prefill: Prefill) -> Tensor:
        """Store what the cache keeps of the rows, and attend in the caller's way.

        Args:
            layer: counts from 0.
            kept_PTGD: for each plane of the cache; T is at least 1.
            decode: attends decoding rows over what their sequences hold; called for each size in use.
            prefill: attends the rows of joining prompts among themselves.

        Returns: what both return, in the order of the rows.
        """
        for part in self._stored:
            self.cache.store(layer, part.size, part.places, kept_PTGD[:, part.rows])
        attended = []
        for each in self._decoding:
            planes = self.cache.seen(layer, each.size, each.positions_B.numel(), each.num_positions)
            attended.append(decode(each, planes))
        if self.rows.joining:
            attended.append(prefill(slice(len(self.rows.decoding), len(self.rows)), self.rows.prompt_lengths))
        return attended[0] if len(attended) == 1 else torch.cat(attended)


def _size_index(sequence: LiveSequence) -> int:
    assert sequence.place is not None, sequence
    return sequence.place.size_index


def _slots(sequences: Iterable[LiveSequence]) -> list[int]:
    return [sequence.place.slot for sequence in sequences if sequence.place]
