"""One forward pass of a rollout: which rows it has and how they attend through the KV cache.

The rows of a pass are one row for each decoding sequence, in slot order, followed by the prompts
that join, packed end to end. Both kinds share the pass, so that ranks need not agree on who
prefills and who decodes.

Shapes: T rows of the pass, of which the first B decode; N query heads, G key/value heads, D channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from megatron.core.inference.contexts import BaseInferenceContext
from torch import Tensor

from flexfloor.models.packed_attention import attend_packed
from flexfloor.rollout.kv_cache import KVCache

Decode = Callable[[slice, Tensor, list[Tensor]], Tensor]
"""(decoding rows, bias [B, C] with -inf at positions not seen, planes [B, G, C, D]) to [B, ...]."""
Prefill = Callable[[slice, list[int]], Tensor]
"""(rows of the prompts, rows of each prompt) to [rows, ...]."""


class PassRows:
    """Rows of one pass: token, position, and where its keys and values go."""

    def __init__(self, *, decode_ids: list[int], prompts: list[tuple[int, ...]], cache: KVCache):
        device = cache.lengths.device
        self.num_decode = len(decode_ids)
        self.prompt_lengths = [len(prompt) for prompt in prompts]
        ids = [*decode_ids, *(token for prompt in prompts for token in prompt)]
        self.input_ids_T = torch.tensor(ids, dtype=torch.long, device=device)
        starts = [torch.arange(length, device=device) for length in self.prompt_lengths]
        self.position_ids_T = torch.cat([cache.lengths[: self.num_decode], *starts])
        ends = torch.tensor(self.prompt_lengths, dtype=torch.long, device=device).cumsum(0) - 1
        decoding = torch.arange(self.num_decode, device=device)
        self.last_rows = torch.cat([decoding, ends + self.num_decode])
        """Rows whose logits are wanted: each decoding row and the last one of each prompt."""

    def __len__(self) -> int:
        return self.input_ids_T.numel()


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
        self.max_sequence_length = cache.capacity
        self.sequence_len_offset = 0
        self.batch_size_offset = 0
        self.rows = PassRows(decode_ids=[], prompts=[], cache=cache)

    def is_static_batching(self) -> bool:
        """True: rows, positions and cache are this context's own business."""
        return True

    def is_decode_only(self) -> bool:
        """False: nothing of Megatron's flash-decode path is used."""
        return False

    def begin(self, rows: PassRows) -> None:
        """Set the rows of the coming pass; the joining prompts take the slots after the decoding ones."""
        self.rows = rows
        cache, B, device = self.cache, rows.num_decode, self.cache.lengths.device
        new_slots = cache.join(len(rows.prompt_lengths))
        counts = torch.tensor(rows.prompt_lengths, dtype=torch.long, device=device)
        joining = torch.tensor(new_slots, dtype=torch.long, device=device).repeat_interleave(counts)
        slots_T = torch.cat([torch.arange(B, device=device), joining])
        self._places = cache.places(slots_T, rows.position_ids_T)
        positions_B = rows.position_ids_T[:B]
        self._seen = int(positions_B.max()) + 1 if B else 0
        hidden_BC = torch.arange(self._seen, device=device)[None] > positions_B[:, None]
        bias_BC = torch.zeros(hidden_BC.shape, dtype=cache.planes.dtype, device=device)
        self._bias = bias_BC.masked_fill_(hidden_BC, float("-inf"))

    def end(self) -> None:
        """Count the pass's rows into the lengths of their sequences."""
        B = self.rows.num_decode
        self.cache.lengths[:B] += 1
        if self.rows.prompt_lengths:
            joined = torch.tensor(self.rows.prompt_lengths, device=self.cache.lengths.device)
            self.cache.lengths[B : B + joined.numel()] = joined

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
            decode: attends decoding rows over what their sequences hold in the cache.
            prefill: attends the rows of joining prompts among themselves.

        Returns: what both return, in the order of the rows.
        """
        self.cache.store(layer, self._places, *kept_TGD)
        B, T = self.rows.num_decode, len(self.rows)
        attended = []
        if B:
            attended.append(decode(slice(0, B), self._bias, self.cache.seen(layer, B, self._seen)))
        if T > B:
            attended.append(prefill(slice(B, T), self.rows.prompt_lengths))
        return attended[0] if len(attended) == 1 else torch.cat(attended)


def attend_heads(query_BND: Tensor, key_BGCD: Tensor, value_BGCD: Tensor, bias_BC: Tensor) -> Tensor:
    """[B, N, D] of one query row a sequence; -inf in the bias hides a position."""
    B, N, D = query_BND.shape
    _, G, C, _ = key_BGCD.shape
    query = query_BND.reshape(B * G, N // G, D)
    bias = bias_BC.repeat_interleave(G, 0)[:, None]
    scores = torch.baddbmm(bias, query, key_BGCD.view(B * G, C, D).transpose(1, 2), alpha=D**-0.5)
    return torch.bmm(scores.softmax(-1), value_BGCD.view(B * G, C, D)).view(B, N, D)
