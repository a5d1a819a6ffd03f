"""From settings to the scenario that they describe, with what a recipe says where they leave it open."""

from __future__ import annotations

from math import gcd
from pathlib import Path

from flexfloor.checks import require
from flexfloor.config import Config
from flexfloor.doctor.memory import GpuMemory, gpu_memory
from flexfloor.simulate.hardware import HARDWARE
from flexfloor.simulate.lengths import DrawnLengths, LengthTrace
from flexfloor.simulate.models import MODELS, ModelShape, shape_of
from flexfloor.simulate.recorded import RecordedLengths
from flexfloor.simulate.scenario import Scenario

GIB = 2**30


def scenario_of(config: Config) -> Scenario:
    """What `config.simulate` describes.

    Raises:
        ConfigError: what does not fit together, or into a GPU's memory, with the field's name.
        DataError: a file of lengths that cannot be read.
    """
    asked = config.simulate
    model = _model(config)
    ep = asked.ep or gcd(asked.num_gpus, model.num_experts)
    divides = f"that simulate.ep = {ep} divides"
    require(asked.num_gpus % ep == 0, "simulate.num_gpus", asked.num_gpus, f"a number of GPUs {divides}")
    has = model.num_experts % ep == 0
    require(has, "simulate.model", asked.model, f"a model with a number of experts {divides}")
    rungs = asked.rungs or _rungs_of_recipe(config, ep)
    allowed = f"sizes below the expert group's {ep} ranks"
    require(all(rung < ep for rung in rungs), "simulate.rungs", rungs, allowed)
    is_recipe = asked.model is None
    scenario = Scenario(
        model=model,
        hardware=HARDWARE[asked.hardware],
        num_gpus=asked.num_gpus,
        ep=ep,
        trace=_trace(config),
        prompt_tokens=_given(asked.prompt_tokens, config.data.max_prompt_length),
        max_live=_given(asked.max_live_sequences, config.rollout.max_live_sequences),
        most_joining=asked.max_joining_tokens,
        usable_share=asked.memory_share,
        interval=_given(asked.interval, config.elastic.interval),
        rungs=tuple(sorted(rungs)) or None,
        floor_seconds=asked.step_floor_seconds,
        overlap=asked.overlap,
        held=_held(config, ep) if asked.holds_training else None,
        cache_bytes=config.rollout.kv_budget_bytes if is_recipe else None,
    )
    assert scenario.room
    return scenario


def recipe_memory(config: Config, ep: int) -> GpuMemory:
    """What a run of the recipe would hold on each of the modelled GPUs.

    Args:
        ep: ranks of an expert group.
    """
    vocab_size = config.model.vocab_size or config.simulate.vocab_size
    return gpu_memory(config, vocab_size=vocab_size, world_size=config.simulate.num_gpus, ep=ep)


def _held(config: Config, ep: int) -> GpuMemory:
    """Raises ConfigError where it is more than a GPU has."""
    asked, held = config.simulate, recipe_memory(config, ep)
    budget = HARDWARE[asked.hardware].memory_bytes * asked.memory_share
    allowed = (
        f"false, or simulate.hardware with more memory: {held.most / GIB:.1f} GiB are needed on each GPU, "
        f"and {asked.hardware} has {budget / GIB:.1f} to give"
    )
    require(held.most <= budget, "simulate.holds_training", asked.holds_training, allowed)
    return held


def _rungs_of_recipe(config: Config, ep: int) -> list[int]:
    of_recipe = config.elastic.rungs if config.simulate.model is None else []
    return [rung for rung in of_recipe if rung < ep]


def _model(config: Config) -> ModelShape:
    asked = config.simulate
    if asked.model is not None:
        return MODELS[asked.model]
    vocab_size = config.model.vocab_size or asked.vocab_size
    return shape_of("the recipe's model", config.model, vocab_size, config.actor.recompute)


def _trace(config: Config) -> LengthTrace:
    asked, lengths = config.simulate, config.simulate.lengths
    cap = _given(lengths.cap, config.data.max_response_length)
    if lengths.path is not None:
        recorded = RecordedLengths(Path(lengths.path), cap)
        allowed = f"at most the {len(recorded.steps)} steps of {lengths.path}"
        require(asked.epochs <= len(recorded.steps), "simulate.epochs", asked.epochs, allowed)
        return recorded
    return DrawnLengths(
        num_prompts=_given(asked.num_prompts, config.data.train_batch_size),
        num_responses=_given(asked.n, config.rollout.n),
        median=lengths.median,
        p90_over_p50=lengths.p90_over_p50,
        cap=cap,
        cap_share=lengths.cap_share,
        seed=lengths.seed,
    )


def _given(asked: int | None, of_recipe: int) -> int:
    return of_recipe if asked is None else asked
