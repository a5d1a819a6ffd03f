"""The sequences that a rank is generating, and the ones that wait their turn."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from flexfloor.rollout.noise import sequence_key
from flexfloor.rollout.types import Request, Response


@dataclass(slots=True, kw_only=True)
class LiveSequence:
    """A response in the making."""

    request: Request
    key: int
    """Of its sampling noise."""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, request: Request, seed: int | str) -> LiveSequence:
        """A response with nothing generated yet."""
        return cls(request=request, key=sequence_key(seed, request.uid, request.response_index))

    def append(self, token_id: int, logprob: float) -> None:
        """Add one sampled token."""
        self.token_ids.append(token_id)
        self.logprobs.append(logprob)

    def response(self, finish_reason: str) -> Response:
        """The finished response."""
        return Response(
            uid=self.request.uid,
            response_index=self.request.response_index,
            token_ids=tuple(self.token_ids),
            logprobs=tuple(self.logprobs),
            finish_reason=finish_reason,
        )


class PromptQueue:
    """Requests in the order in which they are admitted."""

    def __init__(self, requests: Sequence[Request]):
        self._waiting = deque(requests)
        self._siblings = Counter(request.uid for request in requests)

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, count: int) -> list[Request]:
        """Remove and return up to `count` requests from the head."""
        taken = [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]
        self._siblings.subtract(request.uid for request in taken)
        return taken

    def waits_for(self, uid: str) -> bool:
        """Whether a request of this prompt is still waiting."""
        return self._siblings[uid] > 0
