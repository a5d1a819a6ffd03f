"""When a response ends.

Invariants:
- A request with a forced length ends after exactly so many tokens, whatever is sampled.
- No other response has a token after its end-of-sequence token, unless that is ignored, after the one
  that completed a stop string, or beyond its allowed length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flexfloor.rollout.stop import StopStrings
from flexfloor.rollout.types import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What ends the responses of a rollout."""

    eos_id: int | None
    """The end-of-sequence token; None when it is sampled like any other."""
    stop: StopStrings | None = None

    def reason(self, request: Request, token_ids: Sequence[int]) -> str | None:
        """Why no token may follow the newest of `token_ids`; None while the response goes on."""
        if request.forced_length is not None:
            return "length" if len(token_ids) >= request.forced_length else None
        if token_ids[-1] == self.eos_id:
            return "eos"
        if self.stop is not None and self.stop.found_in(token_ids):
            return "stop"
        return "length" if len(token_ids) >= request.max_new_tokens else None
