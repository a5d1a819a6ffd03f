"""From settings to the scenario that they describe, with what a recipe says where they leave it open."""

from __future__ import annotations

from dataclasses import replace
from math import gcd
from pathlib import Path

from flexfloor.checks import require
from flexfloor.config import Config
from flexfloor.doctor.memory import GpuMemory, gpu_memory
from flexfloor.models.tp_fit import check_tp_fit
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
    ep, tp = _group_ranks(config, model), _replica_ranks(config)
    _check_replicas(config, model, ep, tp)
    rungs = _rungs(config, ep // tp, "ranks" if tp == 1 else "replicas")
    is_recipe, detach = asked.model is None, _detach(config, tp)
    scenario = Scenario(
        model=model,
        hardware=HARDWARE[asked.hardware],
        num_gpus=asked.num_gpus,
        ep=ep,
        tp=tp,
        trace=_trace(config),
        prompt_tokens=_given(asked.prompt_tokens, config.data.max_prompt_length),
        max_live=_given(asked.max_live_sequences, config.rollout.max_live_sequences),
        most_joining=asked.max_joining_tokens,
        usable_share=asked.memory_share,
        interval=_given(asked.interval, config.elastic.interval),
        rungs=tuple(sorted(rungs)) or None,
        floor_seconds=asked.step_floor_seconds,
        overlap=asked.overlap and not detach and not (is_recipe and config.overlap.mode == "off"),
        detach=detach,
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
    as_simulated = replace(config, parallel=replace(config.parallel, ep=ep, tp=_replica_ranks(config)))
    return gpu_memory(as_simulated, vocab_size=vocab_size, world_size=config.simulate.num_gpus, ep=ep)


def _group_ranks(config: Config, model: ModelShape) -> int:
    asked = config.simulate
    ep = asked.ep or gcd(asked.num_gpus, model.num_experts)
    divides = f"that simulate.ep = {ep} divides"
    require(asked.num_gpus % ep == 0, "simulate.num_gpus", asked.num_gpus, f"a number of GPUs {divides}")
    has = model.num_experts % ep == 0
    require(has, "simulate.model", asked.model, f"a model with a number of experts {divides}")
    return ep


def _replica_ranks(config: Config) -> int:
    return _given(config.simulate.tp, config.parallel.tp if config.simulate.model is None else 1)


def _detach(config: Config, tp: int) -> bool | None:
    asked, name = config.simulate.detach, "simulate.detach"
    if asked is None and config.simulate.model is None:
        asked, name = config.elastic.detach, "elastic.detach"
    require(not asked or tp == 1, name, asked, f"false with replicas of {tp} ranks, which cannot part")
    return asked


def _check_replicas(config: Config, model: ModelShape, ep: int, tp: int) -> None:
    """Raise ConfigError unless replicas of `tp` ranks make up groups of `ep`, and share `model` evenly."""
    name = "parallel.tp" if config.simulate.tp is None else "simulate.tp"
    in_node = HARDWARE[config.simulate.hardware].gpus_per_node
    require(ep % tp == 0, name, tp, f"a divisor of simulate.ep = {ep}, for groups of whole replicas")
    require(in_node % tp == 0, name, tp, f"a divisor of the {in_node} GPUs of a node")
    heads = model.kv_heads or tp
    require(heads % tp == 0, name, tp, f"a divisor of the {heads} key/value heads of {model.name}")
    if config.simulate.model is None:
        check_tp_fit(config.model, tp)


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


def _rungs(config: Config, size: int, unit: str) -> list[int]:
    """Of the settings, else those of the recipe that are below `size`, the whole group in `unit`."""
    asked = config.simulate
    of_recipe = config.elastic.rungs if asked.model is None else []
    rungs = asked.rungs or [rung for rung in of_recipe if rung < size]
    allowed = f"sizes below the expert group's {size} {unit}"
    require(all(rung < size for rung in rungs), "simulate.rungs", rungs, allowed)
    return rungs


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
