"""Stop strings, found while a response grows.

A token may end inside a character or inside a stop string, so that only decoded text can tell. A
string of n UTF-8 bytes reaches back over at most n tokens, since every token writes a byte at least;
so the newest tokens are decoded, whatever the response's length, and the whole text only to confirm.

Invariants:
- Checked after each token, a response ends at the first token after which its text contains a string.
- The answer depends on the response's tokens alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

SLACK = 2
"""Tokens looked back for each byte of the longest string: decoders that tidy spaces may drop some."""


class StopStrings:
    """Strings that end a response once its text contains one of them."""

    def __init__(self, strings: Sequence[str], decode: Callable[[Sequence[int]], str]):
        """Args:
        strings: at least one, none of them empty.
        decode: text of token ids, special tokens included.
        """
        self.strings, self.decode = tuple(strings), decode
        longest = max(len(string.encode()) for string in self.strings)
        self.num_tail_tokens = SLACK * longest + 1

    def found_in(self, token_ids: Sequence[int]) -> bool:
        """Whether the newest of `token_ids` completed a string; none was complete before it."""
        if not self._occur_in(token_ids[-self.num_tail_tokens :]):
            return False
        # The tail may start inside a character or lose a space: the whole text decides.
        return len(token_ids) <= self.num_tail_tokens or self._occur_in(token_ids)

    def _occur_in(self, token_ids: Sequence[int]) -> bool:
        text = self.decode(token_ids)
        return any(string in text for string in self.strings)
