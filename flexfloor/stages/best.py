"""Which step has validated best, so that its checkpoint can be kept.

The score of a validation is the mean over data sources of `val-core/<source>/mean@N`. The record is part
of every checkpoint, so that a resumed run measures itself against all validations before.

Invariants:
- A step is the best when its score is above that of every validation before; an equal one is not.
- All ranks agree on it: rank 0 decides.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist

from flexfloor.train.checkpoint_folder import checkpoint_name

_SCORE = re.compile(r"val-core/.+/mean@\d+")
LINK = "best"


class BestStep:
    """The best validation so far."""

    def __init__(self, folder: Path, *, enabled: bool) -> None:
        """Args:
        folder: with the run's checkpoints; `best` in it leads to the one of the best step.
        enabled: without it there is never a best step.
        """
        self.step: int | None = None
        self.score: float | None = None
        self._enabled = enabled
        self._folder = folder

    @property
    def spared(self) -> set[int]:
        """Steps whose checkpoints stay."""
        return set() if self.step is None else {self.step}

    def note(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Take the validation of `step` into account; whether it is the best. All ranks call it."""
        if not self._enabled:
            return False
        score = validation_score(metrics)
        verdict = [self.score is None or score > self.score]
        dist.broadcast_object_list(verdict, src=0)
        if verdict[0]:
            self.step, self.score = step, score
        return verdict[0]

    def link(self) -> None:
        """Let `best` in the folder lead to the checkpoint of the best step, on rank 0; none without one."""
        if dist.get_rank() != 0:
            return
        link = self._folder / LINK
        if self.step is None or not (self._folder / checkpoint_name(self.step)).is_dir():
            link.unlink(missing_ok=True)
            return
        beside = link.with_name(f"{LINK}.new")
        beside.unlink(missing_ok=True)
        beside.symlink_to(checkpoint_name(self.step))
        os.replace(beside, link)

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"step": self.step, "score": self.score}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """From a checkpoint; forgotten where no best one is kept."""
        if self._enabled:
            self.step, self.score = state["step"], state["score"]


def validation_score(metrics: Mapping[str, float]) -> float:
    """Mean over data sources of the mean score of a validation."""
    scores = [value for name, value in metrics.items() if _SCORE.fullmatch(name)]
    assert scores, f"no validation among {sorted(metrics)}"
    return float(np.mean(scores))
