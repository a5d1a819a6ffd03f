"""How responses are generated."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from flexfloor.checks import require, require_choice, require_range

PATHS = ("fast", "reference")
KERNELS = ("auto", "on", "off")
ADMISSIONS = ("predicted", "reserve")


@dataclass(kw_only=True)
class SamplingConfig:
    """How one token is chosen from the logits."""

    section: ClassVar[str] = "rollout"
    """Full name of the section, for complaints."""

    temperature: float = 1.0
    """Divides the logits; 0 takes the most likely token."""
    top_p: float = 1.0
    """Only the most likely tokens that together reach this probability are sampled; 1 keeps all."""
    top_k: int = 0
    """Only this many of the most likely tokens are sampled; 0 keeps all."""

    def __post_init__(self) -> None:
        require_range(f"{self.section}.temperature", self.temperature, 0.0)
        require_range(f"{self.section}.top_p", self.top_p, above=0.0, high=1.0)
        require(
            self.top_k >= 0,
            f"{self.section}.top_k",
            self.top_k,
            "0 (all tokens) or a positive number of tokens",
        )


@dataclass(kw_only=True)
class ValidationSamplingConfig(SamplingConfig):
    """Sampling for validation."""

    section: ClassVar[str] = "rollout.val"

    temperature: float = 0.0
    n: int = 1
    """Responses to each validation prompt."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.n >= 1, "rollout.val.n", self.n, "a positive number of responses")


@dataclass(kw_only=True)
class RolloutConfig(SamplingConfig):
    """Generation of the training responses."""

    n: int = 8
    """Responses to each prompt: the size of a GRPO group."""
    stop: list[str] = field(default_factory=list)
    """A response also ends once its text contains one of these; in training and validation alike."""
    ignore_eos: bool = False
    """For benchmarks: the end-of-sequence token is sampled like any other and ends nothing."""
    lengths_from: str | None = None
    """For benchmarks: the `lengths.jsonl` of an earlier run with the same data, whose training responses get
    the same lengths here, whatever is sampled."""
    kv_budget_bytes: int = 256 * 1024**2
    """Bytes of KV cache on each rank; it must hold one sequence of the greatest length."""
    max_live_sequences: int = 64
    """Sequences that one rank generates at a time, whatever the budget would allow."""
    admission: str = "predicted"
    """`predicted` admits what is likely to fit, and the sequences that stand last wait and are computed
    again when it does not; `reserve` admits what fits at its greatest length, so that nothing ever is."""
    path: str = "fast"
    """`reference` runs Megatron's own modules; `fast` computes the same from the same parameters."""
    kernels: str = "auto"
    """Whether the fast path runs compiled loops between its matrix products: `on` needs ranks on CPUs and a
    C compiler; `auto` takes them where both are there, and says so where a CPU host's compiler fails."""
    val: ValidationSamplingConfig = field(default_factory=ValidationSamplingConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.n >= 1, "rollout.n", self.n, "a positive number of responses")
        require(all(self.stop), "rollout.stop", self.stop, "a list of texts, none of them empty")
        require(self.kv_budget_bytes > 0, "rollout.kv_budget_bytes", self.kv_budget_bytes, "positive bytes")
        require(
            self.max_live_sequences >= 1, "rollout.max_live_sequences", self.max_live_sequences, "at least 1"
        )
        require_choice("rollout.admission", self.admission, ADMISSIONS)
        require_choice("rollout.path", self.path, PATHS)
        require_choice("rollout.kernels", self.kernels, KERNELS)
