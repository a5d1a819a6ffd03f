"""The responses of one expert group, as its replicas read them: numbered, in plain lists."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What a group has to generate; a response is known by its number."""

    prompt: list[int]
    """Which prompt each response answers; siblings have the same."""
    tokens: list[int]
    """Of each response when it ends, at least 1."""
    prompt_tokens: int
    """Of every prompt."""
    cap: int
    """Tokens that a response may have."""
    parked: dict[int, int] = field(default_factory=dict)
    """Tokens of each response that began and waits now, on whichever replica."""

    @property
    def longest(self) -> int:
        """Tokens of the greatest sequence that may be."""
        return self.prompt_tokens + self.cap
