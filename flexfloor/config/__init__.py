"""The typed configuration, one section a package, and how Hydra composes it."""

from flexfloor.config.compose import compose, to_yaml
from flexfloor.config.generate import GenerateConfig
from flexfloor.config.launch import LaunchConfig, ParallelConfig
from flexfloor.config.memory import MemoryConfig
from flexfloor.config.sft import SftConfig
from flexfloor.config.slurm import SlurmConfig
from flexfloor.config.tokenizer import TokenizerConfig
from flexfloor.config.trainer import TrainerConfig
from flexfloor.config.tree import Config
from flexfloor.config.validate import can_validate, finite_numbers, is_rank, validate, world_size

__all__ = [
    "Config",
    "GenerateConfig",
    "LaunchConfig",
    "MemoryConfig",
    "ParallelConfig",
    "SftConfig",
    "SlurmConfig",
    "TokenizerConfig",
    "TrainerConfig",
    "can_validate",
    "compose",
    "finite_numbers",
    "is_rank",
    "to_yaml",
    "validate",
    "world_size",
]
