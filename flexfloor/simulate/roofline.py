"""How long a pass, a shrink and a token of training take on modelled hardware.

A pass reads weights and cache from memory, multiplies, and exchanges rows between ranks, one after another;
weights are bound by memory or by arithmetic, whichever takes longer (Williams et al., "Roofline", CACM 2009).
Below a least time a pass does not fall: its kernels must be launched.

Invariants:
- More memory bandwidth, a faster link or more arithmetic never makes anything slower.
- More rows, joining tokens or context never make a pass faster.
- On one rank nothing is exchanged.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLoad(PassLoad):
    """A load that also knows what all ranks have together."""

    total: Number
    """Decoding sequences and joining tokens of all active ranks."""


class Roofline:
    """`schedule.cost.CostModel` of a model on hardware."""

    def __init__(self, model: ModelShape, hardware: Hardware, *, floor_seconds: float | None = None):
        """Args:
        floor_seconds: least time of a pass; not given = the hardware's for each layer.
        """
        self.model, self.hardware = model, hardware
        of_layers = hardware.layer_seconds * model.num_layers
        self.floor_seconds = of_layers if floor_seconds is None else floor_seconds
        self._read = hardware.memory_bytes_per_second * hardware.memory_share
        self._flops = hardware.flops_per_second * hardware.decode_flops_share

    def pass_seconds(self, load: PassLoad) -> Number:
        """Of the fullest rank. A load that is no `GroupLoad` is taken as that of every rank."""
        ranks, tokens = np.asarray(load.ranks), np.asarray(load.rows + load.joining)
        total = np.asarray(load.total) if isinstance(load, GroupLoad) else ranks * tokens
        work = (
            self._dense_seconds(tokens)
            + load.context * self.model.kv_token_bytes / self._read
            + self._expert_seconds(ranks, total)
            + self._exchange_seconds(ranks, tokens)
        )
        return np.maximum(work, self.floor_seconds)

    def alone_seconds(self, load: PassLoad) -> Number:
        """Of a rank that has parted: those of a group of one."""
        return self.pass_seconds(of_one_rank(load))

    def shrink_seconds(self, before: int, after: int, moved_tokens: Number) -> Number:
        """From `before` to `after` ranks; sequences come from all leavers and go to all stayers alike."""
        bandwidth = self._link(before)
        experts = self.guest_bytes(before, after) / bandwidth
        caches = moved_tokens * self.model.kv_token_bytes / min(after, before - after) / bandwidth
        return self.hardware.switch_seconds + experts + caches

    def train_seconds(self, tokens: float) -> float:
        """Forward and backward over so many tokens on one rank."""
        again = FORWARD_FLOPS * self.model.recomputed_parameters
        flops = (TRAIN_FLOPS * self.model.active_parameters + again) * tokens
        return flops / (self.hardware.flops_per_second * self.hardware.train_flops_share)

    def guest_bytes(self, before: int, after: int) -> float:
        """Experts that the stayer with most of them gets in a shrink."""
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

    def _dense_seconds(self, tokens: np.ndarray) -> np.ndarray:
        parameters = self.model.read_parameters
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
        """Rows to their experts and back, in bfloat16, in each MoE layer."""
        model = self.model
        row = model.top_k * model.hidden_size * model.weight_bytes
        return 2 * model.num_moe_layers * self.one_way_seconds(ranks, tokens * row)

    def _link(self, ranks: int) -> float:
        hardware = self.hardware
        if ranks > hardware.gpus_per_node:
            return hardware.net_link_bytes_per_second
        return hardware.node_link_bytes_per_second
