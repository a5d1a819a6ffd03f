"""Tokens to experts and back in two collectives, when the number of rows on each rank is known.

Every rank sends its rows with their routing to all ranks of the group; each computes the rows that
chose an expert it hosts and returns one partial sum a row, which the sender adds up in rank order.
No counts are exchanged in a layer and nothing is padded. A row travels to all of the P - 1 other
ranks instead of at most K of them, so bytes grow by P / K over a sparse dispatch: right for the small
groups and few rows of decoding, where latency rules. Where an expert has several hosts, the nearest to a
row's owner computes it.

Shapes: T rows of this rank, A rows of all ranks, K experts of a row, E experts, H hidden, P ranks.

Invariants:
- A row's routing is computed once, by its owner, so all ranks agree on it to the bit.
- Sums over ranks are taken in rank order, so that they do not depend on who finished first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from flexfloor.elastic.placement import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCounts:
    """Rows of each rank of the group in the coming pass, and where they find their experts."""

    group: dist.ProcessGroup
    counts: tuple[int, ...]
    own: int
    """Index of this rank in the group."""
    host_of: tuple[int, ...]
    """By expert: the index of the rank that this rank's rows find it on."""
    elsewhere_PE: Tensor | None = None
    """Whether another rank computes the expert for rows of the rank; None = for none that is hosted here."""

    def can_reach(self, expert_TK: Tensor) -> bool:
        """Whether ranks of the group host all of these experts."""
        size = len(self.counts)
        if max(self.host_of) < size:  # known without a look at the device
            return True
        return all(self.host_of[expert] < size for expert in set(expert_TK.flatten().tolist()))


def row_counts(
    placement: Placement, counts: Sequence[int], *, own: int, group: dist.ProcessGroup, device: torch.device
) -> RowCounts:
    """The rows of a pass under `placement`, of which each rank of `group` has so many."""
    elsewhere_PE = None
    if any(len(hosts) > 1 for hosts in placement.hosts_of):
        nearest = [placement.nearest(index) for index in range(len(counts))]
        elsewhere_PE = torch.tensor(nearest, device=device) != own
    host_of = placement.nearest(own)
    return RowCounts(group=group, counts=tuple(counts), own=own, host_of=host_of, elsewhere_PE=elsewhere_PE)


def exchange_integers(values: list[int], group: dist.ProcessGroup, device: torch.device) -> list[list[int]]:
    """Every rank's `values`, in rank order; one collective."""
    size = group.size()
    if size == 1:
        return [values]
    # An all-to-all of copies is direct; gloo's all-gather passes around a ring.
    sent = torch.tensor([values] * size, dtype=torch.long, device=device)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group)
    return received.tolist()


def gather_rows(
    hidden_TH: Tensor, probs_TK: Tensor, expert_TK: Tensor, rows: RowCounts
) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states [A, H], probabilities [A, K] and expert numbers [A, K] of all ranks' rows.

    An expert that another host computes for a row has the number -1.
    """
    parts = (hidden_TH, probs_TK, expert_TK.to(torch.int32))
    sent = torch.cat([part.contiguous().view(torch.uint8) for part in parts], dim=1)
    size, total = len(rows.counts), sum(rows.counts)
    received = sent.new_empty(total, sent.size(1))
    dist.all_to_all_single(
        received,
        sent.repeat(size, 1),
        output_split_sizes=list(rows.counts),
        input_split_sizes=[hidden_TH.size(0)] * size,
        group=rows.group,
    )
    widths = [part.size(1) * part.element_size() for part in parts]
    pieces = received.split(widths, dim=1)
    # A copy even of one row, whose bytes may start or repeat at no multiple of the type's size.
    hidden, probs, expert = (
        piece.clone(memory_format=torch.contiguous_format).view(part.dtype)
        for piece, part in zip(pieces, parts, strict=True)
    )
    return hidden, probs, _computed_here(expert.long(), rows)


def _computed_here(expert_AK: Tensor, rows: RowCounts) -> Tensor:
    if rows.elsewhere_PE is None:
        return expert_AK
    counts_P = torch.tensor(rows.counts, device=expert_AK.device)
    ranks_P = torch.arange(len(rows.counts), device=expert_AK.device)
    # With the sum told, a GPU need not be asked for it.
    owner_A = ranks_P.repeat_interleave(counts_P, output_size=sum(rows.counts))
    return expert_AK.masked_fill(rows.elsewhere_PE[owner_A[:, None], expert_AK], -1)


def return_rows(partial_AH: Tensor, rows: RowCounts) -> Tensor:
    """[T, H] sums, over the ranks, of the partial outputs for this rank's own rows."""
    size, own_rows = len(rows.counts), rows.counts[rows.own]
    received = partial_AH.new_empty(size * own_rows, partial_AH.size(1))
    dist.all_to_all_single(
        received,
        partial_AH,
        output_split_sizes=[own_rows] * size,
        input_split_sizes=list(rows.counts),
        group=rows.group,
    )
    return received.view(size, own_rows, partial_AH.size(1)).sum(0)
