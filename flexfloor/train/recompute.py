"""Log-probabilities of given responses under the current weights, by the path that trains.

Invariants:
- For one mini-batch the plan is that of the update, so before the first optimizer step the ratio
  of the policies is exactly 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.distributed as dist

from flexfloor import device, heartbeat
from flexfloor.train.agreement import assert_same_samples
from flexfloor.train.batch import pack
from flexfloor.train.forward import forward_logprobs
from flexfloor.train.packing import plan_micro_batches
from flexfloor.train.types import Sample


@torch.no_grad()
def compute_logprobs(
    model: torch.nn.Module,
    samples: Sequence[Sample],
    group: dist.ProcessGroup,
    *,
    micro_batch_tokens: int,
    temperature: float,
    replica_size: int = 1,
) -> list[np.ndarray]:
    """Return log pi of each sample's response tokens, float64 [R] each, on every rank.

    Args:
        model: the training model, wrapped or not.
        samples: one mini-batch, the same on every rank of `group`.
        group: shares the work; under tensor parallelism one rank of each replica, or all of them.
        micro_batch_tokens: rows of one forward pass, as in training.
        temperature: what logits are divided by.
        replica_size: neighbouring ranks of `group` that make the same passes.
    """
    assert_same_samples(samples, group)
    share, place = divmod(group.rank(), replica_size)
    rows = [sample.num_rows for sample in samples]
    plan = plan_micro_batches(rows, group.size() // replica_size, micro_batch_tokens)
    model.train()
    bounds = np.cumsum([0] + [len(s.response_ids) for s in samples])
    logprobs = torch.zeros(int(bounds[-1]), dtype=torch.float64, device=device.current_device())
    for members in plan[share]:
        heartbeat.beat()
        batch = pack([samples[i] for i in members], "token-mean", device.current_device())
        logprobs_N, _ = forward_logprobs(model, batch, temperature)
        if not place:
            logprobs[_places(bounds, members).to(logprobs.device)] = logprobs_N.double()
    # each token was computed by one replica, and is 0 on all ranks but its first
    dist.all_reduce(logprobs, group=group)
    return np.split(logprobs.cpu().numpy(), bounds[1:-1]) if samples else []


def _places(bounds: np.ndarray, members: Sequence[int]) -> torch.Tensor:
    """Return where the response tokens of `members` lie among those of all samples, int64 [N]."""
    ranges = [np.arange(bounds[i], bounds[i + 1]) for i in members]
    return torch.from_numpy(np.concatenate([np.empty(0, dtype=np.int64), *ranges]))
