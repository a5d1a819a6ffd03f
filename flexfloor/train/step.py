"""One optimizer step on one mini-batch, spread over all ranks.

1. every rank holds the whole mini-batch and plans the same micro-batches;
2. each rank runs its own and adds up un-normalised sums, in gradients as in metrics;
3. gradients meet their copies on other ranks and are divided once by the global denominator;
4. clip, step, next learning rate.

Invariants:
- Gradients and metrics do not depend on micro-batch size, order of the samples, or the numbers of
  data-, expert- and tensor-parallel ranks.
- All ranks run the same number of micro-batches; one without rows still meets its peers.
- A mini-batch without a single response token changes nothing.
- A loss that is not finite stops all ranks before the weights change.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import torch
from megatron.core.distributed import DistributedDataParallel, finalize_model_grads
from megatron.core.optimizer import MegatronOptimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from megatron.core.process_groups_config import ProcessGroupCollection

from flexfloor import device, heartbeat
from flexfloor.errors import FlexFloorError
from flexfloor.train.agreement import assert_same_samples
from flexfloor.train.batch import pack
from flexfloor.train.early_part import EarlyPart
from flexfloor.train.forward import forward_logprobs
from flexfloor.train.losses.aggregate import loss_denominator
from flexfloor.train.metrics import TokenSums
from flexfloor.train.objective import Objective
from flexfloor.train.packing import plan_micro_batches
from flexfloor.train.types import Sample

KL_LOSS = "kl_loss"


class TrainStep:
    """Holds what stays from one mini-batch to the next."""

    def __init__(
        self,
        ddp: DistributedDataParallel,
        optimizer: MegatronOptimizer,
        scheduler: OptimizerParamScheduler,
        objective: Objective,
        groups: ProcessGroupCollection,
        *,
        micro_batch_tokens: int,
    ) -> None:
        """Keep references to what `update` moves.

        Args:
            ddp: the model in Megatron's gradient buffers (`build_ddp`).
            optimizer: over its parameters (`build_optimizer`).
            scheduler: of the optimizer (`build_scheduler`).
            objective: what is minimised.
            groups: `groups.dp_cp` shares out a mini-batch, by replica under tensor parallelism; all ranks of
                `groups.tp_dp_cp` hold it.
            micro_batch_tokens: most rows of one forward pass.
        """
        self.ddp = ddp
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.objective = objective
        self.groups = groups
        self.micro_batch_tokens = micro_batch_tokens
        self._rows, self._seconds = 0, 0.0

    def update(self, samples: Sequence[Sample], early: EarlyPart | None = None) -> dict[str, float]:
        """Take one optimizer step; all ranks call this with the same samples in the same order.

        Args:
            early: what has been done of it before all ranks met.

        Returns: metrics under the objective's section, equal on all ranks: the loss, `kl_loss` where the
            objective has one, `entropy`, the loss's own measures, `grad_norm`, `lr` (of this step) and
            `skipped_updates` (1 when there was nothing to train, and then alone).

        Raises:
            FlexFloorError: the loss or the gradient is not finite.
        """
        group, section, early = self.groups.dp_cp, self.objective.section, early or EarlyPart()
        assert_same_samples(samples, self.groups.tp_dp_cp)
        denominator = self.denominator(samples)
        if not denominator:
            assert not early.trained, f"{len(early.trained)} samples trained of a mini-batch without tokens"
            early.settle()
            return {f"{section}/skipped_updates": 1.0}
        left = [sample for sample in samples if sample.key not in early.trained]
        plan = plan_micro_batches([s.num_rows for s in left], group.size(), self.micro_batch_tokens)
        mine = [[left[i] for i in members] for members in plan[group.rank()]]
        if not early.has_begun:
            self.begin()
        early.settle()
        self.accumulate(mine, early.sums)
        sums = early.sums.reduced(group)
        metrics = self._means(sums, denominator)
        self._normalize(early.denominator + sum(map(self.denominator, mine)), denominator)
        metrics |= self._step()
        return {f"{section}/{name}": value for name, value in metrics.items()}

    def denominator(self, samples: Sequence[Sample]) -> int:
        """What these add to the number that their mini-batch's loss is divided by."""
        lengths = [len(sample.response_ids) for sample in samples]
        objective = self.objective
        return loss_denominator(objective.loss_agg_mode, lengths, objective.max_response_length)

    def begin(self) -> None:
        """Let gradients be of a new mini-batch: nothing has been added yet."""
        self.ddp.train()
        self.ddp.zero_grad_buffer()
        # an earlier step left the buffers themselves as gradients; adding to those counts twice
        self.optimizer.zero_grad()

    def accumulate(self, micro_batches: Sequence[list[Sample]], sums: TokenSums) -> None:
        """Add the gradients of this rank's micro-batches, without dividing by anything, and to `sums`."""
        began = time.perf_counter()
        for members in micro_batches:
            heartbeat.beat()
            self._backward(members, sums)
            self._rows += sum(sample.num_rows for sample in members)
        self._seconds += time.perf_counter() - began

    def take_timing(self) -> tuple[int, float]:
        """Rows that this rank has trained since the last call, and the seconds that it took."""
        taken = self._rows, self._seconds
        self._rows, self._seconds = 0, 0.0
        return taken

    def _backward(self, members: list[Sample], sums: TokenSums) -> None:
        objective = self.objective
        batch = pack(members, objective.loss_agg_mode, device.current_device())
        logprobs_N, entropy_N = forward_logprobs(
            self.ddp, batch, objective.temperature, entropy_gradient=objective.entropy_coeff != 0
        )
        token_loss = objective.token_loss(logprobs_N, batch)
        total_N = token_loss.loss_N
        if objective.entropy_coeff:
            total_N = total_N - objective.entropy_coeff * entropy_N
        if objective.kl_loss is not None:
            kl_N = objective.kl_loss(logprobs_N, batch)
            total_N = total_N + objective.kl_loss_coef * kl_N
            sums.add(KL_LOSS, kl_N * batch.weights_N)
        (total_N * batch.weights_N).sum().backward()
        sums.add(objective.loss_name, token_loss.loss_N * batch.weights_N)
        sums.add("tokens", torch.ones_like(entropy_N))
        for name, values_N in {"entropy": entropy_N, **token_loss.measures}.items():
            sums.add(name, values_N)

    def _means(self, sums: dict[str, float], denominator: int) -> dict[str, float]:
        tokens = sums.pop("tokens")
        names = [name for name in (self.objective.loss_name, KL_LOSS) if name in sums]
        losses = {name: sums.pop(name) / denominator for name in names}
        for name, loss in losses.items():
            self._require_finite(name, loss)
        return losses | {name: total / tokens for name, total in sums.items()}

    def _normalize(self, my_denominator: int, denominator: int) -> None:
        """Sum gradients over the ranks that share a parameter and divide by the mini-batch's denominator."""
        # float64: Megatron takes the reciprocal in this type
        total = torch.tensor(my_denominator, dtype=torch.float64, device=device.current_device())
        finalize_model_grads([self.ddp], num_tokens=total, pg_collection=self.groups)
        assert total.item() == denominator, (
            f"ranks trained {total.item()} of {denominator}: samples lost or doubled"
        )

    def _step(self) -> dict[str, float]:
        learning_rate = self.optimizer.param_groups[0]["lr"]
        succeeded, grad_norm, _ = self.optimizer.step()
        assert succeeded, "the optimizer skipped a step"
        self._require_finite("grad_norm", grad_norm)
        self.scheduler.step(increment=1)
        return {"grad_norm": float(grad_norm), "lr": learning_rate, "skipped_updates": 0.0}

    def _require_finite(self, name: str, value: float) -> None:
        if not math.isfinite(value):
            raise FlexFloorError(f"{self.objective.section}/{name} is {value}: the update diverged")
