"""Which tokenizer turns prompts into tokens."""

from __future__ import annotations

from dataclasses import dataclass

from flexfloor.checks import require


@dataclass(kw_only=True)
class TokenizerConfig:
    """A Hugging Face fast tokenizer, shipped or the user's own."""

    path: str = "builtin:char"
    """`builtin:char` (shipped, offline), or a folder or hub name that Hugging Face can load"""

    def __post_init__(self) -> None:
        require(bool(self.path), "tokenizer.path", self.path, "builtin:char, a folder or a hub name")
