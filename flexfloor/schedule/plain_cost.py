"""The cost of things on hardware that nobody has described, to start from: proportions, not times.

One pass of one rank with few rows takes `seconds`. Half of that is reading experts, of which each of more
ranks has fewer; a collective adds a tenth for each doubling of the ranks. `fitted_cost` scales all of it by
what is measured.

Invariants:
- Times are above 0 and grow with rows, prompts, context and tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flexfloor.schedule.cost import Number, PassLoad, of_one_rank


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainCost:
    """A `CostModel` by rule of thumb."""

    pass_error: ClassVar[float] = 0.0

    seconds: float = 0.01
    """Of a pass of one rank with few rows."""
    rows_to_double: float = 64.0
    """Rows that take as long again."""
    context_to_double: float = 65536.0
    """Tokens of context that take as long again."""

    def pass_seconds(self, load: PassLoad) -> Number:
        """Seconds of a pass, in the shape of the load's fields."""
        fixed = 0.5 + 0.5 / load.ranks + 0.1 * np.log2(load.ranks)
        grown = (load.rows + load.joining) / self.rows_to_double + load.context / self.context_to_double
        return self.seconds * (fixed + grown)

    def alone_seconds(self, load: PassLoad) -> Number:
        """Seconds of a pass of a rank that has parted: those of one rank, whatever the others do."""
        return self.pass_seconds(of_one_rank(load))

    def shrink_seconds(self, before: int, after: int, moved_tokens: Number) -> Number:
        """Seconds from `before` to `after` ranks: ten passes, and more for experts and caches."""
        experts = 10.0 * (before - after) / (before * after)
        return self.seconds * (10.0 + experts + moved_tokens / after / self.rows_to_double / 16)

    def train_seconds(self, tokens: float) -> float:
        """Seconds of forward and backward: three times those of a pass over as many tokens."""
        return self.seconds * (1.0 + 3.0 * tokens / self.rows_to_double)
