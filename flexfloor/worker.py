"""What one rank of a run consists of: its place, its data, its share of the model, its engine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from megatron.core.distributed import DistributedDataParallel
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.process_groups_config import ProcessGroupCollection

from flexfloor import heartbeat, parallel
from flexfloor.config import Config
from flexfloor.data.prompts import load_prompts
from flexfloor.data.tokenizer import decode_tokens, embedding_rows, load_tokenizer, num_tokens
from flexfloor.data.types import Prompt
from flexfloor.data.uid import fingerprint
from flexfloor.device import is_cpu_host
from flexfloor.elastic.ladder import Ladder, make_ladder
from flexfloor.errors import DataError
from flexfloor.models.build import build_model
from flexfloor.overlap.config import is_wanted, may_detach
from flexfloor.parallel import Layout
from flexfloor.reward.load import load_scorer
from flexfloor.reward.types import Scorer
from flexfloor.rollout.engine import RolloutEngine
from flexfloor.stages.memory import explaining_shortage
from flexfloor.stages.planner import Planner
from flexfloor.stages.resume import will_resume
from flexfloor.train import random_state
from flexfloor.train.optimizer import build_ddp
from flexfloor.train.resident import training_bytes

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One rank of a run."""

    config: Config
    layout: Layout
    groups: ProcessGroupCollection
    tokenizer: PreTrainedTokenizerBase
    prompts: dict[str, list[Prompt]]
    """By split, `train` and `val`; the same on every rank."""
    scorer: Scorer
    model: GPTModel
    """For generation; its parameters are those that `ddp` trains."""
    ddp: DistributedDataParallel
    engine: RolloutEngine
    planner: Planner

    @property
    def model_identity(self) -> dict[str, Any]:
        """What a checkpoint says about its model, and a run that goes on from it must agree with."""
        return {
            **self.config.model.identity(),
            "vocab_size": embedding_rows(self.config.model.vocab_size, self.tokenizer),
        }


def set_up(config: Config) -> Worker:
    """Build this rank's part of the run; all ranks call it."""
    with heartbeat.stage("set-up"), explaining_shortage("set-up", config):
        return _set_up(config)


def _set_up(config: Config) -> Worker:
    layout = parallel.initialize(
        ep_size=config.parallel.ep,
        tp_size=config.parallel.tp,
        pp_size=config.parallel.pp,
        seed=config.trainer.seed,
        timeout_seconds=config.launch.timeout_seconds,
    )
    random_state.seed(config.trainer.seed, layout.rank)
    groups = parallel.groups()
    # How long data and weights take depends on how much there is.
    with heartbeat.allow(config.launch.timeout_seconds):
        tokenizer = load_tokenizer(config.tokenizer.path)
        prompts = {split: load_prompts(config.data, tokenizer, split) for split in ("train", "val")}
    _require_same_prompts(prompts)
    with heartbeat.allow(config.launch.timeout_seconds):
        model = build_model(
            config.model,
            vocab_size=embedding_rows(config.model.vocab_size, tokenizer),
            num_tokens=num_tokens(tokenizer),
            max_sequence_length=config.data.max_prompt_length + config.data.max_response_length,
            groups=groups,
            seed=config.trainer.seed,
            take_weights=not will_resume(config.trainer),
            recompute=config.actor.recompute,
        )
    ddp, engine = build_ddp(model, groups), _engine(config, groups, model, tokenizer)
    engine.require_memory(config.data.max_prompt_length + config.data.max_response_length)
    return Worker(
        config=config,
        layout=layout,
        groups=groups,
        tokenizer=tokenizer,
        prompts=prompts,
        scorer=load_scorer(config.reward, [*prompts["train"], *prompts["val"]]),
        model=model,
        ddp=ddp,
        engine=engine,
        planner=Planner(config, layout),
    )


def _engine(
    config: Config, groups: ProcessGroupCollection, model: GPTModel, tokenizer: PreTrainedTokenizerBase
) -> RolloutEngine:
    return RolloutEngine(
        model,
        group=groups.ep,
        tp_group=groups.tp,
        rollout=config.rollout,
        eos_id=tokenizer.eos_token_id,
        decode=partial(decode_tokens, tokenizer),
        elastic=replace(config.elastic, detach=_detaches(config)),
        ladder=_ladder(config, groups),
        budget_bytes=config.memory.budget_bytes,
        training_bytes=_training_bytes(config, model),
    )


def _training_bytes(config: Config, model: GPTModel) -> int:
    """That training keeps on this rank; its optimizer and reference policy are made after the engine."""
    world, on_cpu = dist.get_world_size(), is_cpu_host()
    return training_bytes(
        model,
        dense_copies=1 if on_cpu else world // config.parallel.tp,
        expert_copies=1 if on_cpu else world // config.parallel.ep,
        keeps_optimizer=on_cpu or not config.actor.offload_optimizer,
        keeps_reference=on_cpu and (config.actor.use_kl_loss or config.algorithm.use_kl_in_reward),
    )


def _detaches(config: Config) -> bool:
    return may_detach(config.overlap, config.elastic, config.parallel.ep, config.parallel.tp)


def _ladder(config: Config, groups: ProcessGroupCollection) -> Ladder | None:
    if config.elastic.policy == "never":
        return None
    elastic, timeout_seconds = config.elastic, config.launch.timeout_seconds
    return make_ladder(
        groups.ep,
        elastic.rungs,
        timeout_seconds=timeout_seconds,
        replica_size=config.parallel.tp,
        alone=_detaches(config),
        suffixes=is_wanted(config.overlap, elastic, config.parallel.ep, config.parallel.tp),
    )


def _require_same_prompts(prompts: dict[str, list[Prompt]]) -> None:
    prints: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(prints, fingerprint([*prompts["train"], *prompts["val"]]))
    if len(set(prints)) > 1:
        odd = next(rank for rank, found in enumerate(prints) if found != prints[0])
        raise DataError(
            f"rank {odd} has other prompts than rank 0: the data files differ, or a generated task follows "
            "the order of sets; start every rank with PYTHONHASHSEED=0"
        )
