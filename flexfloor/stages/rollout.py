"""A rollout as a stage of a step: generate on all ranks, score meanwhile, gather everywhere.

Each rank scores its own responses in threads while it generates; those of a replica are its first rank's.
What all ranks generated is gathered before a failed reward is raised, so that it can be saved.

Invariants:
- Every rank gets the same responses, in the order of (prompt, response index).
- A reward that fails on one rank is raised on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch.distributed as dist

from flexfloor.data.responses import SavedResponse, write_responses
from flexfloor.data.tokenizer import decode_response
from flexfloor.data.types import Prompt
from flexfloor.elastic.reunion import meet
from flexfloor.errors import RewardError
from flexfloor.overlap.result import EarlyResult
from flexfloor.reward.pool import RewardPool
from flexfloor.reward.types import RewardResult
from flexfloor.rollout.config import SamplingConfig
from flexfloor.rollout.types import PassProgress, Request, Response, RolloutStats
from flexfloor.schedule.beliefs import Beliefs
from flexfloor.stages.replay import Lengths
from flexfloor.worker import Worker

if TYPE_CHECKING:
    from flexfloor.stages.early_update import EarlyUpdate


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredResponse:
    """A response with its prompt, its text and its score."""

    prompt: Prompt
    response: Response
    text: str
    result: RewardResult

    def saved(self) -> SavedResponse:
        """As a line of a responses file."""
        return _saved(self.prompt, self.response, self.text, self.result)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """All responses of a rollout and what each rank did for it."""

    responses: list[ScoredResponse]
    """In the order of (prompt, response index)."""
    stats: list[RolloutStats]
    """By rank."""
    beliefs: Beliefs
    """Of the prompts' lengths, in their order, before the rollout."""
    early: EarlyResult
    """What released ranks have trained of it meanwhile."""


def roll_out(
    worker: Worker,
    prompts: Sequence[Prompt],
    *,
    n: int,
    sampling: SamplingConfig,
    seed: str,
    rescue_path: Path,
    forced: Lengths | None = None,
    on_pass: Callable[[PassProgress], None] | None = None,
    on_shrink: Callable[[], AbstractContextManager[None]] = nullcontext,
    on_generated: Callable[[RolloutStats], None] | None = None,
    on_free: Callable[[], None] | None = None,
    early: EarlyUpdate | None = None,
) -> Rollout:
    """Generate and score `n` responses to each prompt; all ranks call it with the same prompts.

    Args:
        seed: of the sampled tokens.
        rescue_path: jsonl file for what was generated when a reward fails.
        forced: lengths that responses are to have, whatever is sampled.
        on_pass: called before each pass with the group's progress.
        on_shrink: opened around each shrink of the expert group.
        on_generated: called when this rank has generated or was released, and waits for scores and others.
        on_free: called when nobody needs this rank's weights for the rollout any more.
        early: what released ranks do meanwhile.

    Raises RewardError on every rank when a reward failed on one.
    """
    reward = worker.config.reward
    pool = RewardPool(worker.scorer, num_workers=reward.num_workers, timeout_seconds=reward.timeout_seconds)
    by_uid = {prompt.uid: prompt for prompt in prompts}
    texts: dict[tuple[str, int], str] = {}

    def score(response: Response) -> None:
        text = decode_response(worker.tokenizer, response.token_ids)
        texts[response.uid, response.response_index] = text
        if early:
            early.finished(response)
        pool.submit(by_uid[response.uid], response.response_index, text, response.finish_reason)

    if early:
        early.listen(pool.newly_scored)
    beliefs = worker.planner.predict(prompts)
    forced = forced or {}
    # Rank 0's plan: predictions differ in their last bit from one kind of processor to another.
    plan = [worker.planner.deal(prompts, beliefs, n, forced)]
    dist.broadcast_object_list(plan, src=0)
    dealt = plan[0][worker.layout.dp_rank]
    responses, stats = worker.engine.generate(
        [_request(worker, prompts[index], response_index, forced) for index, response_index in dealt],
        seed=seed,
        sampling=sampling,
        on_finished=score,
        on_pass=on_pass,
        on_shrink=on_shrink,
        guidance=worker.planner.guidance(
            prompts, beliefs, forced, fewest_early=early.fewest if early else None
        ),
        releases=early,
    )
    if on_generated:
        on_generated(stats)
    if early:
        early.generated(stats)
    elif on_free:
        on_free()
    results, failure = _collect(pool)
    if worker.engine.elastic.policy != "never":
        meet()
    if early:
        early.met()
        if on_free:
            on_free()
    mine = [(response, texts[_key(response)], results.get(_key(response))) for response in responses]
    told: list = [None] * worker.layout.world_size
    dist.all_gather_object(told, (mine, stats, failure, early.told() if early else EarlyResult()))
    if early:
        early.close()
    order = {prompt.uid: index for index, prompt in enumerate(prompts)}
    generated = sorted(
        (each for rank_responses, *_ in told for each in rank_responses),
        key=lambda each: (order[each[0].uid], each[0].response_index),
    )
    failures = sorted(failure for _, _, failure, _ in told if failure)
    if failures:
        if worker.layout.rank == 0:
            write_responses(rescue_path, [_saved(by_uid[each[0].uid], *each) for each in generated])
        raise RewardError(f"{failures[0]}\nwhat was generated is in {rescue_path}")
    return Rollout(
        beliefs=beliefs,
        responses=[
            ScoredResponse(prompt=by_uid[response.uid], response=response, text=text, result=result)
            for response, text, result in generated
        ],
        stats=[each for _, each, *_ in told],
        early=EarlyResult.of_all([each for *_, each in told]),
    )


def _request(worker: Worker, prompt: Prompt, response_index: int, forced: Lengths) -> Request:
    return Request(
        uid=prompt.uid,
        response_index=response_index,
        prompt_ids=prompt.token_ids,
        max_new_tokens=worker.config.data.max_response_length,
        forced_length=forced.get((prompt.uid, response_index)),
    )


def _key(response: Response) -> tuple[str, int]:
    return response.uid, response.response_index


def _collect(pool: RewardPool) -> tuple[dict[tuple[str, int], RewardResult], str | None]:
    try:
        return pool.collect(), None
    except RewardError as error:
        return pool.scored(), str(error)
    finally:
        pool.close()


def _saved(prompt: Prompt, response: Response, text: str, result: RewardResult | None) -> SavedResponse:
    return SavedResponse(
        uid=prompt.uid,
        data_source=prompt.data_source,
        response_index=response.response_index,
        prompt=prompt.text,
        response=text,
        finish_reason=response.finish_reason,
        score=None if result is None else result.score,
        ground_truth=prompt.ground_truth,
    )
