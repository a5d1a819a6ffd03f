"""What is simulated: a model on a cluster, a batch, and how it is generated."""

from __future__ import annotations

from dataclasses import dataclass

from flexfloor.doctor.memory import GpuMemory
from flexfloor.elastic.config import ElasticConfig
from flexfloor.elastic.floor import Need, RankMemory
from flexfloor.overlap.config import OverlapConfig, may_detach
from flexfloor.simulate.admit import Admit, NearFuture, Paged, Reserved
from flexfloor.simulate.hardware import Hardware
from flexfloor.simulate.lengths import LengthTrace
from flexfloor.simulate.memory import cache_tokens, modelled_memory
from flexfloor.simulate.models import ModelShape
from flexfloor.simulate.roofline import Roofline


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The same for every policy."""

    model: ModelShape
    hardware: Hardware
    num_gpus: int
    ep: int
    """Ranks of an expert group; divides `num_gpus`."""
    tp: int = 1
    """Ranks of a replica; divides `ep`."""
    trace: LengthTrace
    prompt_tokens: int
    max_live: int = 256
    """Sequences of a replica."""
    most_joining: int = 8192
    """Tokens of joining responses in one pass of a replica."""
    usable_share: float = 0.85
    """Of the GPU's memory that generation may take."""
    interval: int = 64
    """Passes from one decision to the next."""
    rungs: tuple[int, ...] | None = None
    """Replicas that a group may shrink to; None = powers of two, and those midway."""
    floor_seconds: float | None = None
    """Least time of a pass; None = the hardware's."""
    overlap: bool = True
    """Released ranks train finished groups beside generation."""
    detach: bool | None = None
    """Ranks may part (`elastic.detach`); None = those of guided groups, if none trains beside generation."""
    held: GpuMemory | None = None
    """What a run keeps on each GPU beside weights and cache; None = training state lies elsewhere."""
    cache_bytes: int | None = None
    """Most that a rank's cache may take; None = what is left."""

    @property
    def num_replicas(self) -> int:
        """Of the cluster."""
        return self.num_gpus // self.tp

    @property
    def group_size(self) -> int:
        """Replicas of an expert group."""
        return self.ep // self.tp

    @property
    def longest(self) -> int:
        """Tokens of the greatest sequence that may be."""
        return self.prompt_tokens + self.trace.cap

    @property
    def memory(self) -> RankMemory:
        """Of each rank."""
        training = self.held.training if self.held else 0
        return modelled_memory(self.model, self.hardware, self.ep, self.usable_share, training, tp=self.tp)

    @property
    def room(self) -> int:
        """Tokens that a rank's cache may hold in the whole group; ConfigError when not even one sequence."""
        rows = self.group_size * (self.max_live + self.most_joining)
        need = Need(sequences=self.max_live, kv_tokens=0, rows=rows)
        room = cache_tokens(self.memory, self.model, self.ep, need, self.longest)
        if self.cache_bytes is None:
            return room
        return min(room, self.cache_bytes // self.model.kv_bytes_on_rank(self.tp))

    @property
    def cost(self) -> Roofline:
        """Times on the hardware."""
        return Roofline(self.model, self.hardware, tp=self.tp, floor_seconds=self.floor_seconds)

    def __post_init__(self) -> None:
        assert not (self.detach and (self.overlap or self.tp > 1)), (self.overlap, self.tp)

    def may_part(self, shrink: str) -> bool:
        """Whether ranks of groups that shrink by this policy may part, where memory allows it."""
        elastic = ElasticConfig(policy=shrink, detach=self.detach)
        overlap = OverlapConfig(mode="on" if self.overlap else "off")
        return shrink != "never" and may_detach(overlap, elastic, self.ep, self.tp)

    def open_rungs(self) -> tuple[int, ...]:
        """Replicas that a group may shrink to, ascending."""
        if self.rungs is not None:
            return self.rungs
        powers = [2**power for power in range(self.group_size.bit_length())]
        return tuple(sorted(rung for each in powers for rung in (each, 3 * each) if rung < self.group_size))

    def admit(self, admission: str) -> Admit:
        """A policy's rule of admission."""
        if admission == "reserved":
            return Reserved(self.longest)
        return NearFuture(self.trace.cap) if admission == "near_future" else Paged()
