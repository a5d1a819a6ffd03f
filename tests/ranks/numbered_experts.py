"""Experts with numbered parameters, as Transformer Engine's grouped layers have them, in plain PyTorch.

Around both products is Megatron's own `TEGroupedMLP`. The products are not Transformer Engine's, which
refuses to build one where there is no CUDA device. They have the same parameters, `weight0` to
`weightN` [out, in], and what Megatron's wrapper of Transformer Engine's product enters into a checkpoint.
"""

import functools

import torch
from megatron.core.dist_checkpointing.utils import replace_prefix_for_sharding
from megatron.core.transformer.mlp import MLPSubmodules
from megatron.core.transformer.moe import experts as megatron_experts
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.utils import make_sharded_tensors_for_checkpoint
from torch import nn

from flexfloor import device
from flexfloor.models import build


def number_experts():
    """Let models that are built from now on have such experts."""
    device.has_grouped_products = lambda: True
    build.use_grouped_experts = use_numbered_experts


def use_numbered_experts(layer):
    """Put them into the specification of a layer with `ElasticMoELayer`."""
    submodules = layer.submodules.mlp.submodules
    products = {"linear_fc1": NumberedColumns, "linear_fc2": NumberedRows}
    if isinstance(submodules.experts, functools.partial):  # 0.19
        inner = megatron_experts.GroupedMLPSubmodules(**products)
        submodules.experts = functools.partial(megatron_experts.TEGroupedMLP, submodules=inner)
    else:
        inner = MLPSubmodules(**products)
        submodules.experts = ModuleSpec(megatron_experts.TEGroupedMLP, submodules=inner)


class Numbered(nn.Module):
    """One product of all experts of a rank."""

    def __init__(self, num_experts, in_channels, out_channels, *, config, pg_collection, **unused):
        super().__init__()
        self.num_experts, self.groups = num_experts, pg_collection
        for place in range(num_experts):
            weight = nn.Parameter(torch.empty(out_channels, in_channels, dtype=config.params_dtype))
            weight.allreduce = config.expert_model_parallel_size == 1
            self.register_parameter(f"weight{place}", weight)
        self.register_load_state_dict_pre_hook(_keep_one_extra_state)

    def get_extra_state(self):
        """Of layers that compute in eight bits, which these do not; a checkpoint has a place for it."""

    def set_extra_state(self, state):
        pass

    def forward(self, rows, rows_per_expert):
        weights = [getattr(self, f"weight{place}") for place in range(self.num_experts)]
        parts = rows.split(rows_per_expert)
        return torch.cat([part @ weight.T for part, weight in zip(parts, weights, strict=True)]), None

    def sharded_state_dict(self, prefix="", sharded_offsets=(), metadata=None):
        """By name here: each weight's part of one tensor of all experts, and its extra state."""
        ep, found = self.groups.ep, {}
        for place in range(self.num_experts):
            number = ep.rank() * self.num_experts + place
            one = make_sharded_tensors_for_checkpoint(
                {f"{place}.weight": getattr(self, f"weight{place}"), f"{place}._extra_state": None},
                "",
                {f"{place}.weight": self.tp_dim},
                (*sharded_offsets, (len(sharded_offsets), number, ep.size() * self.num_experts)),
                tp_group=self.groups.expt_tp,
                dp_cp_group=metadata["dp_cp_group"],
            )
            replace_prefix_for_sharding(one, f"{place}.", prefix)
            for sharded in one.values():
                sharded.replica_id = (*sharded.replica_id[:2], self.groups.expt_dp.rank())
            found[f"{prefix}weight{place}"] = one[f"{place}.weight"]
            found[f"{prefix}_extra_state{place or ''}"] = one[f"{place}._extra_state"]
        return found


def _keep_one_extra_state(module, state, prefix, *unused):
    for place in range(1, module.num_experts):
        state.pop(f"{prefix}_extra_state{place}", None)


class NumberedColumns(Numbered):
    tp_dim = 0


class NumberedRows(Numbered):
    tp_dim = 1
