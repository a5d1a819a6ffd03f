"""How long responses will become, as far as one can tell without a history.

`near_future` does not guess an end: it expects a response to go on for a little while. A sequence that is
admitted too early costs, if it has to yield, one cheap prefill of what it had; a place left empty for an
end that may be far away costs a row of every pass. `make bench-admission` compares it with reserving the
greatest length and with admission by the present need alone.

Invariants:
- A prediction is longer than the response is by now, and no longer than it may become.
"""

from __future__ import annotations

from collections.abc import Callable

LengthPredictor = Callable[[str, int, int], int]
"""(uid of the prompt, tokens of the response by now, tokens that it may have) to tokens it will have."""
LOOK_AHEAD = 32
"""A response is expected to go on for one part in so many of the tokens that it may have."""


def near_future(uid: str, num_tokens: int, max_new_tokens: int) -> int:
    """A little longer than it is by now."""
    return min(max_new_tokens, num_tokens + max(1, max_new_tokens // LOOK_AHEAD))


def greatest_length(uid: str, num_tokens: int, max_new_tokens: int) -> int:
    """As long as it may become."""
    return max_new_tokens
