"""What goes into a rollout and what comes out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flexfloor.checks import require
from flexfloor.schedule.fitted_cost import PassSample


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One response to be generated."""

    uid: str
    """Of the prompt; with `response_index` and the seed it fixes the sampled tokens."""
    response_index: int
    """Which of the prompt's responses, from 0."""
    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    """At least 1; the end-of-sequence token counts."""
    forced_length: int | None = None
    """The response ends after exactly so many tokens, whatever is sampled; for benchmarks."""

    def __post_init__(self) -> None:
        most, forced = self.max_new_tokens, self.forced_length
        require(most >= 1, "Request.max_new_tokens", most, "at least 1")
        allowed = f"between 1 and max_new_tokens = {most}"
        require(forced is None or 1 <= forced <= most, "Request.forced_length", forced, allowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One finished response."""

    uid: str
    response_index: int
    token_ids: tuple[int, ...]
    """Tokens as sampled; the last one is the end-of-sequence token if finish_reason is "eos", and
    completes a stop string if it is "stop"."""
    logprobs: tuple[float, ...]
    """Natural log-probability of each token at the sampling temperature, before top-p and top-k."""
    finish_reason: str
    """"eos", "stop" or "length"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrinkSample:
    """A shrink that took place."""

    before: int
    after: int
    """Active replicas."""
    moved_tokens: int
    """In the caches of those that left, by their slots."""
    seconds: float
    """On this rank."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RolloutStats:
    """What one rank did in one rollout.

    Tokens and sequences are those of its replica, counted by the first of its ranks and 0 on the others.
    """

    seconds: float
    """From the start of generation to its end, or to the release of this rank."""
    busy_seconds: float
    """Until this rank's own last response was finished, or went to another rank."""
    passes: int
    """Forward passes taken part in, with or without rows of its own."""
    decoded_tokens: int
    prefilled_tokens: int
    """Of prompts, where no live sibling had them."""
    preemptions: int
    """How often a sequence yielded its cache to those before it."""
    recomputed_tokens: int
    """Of prompts and responses, prefilled again when a sequence that had yielded went on."""
    peak_kv_bytes: int
    """Most KV cache that was allocated in a pass."""
    shrinks: int
    """Times that the expert group became smaller while this rank was in it, or detached."""
    shrink_seconds: float
    """Spent in them."""
    moved_sequences: int
    """Unfinished sequences that this rank took over, from ranks that left or whose queue was long."""
    moved_bytes: int
    """Of experts and sequences that this rank received."""
    is_released: bool
    """Whether the rank left without waiting for the end of the others."""
    is_detached: bool
    """Whether it generated the rest by itself, when the group had detached."""
    active_ranks: tuple[tuple[float, int], ...]
    """(seconds from the start, ranks of the group from then on), from the first pass on; of a group that
    detached, last how many went on by themselves, each until its own `seconds`."""
    expert_load: np.ndarray
    """int64 [MoE layers, experts]: how often this rank's rows chose each expert."""
    pass_samples: tuple[PassSample, ...]
    """Seconds of passes that this rank took part in, by stretches of like passes."""
    alone_samples: tuple[PassSample, ...]
    """Of passes of this rank after its group had detached, the first half of them: nobody hears when others
    end."""
    shrink_samples: tuple[ShrinkSample, ...]
    """Of shrinks that this rank took part in; of a detachment, which takes as many experts, to one rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassProgress:
    """How far an expert group is, before a pass."""

    rows: int
    """Rows of the coming pass on all ranks of the group."""
    finished: int
    """Responses finished so far on all ranks of the group, those that left among them; of a group that has
    detached, this rank's and those of the others until then."""
    active: int
    """Ranks of the group that still generate, or did when it detached."""
    is_detached: bool = False
    """Whether this rank generates by itself and hears no more of the others."""
