"""What a rollout says as metrics, under verl's names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flexfloor.elastic.load import violation
from flexfloor.rollout.types import RolloutStats
from flexfloor.stages.rollout import Rollout


def rollout_metrics(rollout: Rollout) -> dict[str, float]:
    """Scores, lengths and the engine's own figures of one training rollout."""
    responses = rollout.responses
    lengths = np.array([len(each.response.token_ids) for each in responses])
    truncated = [each.response.finish_reason == "length" for each in responses]
    scores = [each.result.score for each in responses]
    prompts = {each.prompt.uid: len(each.prompt.token_ids) for each in responses}
    return {
        **spread("critic/score", scores),
        **spread("critic/rewards", scores),
        **_extra_rewards(rollout),
        **spread("response_length", lengths),
        "response_length/p50": float(np.percentile(lengths, 50)),
        "response_length/p90": float(np.percentile(lengths, 90)),
        "response_length/clip_ratio": float(np.mean(truncated)),
        **spread("prompt_length", list(prompts.values())),
        "perf/response_tokens": float(lengths.sum()),
        "perf/total_num_tokens": float(lengths.sum() + sum(len(each.prompt.token_ids) for each in responses)),
        "rollout/prefilled_tokens": float(sum(stats.prefilled_tokens for stats in rollout.stats)),
        "rollout/preemptions": float(sum(stats.preemptions for stats in rollout.stats)),
        "rollout/recomputed_tokens": float(sum(stats.recomputed_tokens for stats in rollout.stats)),
        "rollout/passes": float(max(stats.passes for stats in rollout.stats)),
        "rollout/rank_steps": float(sum(stats.passes for stats in rollout.stats)),
        "rollout/shrinks": float(max(stats.shrinks for stats in rollout.stats)),
        "rollout/shrink_seconds": max(stats.shrink_seconds for stats in rollout.stats),
        "rollout/active_ranks": mean_active_ranks(rollout.stats),
        "rollout/detached_ranks": float(sum(stats.is_detached for stats in rollout.stats)),
        "rollout/moved_sequences": float(sum(stats.moved_sequences for stats in rollout.stats)),
        "rollout/moved_bytes": float(sum(stats.moved_bytes for stats in rollout.stats)),
        "rollout/peak_kv_bytes": float(max(stats.peak_kv_bytes for stats in rollout.stats)),
        **_expert_load(rollout),
    }


def agreement_metrics(
    rollout_logprobs: Sequence[np.ndarray], training_logprobs: Sequence[np.ndarray]
) -> dict[str, float]:
    """How far the sampler's log-probabilities are from the training model's, token by token, in nats."""
    differences = np.concatenate([*rollout_logprobs]) - np.concatenate([*training_logprobs])
    return {
        "rollout_corr/logprob_abs_diff/mean": float(np.abs(differences).mean()),
        "rollout_corr/logprob_abs_diff/max": float(np.abs(differences).max()),
        # the k1 estimate of KL(rollout || training), over tokens that the rollout sampled
        "rollout_corr/kl": float(differences.mean()),
    }


def mean_active_ranks(stats: Sequence[RolloutStats]) -> float:
    """Ranks that generated, averaged over the seconds of the rollout, of all expert groups together."""
    return sum(each.seconds for each in stats) / max(each.seconds for each in stats)


def _expert_load(rollout: Rollout) -> dict[str, float]:
    """The worst and the mean violation of an even load, each as mean and maximum over the MoE layers."""
    by_layer_LE = violation(np.sum([stats.expert_load for stats in rollout.stats], axis=0))
    worst_L, mean_L = by_layer_LE.max(axis=1), by_layer_LE.mean(axis=1)
    return {
        "rollout/moe/max_vio/mean": float(worst_L.mean()),
        "rollout/moe/max_vio/max": float(worst_L.max()),
        "rollout/moe/avg_vio/mean": float(mean_L.mean()),
        "rollout/moe/avg_vio/max": float(mean_L.max()),
    }


def _extra_rewards(rollout: Rollout) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for each in rollout.responses:
        for name, value in each.result.extra.items():
            values.setdefault(name, []).append(value)
    return {f"reward/{name}/mean": float(np.mean(found)) for name, found in values.items()}


def spread(name: str, values: Sequence[float] | np.ndarray) -> dict[str, float]:
    """Mean, maximum and minimum of at least one value as `name`/mean, /max and /min."""
    array = np.asarray(values, dtype=np.float64)
    return {
        f"{name}/mean": float(array.mean()),
        f"{name}/max": float(array.max()),
        f"{name}/min": float(array.min()),
    }
