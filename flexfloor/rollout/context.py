"""One forward pass of a rollout: which rows it has and how they attend through the KV cache.

The rows of a pass are one row for each decoding sequence, in slot order, followed by the prompts
that join, packed end to end. Both kinds share the pass, so that ranks need not agree on who
prefills and who decodes.

Shapes: T rows of the pass, of which the first B decode; N query heads, G key/value heads, D channels.
"""

from __future__ import annotations

import torch
from megatron.core.inference.contexts import BaseInferenceContext
from torch import Tensor

from flexfloor.models.packed_attention import attend_packed
from flexfloor.rollout.kv_cache import KVCache


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

    def __init__(self, cache: KVCache):
        super().__init__(materialize_only_last_token_logits=False)
        self.cache = cache
        self.max_sequence_length = cache.keys.size(3)
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
        self.cache.join(len(rows.prompt_lengths))
        cache, B = self.cache, rows.num_decode
        self._slots_B = torch.arange(B, device=cache.lengths.device)
        self._positions_B = rows.position_ids_T[:B]
        self._seen = int(self._positions_B.max()) + 1 if B else 0
        places = torch.arange(self._seen, device=cache.lengths.device)
        hidden_BC = places[None] > self._positions_B[:, None]
        self._bias = torch.zeros(hidden_BC.shape, dtype=cache.keys.dtype, device=places.device)
        self._bias = self._bias.masked_fill_(hidden_BC, float("-inf"))[:, None, None]

    def end(self) -> None:
        """Count the pass's rows into the lengths of their sequences."""
        B = self.rows.num_decode
        self.cache.lengths[:B] += 1
        if self.rows.prompt_lengths:
            joined = torch.tensor(self.rows.prompt_lengths, device=self.cache.lengths.device)
            self.cache.lengths[B : B + joined.numel()] = joined

    def attend(self, layer: int, query_TND: Tensor, key_TGD: Tensor, value_TGD: Tensor) -> Tensor:
        """Store the rows' keys and values and attend; [T, N, D]. `layer` counts from 0."""
        B = self.rows.num_decode
        pieces = []
        if B:
            pieces.append(self._decode(layer, query_TND[:B], key_TGD[:B], value_TGD[:B]))
        if self.rows.prompt_lengths:
            pieces.append(self._prefill(layer, query_TND[B:], key_TGD[B:], value_TGD[B:]))
        if not pieces:
            return query_TND
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def _decode(self, layer: int, query_BND: Tensor, key_BGD: Tensor, value_BGD: Tensor) -> Tensor:
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        B, G, D = key_BGD.shape
        keys[self._slots_B, :, self._positions_B] = key_BGD
        values[self._slots_B, :, self._positions_B] = value_BGD
        seen_keys = keys[:B, :, : self._seen].view(B * G, self._seen, D)
        seen_values = values[:B, :, : self._seen].view(B * G, self._seen, D)
        query = query_BND.reshape(B * G, -1, D) * D**-0.5
        scores = torch.bmm(query, seen_keys.transpose(1, 2)).view(B, G, -1, self._seen)
        weights = scores.add_(self._bias).softmax(-1).view(B * G, -1, self._seen)
        return torch.bmm(weights, seen_values).view(B, -1, D)

    def _prefill(self, layer: int, query_TND: Tensor, key_TGD: Tensor, value_TGD: Tensor) -> Tensor:
        start = 0
        for slot, length in enumerate(self.rows.prompt_lengths, self.rows.num_decode):
            rows = slice(start, start + length)
            self.cache.keys[layer, slot, :, :length] = key_TGD[rows].transpose(0, 1)
            self.cache.values[layer, slot, :, :length] = value_TGD[rows].transpose(0, 1)
            start += length
        return attend_packed(query_TND, key_TGD, value_TGD, self.rows.prompt_lengths)
