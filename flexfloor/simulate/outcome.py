"""What a simulated step came to, by the ledger's own measures."""

from __future__ import annotations

from dataclasses import dataclass

from flexfloor.ledger.types import StepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """One epoch's step."""

    tokens: int
    """Of all responses."""
    wall_s: float
    """Of generation."""
    occupied_s: float
    """Rank-seconds from the start of generation to each rank's release."""
    idle_s: float
    """The part of `occupied_s` after a rank's own responses were finished."""
    step_s: float
    """Generation, and training of what was not trained beside it."""
    overlapped_tokens: float
    """Trained beside generation; prompts' tokens count too."""
    trained_tokens: float
    """Of all prompts and responses, a prompt as often as it has responses."""
    training_s: float
    """Rank-seconds of training, all of it."""
    hidden_s: float
    """Rank-seconds of training beside generation."""
    hideable_s: float
    """Rank-seconds that training could have beside this generation: all of it, or those of released ranks."""
    plain_step_s: float
    """Of a step that generates the same way and trains afterwards."""
    preemptions: int
    recomputed_tokens: int
    """Prefilled again by responses that had yielded."""
    shrinks: int
    """Of all expert groups; that ranks part is one."""
    detached_ranks: int
    """That parted from the others and generated each by itself."""
    shrink_s: float
    """That they took, summed over groups."""
    rank_passes: int
    """Passes, summed over active ranks."""
    records: tuple[StepRecord, ...]
