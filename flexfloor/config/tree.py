"""The whole configuration: one typed section a package, every default on its field."""

from __future__ import annotations

from dataclasses import dataclass, field

from flexfloor.config.generate import GenerateConfig
from flexfloor.config.launch import LaunchConfig, ParallelConfig
from flexfloor.config.memory import MemoryConfig
from flexfloor.config.sft import SftConfig
from flexfloor.config.tokenizer import TokenizerConfig
from flexfloor.config.trainer import TrainerConfig
from flexfloor.data.config import DataConfig
from flexfloor.elastic.config import ElasticConfig
from flexfloor.models.config import ModelConfig
from flexfloor.overlap.config import OverlapConfig
from flexfloor.reward.config import RewardConfig
from flexfloor.rollout.config import RolloutConfig
from flexfloor.schedule.config import ScheduleConfig
from flexfloor.simulate.config import SimulateConfig
from flexfloor.train.config import ActorConfig, AlgorithmConfig


@dataclass(kw_only=True)
class Config:
    """Everything that a run is told. Each section checks itself; `validate` checks them together."""

    launch: LaunchConfig = field(default_factory=LaunchConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    data: DataConfig = field(default_factory=DataConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    elastic: ElasticConfig = field(default_factory=ElasticConfig)
    overlap: OverlapConfig = field(default_factory=OverlapConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    actor: ActorConfig = field(default_factory=ActorConfig)
    sft: SftConfig = field(default_factory=SftConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    generate: GenerateConfig = field(default_factory=GenerateConfig)
    simulate: SimulateConfig = field(default_factory=SimulateConfig)
