"""What `flexfloor simulate` simulates."""

from __future__ import annotations

from dataclasses import dataclass, field

from flexfloor.checks import require, require_choice, require_range
from flexfloor.simulate.hardware import HARDWARE
from flexfloor.simulate.lengths import CAP, MEDIAN, P90_OVER_P50
from flexfloor.simulate.models import MODELS
from flexfloor.simulate.policies import POLICIES


@dataclass(kw_only=True)
class SimulatedLengthsConfig:
    """How long responses become."""

    median: float = MEDIAN
    """tokens of half of all responses, before the cap"""
    p90_over_p50: float = P90_OVER_P50
    """how long the tail is, before the cap; stress variants: 1.5 and 6"""
    cap: int | None = CAP
    """tokens that a response may have; null = data.max_response_length"""
    cap_share: float = 0.0
    """share of responses that never end by themselves"""
    seed: int = 0
    path: str | None = None
    """lengths.jsonl of a real run, or the run's folder, instead of drawn lengths: a step for each epoch"""

    def __post_init__(self) -> None:
        require_range("simulate.lengths.median", self.median, 1.0)
        require_range("simulate.lengths.p90_over_p50", self.p90_over_p50, 1.0)
        require_range("simulate.lengths.cap_share", self.cap_share, 0.0, 1.0)
        require_range("simulate.lengths.seed", self.seed, 0)
        if self.cap is not None:
            require_range("simulate.lengths.cap", self.cap, 1)


@dataclass(kw_only=True)
class SimulateConfig:
    """A cluster, a model and a batch. `flexfloor train` looks at none of this."""

    model: str | None = "qwen3-30b-a3b"
    """a published model by name; null = the recipe's `model`"""
    vocab_size: int = 32_000
    """of the recipe's model, when `model` is null"""
    hardware: str = "h100"
    """kind of GPU by name"""
    num_gpus: int = 8
    ep: int | None = None
    """ranks of an expert group; null = the most that divide both GPUs and experts"""
    tp: int | None = None
    """ranks of a replica, of one node; null = parallel.tp, or 1 for a published model"""
    num_prompts: int | None = 64
    """of each step, the same in every epoch; null = data.train_batch_size"""
    n: int | None = 8
    """responses to each prompt; null = rollout.n"""
    prompt_tokens: int | None = 512
    """of every prompt; null = data.max_prompt_length"""
    lengths: SimulatedLengthsConfig = field(default_factory=SimulatedLengthsConfig)
    epochs: int = 3
    """steps over the same prompts; the first has no history"""
    policies: list[str] = field(default_factory=lambda: list(POLICIES))
    """schedules to compare; the first is what the others are compared with"""
    slowdowns: list[float] = field(default_factory=lambda: [0.05, 0.1, 0.2, 0.4])
    """shares of its seconds that `flexfloor` may give for rank-seconds, for the frontier; [] = no line"""
    max_live_sequences: int | None = 256
    """of a replica; null = rollout.max_live_sequences"""
    max_joining_tokens: int = 8192
    """prefilled in one pass of a replica; one response may have more"""
    memory_share: float = 0.85
    """of a GPU's memory that generation may take"""
    holds_training: bool = False
    """GPUs keep gradients and state of the optimizer of the recipe's model meanwhile, as a run does; false =
    that lies elsewhere"""
    interval: int | None = 64
    """passes from one decision to the next; null = elastic.interval"""
    rungs: list[int] = field(default_factory=list)
    """replicas that an expert group may shrink to; none given = powers of two, and those midway"""
    step_floor_seconds: float | None = None
    """least time of a pass; null = the hardware's for each layer"""
    overlap: bool = True
    """released ranks train finished groups while others generate, where ranks are not let part and a recipe's
    overlap.mode is not off"""
    detach: bool | None = None
    """whether ranks may part, each with all experts, where memory allows it, which leaves no ranks to train
    meanwhile; null = the recipe's elastic.detach, and where that is not given, too, in guided groups without
    overlap and with a replica of one rank"""
    output: str = "runs/simulate"
    """folder for pictures and figures"""

    def __post_init__(self) -> None:
        if self.model is not None:
            require_choice("simulate.model", self.model, MODELS)
            allowed = "false unless simulate.model is null: a recipe says what its training takes"
            require(not self.holds_training, "simulate.holds_training", self.holds_training, allowed)
        require_choice("simulate.hardware", self.hardware, HARDWARE)
        for name in ("vocab_size", "num_gpus", "epochs", "max_joining_tokens"):
            require_range(f"simulate.{name}", getattr(self, name), 1)
        for name in ("ep", "tp", "num_prompts", "n", "max_live_sequences", "interval"):
            if getattr(self, name) is not None:
                require_range(f"simulate.{name}", getattr(self, name), 1)
        if self.prompt_tokens is not None:
            require_range("simulate.prompt_tokens", self.prompt_tokens, 0)
        require_range("simulate.memory_share", self.memory_share, above=0.0, high=1.0)
        if self.step_floor_seconds is not None:
            require_range("simulate.step_floor_seconds", self.step_floor_seconds, 0.0)
        self._check_lists()

    def _check_lists(self) -> None:
        fits = all(rung >= 1 for rung in self.rungs) and len(set(self.rungs)) == len(self.rungs)
        require(fits, "simulate.rungs", self.rungs, "different sizes of at least 1 rank")
        for policy in self.policies:
            require_choice("simulate.policies", policy, POLICIES)
        for share in self.slowdowns:
            require_range("simulate.slowdowns", share, 0.0, 10.0)
        different = bool(self.policies) and len(set(self.policies)) == len(self.policies)
        require(different, "simulate.policies", self.policies, f"some of {', '.join(POLICIES)}, each once")
        require(bool(self.output), "simulate.output", self.output, "a folder")
