"""The ranks of an expert group that still generate, as one of them sees it, and how they become fewer.

Invariants:
- All active ranks decide the same from the same exchanged numbers.
- After a shrink every expert is hosted by exactly one active rank, and every unfinished response is on one.
- Parallel state names the active group, and the home group again once the rollout is over.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.distributed as dist
from torch import nn

from flexfloor import device, parallel
from flexfloor.elastic.config import ElasticConfig
from flexfloor.elastic.exchange import exchange_integers
from flexfloor.elastic.ladder import Ladder
from flexfloor.elastic.moe_layer import moe_layers
from flexfloor.elastic.placement import expert_moves, home_placement, shrunk
from flexfloor.rollout.batch import LiveBatch
from flexfloor.rollout.handover import take_out
from flexfloor.rollout.migration import Arrived, Hosted, migrate
from flexfloor.schedule.shrink import Standing, hand_over, next_size


class ActiveGroup:
    """One expert group during one rollout."""

    def __init__(self, model: nn.Module, ladder: Ladder, elastic: ElasticConfig, *, sequences_per_rank: int):
        """Args:
        sequences_per_rank: unless `elastic` says it.
        """
        self.ladder, self.elastic, self.size = ladder, elastic, ladder.size
        self.sequences_per_rank = elastic.sequences_per_rank or sequences_per_rank
        self.finished_by_leavers = 0
        layers = moe_layers(model)
        self.placement = home_placement(layers[0].config.num_moe_experts, ladder.size)
        self.hosted: Hosted = {
            expert: [layer.expert_weights()[expert] for layer in layers]
            for expert in self.placement.hosted_by(ladder.position)
        }
        self._pushed: list[dist.ProcessGroup] = []

    @property
    def group(self) -> dist.ProcessGroup:
        """Of the active ranks."""
        return self.ladder.groups[self.size]

    @property
    def is_released(self) -> bool:
        """Whether this rank has left."""
        return self.ladder.position >= self.size

    def is_due(self, passes: int) -> bool:
        """Whether a decision follows pass number `passes`."""
        shrinks = self.elastic.policy != "never" and self.size > 1
        return shrinks and passes % self.elastic.interval == 0

    def standings(self, batch: LiveBatch, num_finished: int) -> list[Standing]:
        """What each active rank says of itself; one exchange."""
        told = self.exchange([len(batch.unfinished()), batch.kv_tokens(), num_finished])
        return [
            Standing(unfinished=unfinished, kv_tokens=kv_tokens, finished=finished)
            for unfinished, kv_tokens, finished in told
        ]

    def next_size(self, standings: Sequence[Standing], batch: LiveBatch) -> int:
        """Ranks to go on with; the present number = all stay."""
        return next_size(
            standings,
            self.ladder.rungs,
            policy=self.elastic.policy,
            sequences_per_rank=self.sequences_per_rank,
            kv_tokens_per_rank=batch.cache.room.tokens,
        )

    def shrink(
        self, size: int, standings: Sequence[Standing], batch: LiveBatch, expert_load: Sequence[int]
    ) -> Arrived:
        """Go on with the first `size` ranks: leavers hand over, stayers take sequences and experts.

        Args:
            expert_load: rows that chose each expert on this rank so far.
        """
        load = [sum(each) for each in zip(*self.exchange(list(expert_load)), strict=True)]
        after = shrunk(self.placement, size, load)
        leaves = self.ladder.position >= size
        arrived = migrate(
            expert_moves(self.placement, after),
            hand_over(standings, size),
            hosted=self.hosted,
            leaving=take_out(batch.give_up(), batch.cache) if leaves else [],
            dtype=batch.cache.dtype,
            group=self.group,
        )
        self.finished_by_leavers += sum(standing.finished for standing in standings[size:])
        self.placement, self.size = after, size
        if not leaves:
            self.hosted |= arrived.guests
            self._pushed.append(self.group)
            parallel.enter_expert_group(self.group)
            batch.adopt(arrived.sequences)
        return arrived

    def close(self) -> None:
        """Go back to the home group and forget the guests."""
        while self._pushed:
            parallel.leave_expert_group(self._pushed.pop())
        self.hosted.clear()

    def exchange(self, values: list[int]) -> list[list[int]]:
        """Every active rank's `values`, by position."""
        return exchange_integers(values, self.group, device.current_device())
