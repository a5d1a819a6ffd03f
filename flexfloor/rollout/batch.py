"""The live sequences of one rank from pass to pass: admitting, sampling, yielding, finishing.

A pass has a row for each sequence that decodes, and all tokens of those that join. Responses to one prompt
share its prefill: those that join together, and those that join while a sibling's copy of it is live. A
sequence that yielded joins with its prompt and its tokens so far, which are computed again, and goes on.

Invariants:
- After a pass every live sequence has one sampled token that the cache does not hold yet.
- A sequence that yields keeps its tokens, their log-probabilities and what is left of its allowed length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from flexfloor.rollout.arrange import share_prompts, take_places
from flexfloor.rollout.config import SamplingConfig
from flexfloor.rollout.context import PassRows, RolloutContext
from flexfloor.rollout.ending import Ending
from flexfloor.rollout.handover import Handed
from flexfloor.rollout.kernels.plain import Operators
from flexfloor.rollout.kv_cache import KVCache
from flexfloor.rollout.live import LiveSequence, WaitingQueue
from flexfloor.rollout.types import Request, Response
from flexfloor.schedule.admission import Admission


class LiveBatch:
    """What one rank generates in one rollout."""

    def __init__(
        self,
        requests: Sequence[Request],
        cache: KVCache,
        admission: Admission,
        *,
        seed: int | str,
        sampling: SamplingConfig,
        ending: Ending,
        operators: Operators,
    ):
        self.queue = WaitingQueue(LiveSequence.of(request, seed) for request in requests)
        self.cache, self.admission, self.sampling, self.ending = cache, admission, sampling, ending
        self.operators = operators
        self.context = RolloutContext(cache)
        self.live: list[LiveSequence] = []
        """In the order of the requests."""
        self.decoded_tokens = self.prefilled_tokens = self.preemptions = self.recomputed_tokens = (
            self.peak_kv_bytes
        ) = 0
        self._with_rows: list[LiveSequence] = []
        self._copying: list[tuple[LiveSequence, LiveSequence]] = []
        self._prompt_logits: dict[str, Tensor] = {}

    def admit(self) -> int:
        """Let sequences yield or join, set the coming pass's rows and return their number."""
        plan = self.admission.plan(self.live, self.queue)
        self._yield(self.live[plan.num_kept :])
        decoding, joining = self.live[: plan.num_kept], self.queue.take(plan.num_joining)
        self.live = decoding + joining
        prefilling, self._copying = share_prompts(decoding, joining, self._prompt_logits)
        copies = [sequence for sequence, _ in self._copying]
        decoding, prefilling = take_places(self.cache, decoding, prefilling, copies)
        self.peak_kv_bytes = max(self.peak_kv_bytes, self.cache.held_bytes())
        for sequence in prefilling:
            if sequence.token_ids:
                self.recomputed_tokens += sequence.length
            else:
                self.prefilled_tokens += sequence.length
        self._with_rows = decoding + prefilling
        self.context.begin(PassRows(decoding=decoding, joining=prefilling, device=self.cache.device))
        return len(self.context.rows)

    def advance(self, logits: Tensor) -> list[Response]:
        """Give every live sequence its next token.

        Args:
            logits: [wanted, V] of the pass's `last_rows`.

        Returns: the responses that ended.
        """
        for row, sequence in enumerate(self._with_rows):
            if not sequence.token_ids:
                self._prompt_logits[sequence.uid] = logits[row].clone()
        for sequence, holder in self._copying:
            assert sequence.place and holder.place, (sequence, holder)
            self.cache.copy_prefix(holder.place, sequence.place, sequence.num_prompt_tokens)
        copies = [sequence for sequence, _ in self._copying]
        shared = [self._prompt_logits[sequence.uid][None] for sequence in copies]
        self._prompt_logits = {
            uid: row for uid, row in self._prompt_logits.items() if self.queue.new_sibling_waits(uid)
        }
        if self.live:
            self._sample([*self._with_rows, *copies], torch.cat([logits, *shared]))
        return self._finish()

    def unfinished(self) -> list[LiveSequence]:
        """What is live, then what waits."""
        return [*self.live, *self.queue]

    def kv_tokens(self) -> int:
        """Tokens of the slots that all unfinished sequences would fill in the coming pass."""
        return sum(self.cache.room.slot_size(sequence.length) for sequence in self.unfinished())

    @property
    def num_waiting(self) -> int:
        """Sequences that are unfinished and not live."""
        return len(self.queue)

    def give_waiting(self, count: int) -> list[LiveSequence]:
        """Leave the first `count` that wait to others."""
        return self.queue.take(count)

    def give_last(self, count: int) -> list[LiveSequence]:
        """Leave the last `count` of what is unfinished to others."""
        waiting = self.queue.take_last(min(count, len(self.queue)))
        kept = len(self.live) - (count - len(waiting))
        given, self.live = self.live[kept:], self.live[:kept]
        return [*given, *waiting]

    def waiting_tokens(self) -> int:
        """Rows that all waiting sequences would bring if they joined together."""
        return sum(sequence.length for sequence in self.queue)

    def resize(self, kv_tokens: int) -> None:
        """Give back the cache that finished sequences left, and hold so many tokens at most from now on."""
        self.cache.room = self.admission.room = replace(self.cache.room, tokens=kv_tokens)
        fitting = self.admission.num_that_fit(self.live)
        self._yield(self.live[fitting:])
        self.live = self.live[:fitting]
        take_places(self.cache, self.live, [], [])

    def give_up(self) -> list[LiveSequence]:
        """Leave everything unfinished to others; the cache goes with the batch."""
        given, self.live = self.unfinished(), []
        self.queue = WaitingQueue([])
        return given

    def adopt(self, arrived: Sequence[Handed]) -> None:
        """Go on with sequences of another rank; those that a full cache has no room for wait in front."""
        live = [each for each in arrived if each.kept.size(3)]
        fitting = self.admission.num_that_fit([*self.live, *(each.sequence for each in live)])
        joining = live[: max(0, fitting - len(self.live))]
        take_places(self.cache, [*self.live, *(each.sequence for each in joining)], [], [])
        for each in joining:
            assert each.sequence.place is not None
            self.cache.keep(each.sequence.place, each.kept)
        self.live += [each.sequence for each in joining]
        self.queue.merge([each.sequence for each in arrived if not each.kept.size(3)])
        self._yield([each.sequence for each in live[len(joining) :]])

    def _yield(self, sequences: Sequence[LiveSequence]) -> None:
        for sequence in sequences:
            sequence.place = None
        self.queue.put_back(sequences)
        self.preemptions += len(sequences)

    def _sample(self, sequences: Sequence[LiveSequence], logits: Tensor) -> None:
        keys = torch.tensor([sequence.key for sequence in sequences], device=logits.device)
        positions = torch.tensor([sequence.num_tokens for sequence in sequences], device=logits.device)
        token_ids, logprobs = self.operators.sample(logits, keys, positions, self.sampling)
        self.decoded_tokens += len(sequences)
        for sequence, token_id, logprob in zip(sequences, token_ids.tolist(), logprobs.tolist(), strict=True):
            sequence.append(token_id, logprob)

    def _finish(self) -> list[Response]:
        ended, going_on = [], []
        for sequence in self.live:
            reason = self.ending.reason(sequence.request, sequence.token_ids)
            if reason:
                ended.append(sequence.response(reason))
            else:
                going_on.append(sequence)
        self.live = going_on
        return ended
