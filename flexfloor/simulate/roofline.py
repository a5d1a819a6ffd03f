"""How long a pass, a shrink and a token of training take on modelled hardware.

A pass reads weights and cache from memory, multiplies, and exchanges rows between ranks, one after another;
weights are bound by memory or by arithmetic, whichever takes longer (Williams et al., "Roofline", CACM 2009).
Below a least time a pass does not fall: its kernels must be launched. Loads, rungs and groups count replicas,
of `tp` neighbouring ranks each, which cut dense layers and heads among them.

Invariants:
- More memory bandwidth, a faster link or more arithmetic never makes anything slower.
- More rows, joining tokens or context never make a pass faster.
- On one rank nothing is exchanged, and nothing is summed up in replicas of one rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flexfloor.schedule.cost import Number, PassLoad, of_one_rank
from flexfloor.simulate.hardware import Hardware
from flexfloor.simulate.models import ModelShape

TRAIN_FLOPS = 6
"""Of a token and a parameter, forward and backward (Kaplan et al., arXiv 2001.08361, section 2.1)."""
FORWARD_FLOPS = 2
"""Of them forward's, once more for what is recomputed."""
LAYER_SUMS = 2
"""Of a layer's outputs over a replica in a forward pass, as many backward (Shoeybi et al., "Megatron-LM",
arXiv 1909.08053, section 3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLoad(PassLoad):
    """A load that also knows what all replicas have together."""

    total: Number
    """Decoding sequences and joining tokens of all active replicas."""


class Roofline:
    """`schedule.cost.CostModel` of a model on hardware."""

    pass_error = 0.0

    def __init__(
        self, model: ModelShape, hardware: Hardware, *, tp: int = 1, floor_seconds: float | None = None
    ):
        """Args:
        tp: ranks of a replica, all in one node.
        floor_seconds: least time of a pass; not given = the hardware's for each layer.
        """
        self.model, self.hardware, self.tp = model, hardware, tp
        of_layers = hardware.layer_seconds * model.num_layers
        self.floor_seconds = of_layers if floor_seconds is None else floor_seconds
        self._read = hardware.memory_bytes_per_second * hardware.memory_share
        self._flops = hardware.flops_per_second * hardware.decode_flops_share

    def pass_seconds(self, load: PassLoad) -> Number:
        """Of the fullest replica. A load that is no `GroupLoad` is taken as that of every replica."""
        replicas, tokens = np.asarray(load.ranks), np.asarray(load.rows + load.joining)
        total = np.asarray(load.total) if isinstance(load, GroupLoad) else replicas * tokens
        work = (
            self._dense_seconds(tokens)
            + load.context * self.model.kv_bytes_on_rank(self.tp) / self._read
            + self._expert_seconds(replicas * self.tp, total)
            + self._exchange_seconds(replicas * self.tp, tokens / self.tp)
            + LAYER_SUMS * self.model.num_layers * self.sum_seconds(tokens)
        )
        return np.maximum(work, self.floor_seconds)

    def alone_seconds(self, load: PassLoad) -> Number:
        """Of a replica that has parted: those of a group of one."""
        return self.pass_seconds(of_one_rank(load))

    def shrink_seconds(self, before: int, after: int, moved_tokens: Number) -> Number:
        """From `before` to `after` replicas; sequences come from all leavers and go to all stayers alike."""
        bandwidth = self._link(before * self.tp)
        experts = self.guest_bytes(before * self.tp, after * self.tp) / bandwidth
        cached = moved_tokens * self.model.kv_bytes_on_rank(self.tp)
        return self.hardware.switch_seconds + experts + cached / min(after, before - after) / bandwidth

    def train_seconds(self, tokens: float) -> float:
        """Rank-seconds of forward and backward over so many tokens."""
        model, hardware = self.model, self.hardware
        again = FORWARD_FLOPS * model.recomputed_parameters
        flops = (TRAIN_FLOPS * model.active_parameters + again) * tokens
        computing = flops / (hardware.flops_per_second * hardware.train_flops_share)
        # Micro-batches are large: of the sums only their bytes count, on each of the replica's ranks.
        sums = LAYER_SUMS * model.num_layers * (2 + model.recomputed_parameters / model.active_parameters)
        return computing + self.tp * sums * tokens * self._summed_bytes / hardware.node_link_bytes_per_second

    def guest_bytes(self, before: int, after: int) -> float:
        """Experts that the staying rank with most of them gets in a shrink between so many ranks."""
        experts = self.model.num_experts
        return max(0, -(-experts // after) - experts // before) * self.model.expert_bytes

    def one_way_seconds(self, ranks: Number, bytes_out: Number) -> np.ndarray:
        """An all-to-all in which every rank sends so many bytes to experts spread over all ranks alike."""
        ranks = np.asarray(ranks)
        hardware = self.hardware
        inside = np.minimum(ranks, hardware.gpus_per_node)
        near = bytes_out * (inside - 1) / ranks / hardware.node_link_bytes_per_second
        far = bytes_out * (ranks - inside) / ranks / hardware.net_link_bytes_per_second
        latency = np.where(inside < ranks, hardware.net_latency_seconds, hardware.node_latency_seconds)
        # Traffic inside of the node and out of it takes different wires at the same time.
        return np.where(ranks == 1, 0.0, latency + np.maximum(near, far))

    def sum_seconds(self, tokens: Number) -> Number:
        """Rows of so many tokens, summed over the ranks of a replica by an all-reduce in its node."""
        if self.tp == 1:
            return 0.0
        passing = tokens * self._summed_bytes / self.hardware.node_link_bytes_per_second
        return self.hardware.node_latency_seconds + passing

    @property
    def _summed_bytes(self) -> float:
        """That each rank sends to sum up a row in a ring (Patarasuk and Yuan, "Bandwidth optimal all-reduce
        algorithms for clusters of workstations", JPDC 69(2), 2009)."""
        return 2 * (self.tp - 1) / self.tp * self.model.hidden_size * self.model.weight_bytes

    def _dense_seconds(self, tokens: np.ndarray) -> np.ndarray:
        """Of a rank's part of them."""
        parameters = self.model.read_parameters / self.tp
        return np.maximum(
            parameters * self.model.weight_bytes / self._read, 2 * parameters * tokens / self._flops
        )

    def _expert_seconds(self, ranks: np.ndarray, total: np.ndarray) -> np.ndarray:
        """Of the rank that hosts most: it reads those of its experts that any token chose."""
        model = self.model
        hosted = np.ceil(model.num_experts / ranks)
        touched = 1 - (1 - model.top_k / model.num_experts) ** total
        read = hosted * touched * model.expert_bytes / self._read
        routed = total * model.top_k * hosted / model.num_experts
        return np.maximum(read, 2 * routed * model.expert_parameters / self._flops)

    def _exchange_seconds(self, ranks: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Rows to their experts and back, in bfloat16, in each MoE layer.

        Args:
            tokens: that each rank sends.
        """
        model = self.model
        row = model.top_k * model.hidden_size * model.weight_bytes
        return 2 * model.num_moe_layers * self.one_way_seconds(ranks, tokens * row)

    def _link(self, ranks: int) -> float:
        hardware = self.hardware
        if ranks > hardware.gpus_per_node:
            return hardware.net_link_bytes_per_second
        return hardware.node_link_bytes_per_second
