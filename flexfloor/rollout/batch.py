"""The live sequences of one rank from pass to pass: admitting, sampling, finishing.

A pass has a row for each live sequence and the prompts that join. Responses to one prompt share its
prefill: those that join together, and those that join while a sibling's copy of it is live.

Invariants:
- `live[i]` is the sequence in slot i of the cache.
- After a pass every live sequence has one sampled token that the cache does not hold yet.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from flexfloor.rollout.config import SamplingConfig
from flexfloor.rollout.context import PassRows, RolloutContext
from flexfloor.rollout.ending import Ending
from flexfloor.rollout.kv_cache import KVCache
from flexfloor.rollout.live import LiveSequence, PromptQueue
from flexfloor.rollout.sampling import sample
from flexfloor.rollout.types import Request, Response


class LiveBatch:
    """What one rank generates in one rollout."""

    def __init__(
        self,
        requests: Sequence[Request],
        cache: KVCache,
        *,
        seed: int | str,
        sampling: SamplingConfig,
        ending: Ending,
    ):
        self.queue = PromptQueue(requests)
        self.cache, self.seed, self.sampling, self.ending = cache, seed, sampling, ending
        self.context = RolloutContext(cache)
        self.live: list[LiveSequence] = []
        self.prefilled_tokens = 0
        self.peak_kv_bytes = 0
        self._joining: dict[str, list[Request]] = {}
        self._prompt_logits: dict[str, Tensor] = {}

    def admit(self) -> int:
        """Take waiting requests into free slots, set the coming pass's rows and return their number."""
        self._joining = {}
        for request in self.queue.take(self.cache.num_free):
            self._joining.setdefault(request.uid, []).append(request)
        prompts = [
            siblings[0].prompt_ids for uid, siblings in self._joining.items() if not self._is_live(uid)
        ]
        rows = PassRows(
            decode_ids=[sequence.token_ids[-1] for sequence in self.live], prompts=prompts, cache=self.cache
        )
        self.prefilled_tokens += sum(rows.prompt_lengths)
        self.context.begin(rows)
        return len(rows)

    def advance(self, logits: Tensor) -> list[Response]:
        """Give every sequence of the pass its next token.

        Args:
            logits: [wanted, V] of the pass's `last_rows`.

        Returns: the responses that ended.
        """
        self.context.end()
        logits = self._join_admitted(logits)
        if self.live:
            self._sample(logits)
        self.peak_kv_bytes = max(self.peak_kv_bytes, self.cache.live_bytes())
        return self._finish()

    def _is_live(self, uid: str) -> bool:
        return any(sequence.request.uid == uid for sequence in self.live)

    def _join_admitted(self, logits: Tensor) -> Tensor:
        """Make joining requests live; logits [live, V] of all live sequences, in slot order."""
        num_decoding = len(self.live)
        late = {uid: siblings for uid, siblings in self._joining.items() if self._is_live(uid)}
        new = {uid: siblings for uid, siblings in self._joining.items() if uid not in late}
        for row, (uid, siblings) in enumerate(new.items(), num_decoding):
            self._prompt_logits[uid] = logits[row]
            self._place(siblings[0])
        picked = [logits]
        for uid, siblings in [(uid, s[1:]) for uid, s in new.items()] + list(late.items()):
            self._copy(uid, siblings)
            picked.append(self._prompt_logits[uid].expand(len(siblings), -1))
        self._prompt_logits = {u: row for u, row in self._prompt_logits.items() if self.queue.waits_for(u)}
        return torch.cat(picked)

    def _place(self, request: Request) -> None:
        self.live.append(LiveSequence.of(request, self.seed))

    def _copy(self, uid: str, siblings: list[Request]) -> None:
        if not siblings:
            return
        holder = next(slot for slot, sequence in enumerate(self.live) if sequence.request.uid == uid)
        slots = self.cache.join(len(siblings))
        self.cache.copy_prefix(holder, slots, len(siblings[0].prompt_ids))
        for request in siblings:
            self._place(request)

    def _sample(self, logits: Tensor) -> None:
        keys = torch.tensor([sequence.key for sequence in self.live], device=logits.device)
        positions = torch.tensor([len(sequence.token_ids) for sequence in self.live], device=logits.device)
        token_ids, logprobs = sample(logits, keys, positions, self.sampling)
        for sequence, token_id, logprob in zip(self.live, token_ids.tolist(), logprobs.tolist(), strict=True):
            sequence.append(token_id, logprob)

    def _finish(self) -> list[Response]:
        ended = []
        for slot in reversed(range(len(self.live))):
            sequence = self.live[slot]
            reason = self.ending.reason(sequence.request, sequence.token_ids)
            if reason:
                ended.append(sequence.response(reason))
                self.cache.leave(slot)
                self.live[slot] = self.live[-1]
                self.live.pop()
        return ended
