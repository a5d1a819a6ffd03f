"""Words with several values to one list of words for each job, by Hydra's own sweeper.

Invariants:
- Every combination of the values is one job, the last word's values changing fastest.
- A job's label holds what it differs in from the others, and no two jobs have the same.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from hydra import initialize_config_module
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException

from flexfloor.config.compose import CONFIG_MODULE, compose
from flexfloor.config.overrides import parsed
from flexfloor.config.tree import Config
from flexfloor.errors import ConfigError

_MAX_FOLDER_CHARACTERS = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepJob:
    """One combination of a sweep."""

    label: str
    """Its own values, as `name=value,name=value`."""
    config: Config


def sweep(words: list[str], config_dir: Path | None = None) -> list[SweepJob]:
    """One job for each combination of the values in `words`, written as Hydra has it: `a=1,2 b=range(3)`.

    A job's run folder lies in the folder that its settings would have by themselves, and is named by its
    label, so that the same words find the same folders again; so is its experiment.

    Raises:
        ConfigError: a word cannot be meant, none has several values, two jobs are the same, or the settings
            of a job are wrong, which the message names.
    """
    combinations = _combinations(words)
    jobs = [_job(combination, label, config_dir) for label, combination in combinations]
    for name, values in _paths(jobs).items():
        if len(set(values)) < len(values):
            twice = next(value for value in values if values.count(value) > 1)
            raise ConfigError(f"{name} = {twice}: two jobs of the sweep would write there")
    return jobs


def _combinations(words: list[str]) -> list[tuple[str, list[str]]]:
    """Label and words of each job."""
    with initialize_config_module(CONFIG_MODULE, version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        overrides = [parsed(word, loader) for word in words]
        swept = {override.get_key_element() for override in overrides if override.is_sweep_override()}
        if not swept:
            raise ConfigError("-m runs a job for each of several values, written name=a,b; there are none")
        try:
            [batch] = BasicSweeper.split_arguments(overrides, max_batch_size=None)
        except HydraException as error:
            raise ConfigError(f"{' '.join(words)}: {error}") from None
    if not batch:
        raise ConfigError(f"{' '.join(sorted(swept))}: there is no value to run a job for")
    return [(",".join(word for word in job if word.partition("=")[0] in swept), job) for job in batch]


def _job(words: list[str], label: str, config_dir: Path | None) -> SweepJob:
    try:
        trainer = compose(words, config_dir).trainer
        folder = Path(trainer.default_local_dir) / _folder_name(label)
        own = {"default_local_dir": str(folder), "experiment_name": f"{trainer.experiment_name} {label}"}
        named = [f"trainer.{name}={_quoted(value)}" for name, value in own.items()]
        return SweepJob(label=label, config=compose([*words, *named], config_dir))
    except ConfigError as error:
        raise ConfigError(f"job {label}: {error}") from None


def _paths(jobs: list[SweepJob]) -> dict[str, list[str]]:
    """What each job writes, by the setting that says where."""
    return {
        "trainer.default_local_dir": [job.config.trainer.default_local_dir for job in jobs],
        "generate.output": [job.config.generate.output for job in jobs],
    }


def _folder_name(label: str) -> str:
    """`label` where it can be a folder's name, else as much of it as can, and a hash of all of it."""
    name = re.sub(r"[^\w.,=+-]", "_", label)[:_MAX_FOLDER_CHARACTERS]
    return name if name == label else f"{name}-{hashlib.sha256(label.encode()).hexdigest()[:8]}"


def _quoted(text: str) -> str:
    """`text` as a value that Hydra takes as it is."""
    text = re.sub(r"(\\*)'", lambda found: found.group(1) * 2 + r"\'", text)
    text = re.sub(r"(\\+)$", lambda found: found.group(1) * 2, text)
    return "'" + re.sub(r"(\\*)\$\{", lambda found: found.group(1) * 2 + r"\${", text) + "'"
