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
        bias_BC = torch.zeros(hidden_BC.shape, dtype=cache.pairs.dtype, device=device)
        bias_BC = bias_BC.masked_fill_(hidden_BC, float("-inf"))
        self._bias = bias_BC.repeat_interleave(cache.pairs.size(3), 0)[:, None]  # [B G, 1, seen]

    def end(self) -> None:
        """Count the pass's rows into the lengths of their sequences."""
        B = self.rows.num_decode
        self.cache.lengths[:B] += 1
        if self.rows.prompt_lengths:
            joined = torch.tensor(self.rows.prompt_lengths, device=self.cache.lengths.device)
            self.cache.lengths[B : B + joined.numel()] = joined

    def attend(self, layer: int, query_TND: Tensor, key_TGD: Tensor, value_TGD: Tensor) -> Tensor:
        """Store the rows' keys and values and attend; [T, N, D]. `layer` counts from 0."""
        if not query_TND.size(0):
            return query_TND
        self.cache.store(layer, self._places, key_TGD, value_TGD)
        B = self.rows.num_decode
        if query_TND.size(0) == B:
            return self._decode(layer, query_TND)
        prefilled = attend_packed(query_TND[B:], key_TGD[B:], value_TGD[B:], self.rows.prompt_lengths)
        return torch.cat((self._decode(layer, query_TND[:B]), prefilled)) if B else prefilled

    def _decode(self, layer: int, query_BND: Tensor) -> Tensor:
        B, N, D = query_BND.shape
        keys, values = self.cache.seen(layer, B, self._seen)
        query = query_BND.reshape(keys.size(0), -1, D)
        scores = torch.baddbmm(self._bias, query, keys.transpose(1, 2), alpha=D**-0.5)
        return torch.bmm(scores.softmax(-1), values).view(B, N, D)
