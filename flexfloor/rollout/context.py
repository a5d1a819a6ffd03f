"""One forward pass of a rollout: which rows it has and how they attend through the KV cache.

The rows of a pass are one row for each decoding sequence, by the size of its slot and within a size in
the order of slots, followed by the prompts that join, packed end to end. Both kinds share the pass, so
that ranks need not agree on who prefills and who decodes.

Shapes: T rows of the pass, of which the first B decode; N query heads, G key/value heads, D channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from megatron.core.inference.contexts import BaseInferenceContext
from torch import Tensor

from flexfloor.models.packed_attention import attend_packed
from flexfloor.rollout.kv_cache import KVCache
from flexfloor.rollout.live import LiveSequence

Decode = Callable[[slice, Tensor, list[Tensor]], Tensor]
"""(decoding rows, bias [B, C] with -inf at positions not seen, planes [B, G, C, D]) to [B, ...]."""
Prefill = Callable[[slice, list[int]], Tensor]
"""(rows of the prompts, rows of each prompt) to [rows, ...]."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decoding:
    """Decoding rows whose sequences lie in one slab."""

    size: int
    rows: slice
    bias_BC: Tensor


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
        self._decoding: list[_Decoding] = []
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

    def _decode_in(self, size: int, part: slice, num_positions: int) -> _Decoding:
        positions_B = self.rows.position_ids_T[part]
        hidden_BC = torch.arange(num_positions, device=self.rows.device)[None] > positions_B[:, None]
        bias_BC = torch.zeros(hidden_BC.shape, dtype=self.cache.dtype, device=self.rows.device)
        return _Decoding(size=size, rows=part, bias_BC=bias_BC.masked_fill_(hidden_BC, float("-inf")))

    def attend(self, layer: int, query_TND: Tensor, key_TGD: Tensor, value_TGD: Tensor) -> Tensor:
        """Store the rows' keys and values and attend; [T, N, D]. `layer` counts from 0."""

        def decode(rows: slice, bias_BC: Tensor, planes: list[Tensor]) -> Tensor:
            keys, values = planes
            return attend_heads(query_TND[rows], keys, values, bias_BC)

        def prefill(rows: slice, lengths: list[int]) -> Tensor:
            return attend_packed(query_TND[rows], key_TGD[rows], value_TGD[rows], lengths)

        if not query_TND.size(0):
            return query_TND
        return self.attend_with(layer, (key_TGD, value_TGD), decode=decode, prefill=prefill)

    def attend_with(
        self, layer: int, kept_TGD: Sequence[Tensor], *, decode: Decode, prefill: Prefill
    ) -> Tensor:
        """Store what the cache keeps of the rows, and attend in the caller's way.

        Args:
            layer: counts from 0.
            kept_TGD: of each plane, [T, G, D]; T is at least 1.
            decode: attends decoding rows over what their sequences hold; called for each size in use.
            prefill: attends the rows of joining prompts among themselves.

        Returns: what both return, in the order of the rows.
        """
        for part in self._stored:
            kept = [plane_TGD[part.rows] for plane_TGD in kept_TGD]
            self.cache.store(layer, part.size, part.places, *kept)
        attended = []
        for each in self._decoding:
            num_slots, num_positions = each.bias_BC.shape
            planes = self.cache.seen(layer, each.size, num_slots, num_positions)
            attended.append(decode(each.rows, each.bias_BC, planes))
        if self.rows.joining:
            attended.append(prefill(slice(len(self.rows.decoding), len(self.rows)), self.rows.prompt_lengths))
        return attended[0] if len(attended) == 1 else torch.cat(attended)


def _size_index(sequence: LiveSequence) -> int:
    assert sequence.place is not None, sequence
    return sequence.place.size_index


def _slots(sequences: Iterable[LiveSequence]) -> list[int]:
    return [sequence.place.slot for sequence in sequences if sequence.place]


def attend_heads(query_BND: Tensor, key_BGCD: Tensor, value_BGCD: Tensor, bias_BC: Tensor) -> Tensor:
    """[B, N, D] of one query row a sequence; -inf in the bias hides a position."""
    B, N, D = query_BND.shape
    _, G, C, _ = key_BGCD.shape
    query = query_BND.reshape(B * G, N // G, D)
    bias = bias_BC.repeat_interleave(G, 0)[:, None]
    scores = torch.baddbmm(bias, query, key_BGCD.view(B * G, C, D).transpose(1, 2), alpha=D**-0.5)
    return torch.bmm(scores.softmax(-1), value_BGCD.view(B * G, C, D)).view(B, N, D)
