"""The ranks of an expert group that still generate, as one of them sees it, and how they become fewer.

A group that detaches becomes as many groups of one rank as have something left. A rank's index in its group
is its position until then, and 0 afterwards. Positions and sizes count replicas, of which all ranks stay or
leave together; a sequence moves between ranks of the same place in their replicas, each with its own heads.

Invariants:
- All active ranks decide the same from the same exchanged numbers.
- After a shrink every expert is hosted by exactly one active rank, and every unfinished response is on one.
- After a detachment every rank that is left hosts every expert and has something unfinished.
- No rank hosts more experts than its memory holds beside what it may come to need.
- Parallel state names the active group, and the home group again once the rollout is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch.distributed as dist
from torch import nn

from flexfloor import device, parallel
from flexfloor.elastic.config import ElasticConfig
from flexfloor.elastic.exchange import exchange_integers
from flexfloor.elastic.floor import Need, RankMemory, fitting_rungs, need_of_parting, need_of_rung
from flexfloor.elastic.ladder import Ladder
from flexfloor.elastic.moe_layer import moe_layers
from flexfloor.elastic.placement import Placement, expert_moves, home_placement, shrunk, spread
from flexfloor.rollout.batch import LiveBatch
from flexfloor.rollout.guide import Guide
from flexfloor.rollout.handover import take_out
from flexfloor.rollout.migration import Arrived, Hosted, migrate
from flexfloor.schedule.even_out import even_out, evened
from flexfloor.schedule.shrink import Handover, Standing, Step, detaches, hand_over, next_size
from flexfloor.schedule.slots import Room


def hosted_at_home(model: nn.Module) -> Hosted:
    """The experts that training keeps on this rank."""
    layers = [layer.expert_weights() for layer in moe_layers(model)]
    return {expert: [weights[expert] for weights in layers] for expert in layers[0]}


class ActiveGroup:
    """One expert group during one rollout."""

    def __init__(
        self,
        model: nn.Module,
        ladder: Ladder,
        elastic: ElasticConfig,
        *,
        sequences_per_rank: int,
        memory: RankMemory,
        room: Room,
        guide: Guide | None = None,
    ):
        """Args:
        sequences_per_rank: unless `elastic` says it.
        memory: the same on all ranks of the group.
        room: of a rank's cache when the rollout begins.
        guide: needed where the policy is guided.
        """
        self.memory, self.room, self.guide = memory, room, guide
        self.ladder, self.elastic, self.size = ladder, elastic, ladder.size
        self.sequences_per_rank = elastic.sequences_per_rank or sequences_per_rank
        self.index = ladder.position
        """Of this rank's replica in the active group."""
        self.num_generating = ladder.size
        """Replicas that generate; of a group that has detached, those that did when it parted."""
        self.is_released = self.is_detached = False
        self.expert_load: list[int] = []
        """Rows of all ranks that chose each expert until the last shrink."""
        self.finished_elsewhere = 0
        """Responses that ended on ranks of which no more is heard, as far as is known."""
        self.hosted = hosted_at_home(model)
        self.replica_size = ladder.replica_size
        num_ranks = ladder.size * self.replica_size
        self.placement = home_placement(len(self.hosted) * num_ranks, num_ranks)
        self._pushed: list[dist.ProcessGroup] = []

    @property
    def group(self) -> dist.ProcessGroup:
        """Of the active ranks."""
        if self.is_detached:
            assert self.ladder.alone is not None, "the ladder has no groups of one rank"
            return self.ladder.alone
        return self.ladder.groups[self.size]

    @property
    def num_ranks(self) -> int:
        """Ranks that generate, as `num_generating`."""
        return self.num_generating * self.replica_size

    def is_due(self, passes: int) -> bool:
        """Whether a decision follows pass number `passes`."""
        decides = self.elastic.policy != "never" or self.guide is not None
        return decides and self.size > 1 and passes % self.elastic.interval == 0

    def standings(self, batch: LiveBatch, num_finished: int) -> list[Standing]:
        """What each active replica says of itself; one exchange."""
        alive, deviation = self.guide.expected(batch.unfinished()) if self.guide else ((), 0)
        own = Standing(
            unfinished=len(batch.unfinished()),
            kv_tokens=batch.kv_tokens(),
            finished=num_finished,
            waiting_tokens=batch.waiting_tokens(),
            waiting=batch.num_waiting,
            deviation=deviation,
            alive=alive,
        )
        return [Standing.of(told) for told in self.exchange(own.integers())[:: self.replica_size]]

    def decide(self, standings: Sequence[Standing]) -> Step:
        """How many replicas go on, and whether each by itself."""
        hosted = [len(self.placement.hosted_by(rank)) for rank in range(self.size * self.replica_size)]
        rungs = fitting_rungs(self.memory, hosted, standings, self.ladder.rungs, **self._limits)
        if self.guide and self.elastic.policy == "guided" and not self.guide.guidance.explores:
            return self._guided(self.guide, standings, rungs)
        is_guided = self.elastic.policy == "guided"
        size = next_size(
            standings,
            rungs,
            policy="greedy" if is_guided else self.elastic.policy,
            sequences_per_rank=self.sequences_per_rank,
            kv_tokens_per_rank=self.room.tokens,
        )
        stays = size == self.size and not is_guided
        return Step(size=size, parts=stays and self.can_part(standings, size))

    def _guided(self, guide: Guide, standings: Sequence[Standing], rungs: Sequence[int]) -> Step:
        """What the first rank finds. The others would find the same but for the last bits of logarithms, and
        where ranks share cores they would keep it waiting.
        """
        found = [0, 0, 0]
        if self.index == 0:
            may_part = [size for size in (self.size, *rungs) if self.can_part(standings, size)]
            step, seconds = guide.decide(standings, rungs, passes=self.elastic.interval, may_part=may_part)
            found = [step.size, int(step.parts), round(1e6 * seconds)]
        size, parts, microseconds = self.exchange(found)[0]
        guide.seconds_left = microseconds / 1e6
        return Step(size=size, parts=bool(parts))

    def shrink(
        self, size: int, standings: Sequence[Standing], batch: LiveBatch, expert_load: Sequence[int]
    ) -> Arrived:
        """Go on with the first `size` replicas: leavers hand over, stayers take sequences and experts.

        Args:
            expert_load: rows that chose each expert on this rank so far.
        """
        self.expert_load = [sum(each) for each in zip(*self.exchange(list(expert_load)), strict=True)]
        need = self._need(standings, size)
        staying, hostable = size * self.replica_size, self.memory.hostable(need)
        after = shrunk(self.placement, staying, self.expert_load, hostable=hostable)
        self.is_released = leaves = self.index >= size
        if not leaves:
            batch.resize(need.kv_tokens)
        arrived = migrate(
            expert_moves(self.placement, after),
            self._by_rank(hand_over(standings, size)),
            hosted=self.hosted,
            leaving=take_out(batch.give_up(), batch.cache) if leaves else [],
            dtype=batch.cache.dtype,
            group=self.group,
        )
        self.finished_elsewhere += sum(standing.finished for standing in standings[size:])
        self.placement, self.size, self.num_generating = after, size, size
        if not leaves:
            self._enter(arrived)
            batch.adopt(arrived.sequences)
        return arrived

    def rebalance(self, standings: Sequence[Standing], batch: LiveBatch) -> int:
        """Let ranks with room take what waits on others; responses that this rank got."""
        handovers = self.guide.rebalance(standings) if self.guide else []
        if not handovers:
            return 0
        given = sum(each.count for each in handovers if each.source == self.index)
        arrived = migrate(
            [],
            self._by_rank(handovers),
            hosted=self.hosted,
            leaving=take_out(batch.give_waiting(given), batch.cache),
            dtype=batch.cache.dtype,
            group=self.group,
        )
        batch.adopt(arrived.sequences)
        return len(arrived.sequences)

    def can_part(self, standings: Sequence[Standing], size: int) -> bool:
        """Whether so many ranks may go on each by itself."""
        if not self.elastic.detach or size == 1:
            return False
        hostable = self.memory.hostable(need_of_parting(standings, size, **self._limits))
        return detaches(standings, hostable=hostable, num_experts=len(self.placement.hosts_of))

    def detach(self, standings: Sequence[Standing], batch: LiveBatch) -> Arrived:
        """Go on without the others, with all experts, once they have evened out what is left; a rank that has
        nothing leaves at once."""
        handovers = even_out(standings)
        going_on = [index for index, left in enumerate(evened(standings)) if left]
        given = sum(each.count for each in handovers if each.source == self.index)
        leaving = take_out(batch.give_last(given), batch.cache)
        batch.resize(need_of_parting(standings, self.size, **self._limits).kv_tokens)
        arrived = migrate(
            expert_moves(self.placement, spread(self.placement, going_on)),
            handovers,
            hosted=self.hosted,
            leaving=leaving,
            dtype=batch.cache.dtype,
            group=self.group,
        )
        others = (standing for index, standing in enumerate(standings) if index != self.index)
        self.finished_elsewhere += sum(standing.finished for standing in others)
        self.is_released = self.index not in going_on
        self.num_generating = len(going_on)
        if not self.is_released:
            self.placement = Placement(hosts_of=((0,),) * len(self.placement.hosts_of))
            self.is_detached, self.index, self.size = True, 0, 1
            self._enter(arrived)
            batch.adopt(arrived.sequences)
        return arrived

    def _enter(self, arrived: Arrived) -> None:
        self.hosted |= arrived.guests
        self._pushed.append(self.group)
        parallel.enter_expert_group(self.group)

    def close(self) -> None:
        """Go back to the home group and forget the guests."""
        while self._pushed:
            parallel.leave_expert_group(self._pushed.pop())
        self.hosted.clear()

    def _need(self, standings: Sequence[Standing], rung: int) -> Need:
        return need_of_rung(standings, rung, **self._limits)

    @property
    def _limits(self) -> dict[str, int]:
        return {"longest": self.room.sizes[-1], "kv_tokens_per_rank": self.room.tokens}

    def _by_rank(self, handovers: Sequence[Handover]) -> list[Handover]:
        """From replica to replica, as what ranks at this one's place in theirs do."""
        size, place = self.replica_size, self.group.rank() % self.replica_size
        return [
            replace(each, source=each.source * size + place, target=each.target * size + place)
            for each in handovers
        ]

    def exchange(self, values: list[int]) -> list[list[int]]:
        """Every active rank's `values`, by position."""
        return exchange_integers(values, self.group, device.current_device())
