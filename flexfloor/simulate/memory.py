"""What a modelled rank holds, and how many tokens its cache may have: the arithmetic of `elastic.floor`.

Invariants:
- Weights, cache and workspace of a rank of the whole group are within the budget.
"""

from __future__ import annotations

from flexfloor.checks import require
from flexfloor.elastic.floor import Need, RankMemory
from flexfloor.simulate.hardware import Hardware
from flexfloor.simulate.models import ModelShape

SAMPLING_BYTES = 10
"""Of one logit: in bfloat16 and, while it is sampled, twice in float32."""


def modelled_memory(
    model: ModelShape,
    hardware: Hardware,
    ep: int,
    usable_share: float,
    training: int = 0,
    *,
    tp: int = 1,
) -> RankMemory:
    """Bytes on each rank.

    The rows of a pass are spread over the ranks by an all-to-all, so that each has its share of them beside
    all of its replica's own.

    Args:
        ep: ranks of an expert group.
        usable_share: of the GPU's memory that may be taken; the rest is what the model does not count.
        training: bytes that training keeps on the GPU meanwhile; 0 where its state lies elsewhere.
        tp: ranks of a replica, which cut its dense weights and heads.
    """
    return RankMemory(
        budget=int(usable_share * hardware.memory_bytes),
        dense=model.dense_bytes // tp,
        expert=model.expert_bytes,
        training=training,
        kv_token=model.kv_bytes_on_rank(tp),
        row=(4 * model.hidden_size * tp + model.expert_row_numbers) * model.weight_bytes // ep,
        logits=SAMPLING_BYTES * model.vocab_size,
    )


def cache_tokens(memory: RankMemory, model: ModelShape, ep: int, need: Need, longest: int) -> int:
    """Tokens that the cache of a rank of the whole group may hold beside its experts.

    Args:
        ep: ranks of the group.
        need: of the rank but for its cache; as many sequences as may be live.
        longest: tokens of the greatest sequence.

    Raises ConfigError when that is less than one sequence.
    """
    left = memory.budget - memory.needed(model.num_experts // ep, need)
    tokens = left // memory.kv_token
    allowed = (
        f"more, for {model.name}, or simulate.hardware with more memory: weights and workspace leave "
        f"{left / 1e9:.1f} GB of a rank's {memory.budget / 1e9:.1f} GB for its cache, and one sequence of "
        f"{longest} tokens takes {longest * memory.kv_token / 1e9:.1f} GB"
    )
    require(tokens >= longest, "simulate.ep", ep, allowed)
    return min(tokens, need.sequences * longest)
