"""Rows arrive on every rank as they were sent, whatever their type and number."""

import pytest
import torch
import torch.distributed as dist

from flexfloor.launch import run_ranks

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}
COUNTS = [(1, 0), (0, 1), (1, 1), (3, 2)]


def sent_by(rank, count, topk, dtype):
    generator = torch.Generator().manual_seed(rank)
    hidden = torch.randn(count, 6, generator=generator).to(dtype)
    probs = torch.rand(count, topk, generator=generator).to(dtype)
    return hidden, probs, torch.randint(0, 9, (count, topk), generator=generator)


def gathered():
    from flexfloor.elastic.exchange import RowCounts, gather_rows

    rank, found = dist.get_rank(), {}
    for name, dtype in DTYPES.items():
        for counts in COUNTS:
            for topk in (1, 2, 3):
                rows = RowCounts(group=dist.group.WORLD, counts=counts, own=rank, host_of=())
                parts = gather_rows(*sent_by(rank, counts[rank], topk, dtype), rows)
                found[name, counts, topk] = [part.double().tolist() for part in parts]
    return found


@pytest.fixture(scope="module")
def ranks():
    return run_ranks(gathered, 2, threads_per_rank=1, total_timeout_seconds=120)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize("topk", [1, 2, 3])
def test_every_rank_has_all_rows_in_rank_order(ranks, name, counts, topk):
    sent = [sent_by(rank, count, topk, DTYPES[name]) for rank, count in enumerate(counts)]
    expected = [torch.cat(parts).double().tolist() for parts in zip(*sent, strict=True)]
    for found in ranks:
        assert found[name, counts, topk] == expected


# expert 0 at home on every rank, 1 on rank 0 only, 2 on ranks 1 and 2, 3 on ranks 0 and 2
HOSTS_OF = ((0, 1, 2), (0,), (1, 2), (0, 2))
NEAREST = [(0, 0, 2, 0), (1, 0, 1, 0), (2, 0, 2, 2)]
"""By owner and expert, by hand: itself if it hosts it, else the next one below, going round."""


def rows_of(rank):
    """Five rows of a rank that choose every pair of different experts, or the first of them."""
    expert = torch.tensor([(0, 1), (0, 2), (3, 1), (2, 3), (1, 2)])[: 5 - rank]
    hidden = torch.arange(len(expert), dtype=torch.float64)[:, None] + 10.0 * rank + torch.tensor([1.0, 2.0])
    return hidden, torch.full((len(expert), 2), 0.5, dtype=torch.float64) + torch.arange(2.0), expert


def several_hosts():
    """Which experts this rank is told to compute of whose rows, and the sums that come back."""
    from flexfloor.elastic.exchange import gather_rows, return_rows, row_counts
    from flexfloor.elastic.placement import Placement

    rank, world = dist.get_rank(), dist.group.WORLD
    rows = row_counts(
        Placement(hosts_of=HOSTS_OF), (5, 4, 3), own=rank, group=world, device=torch.device("cpu")
    )
    hidden, probs, expert = gather_rows(*rows_of(rank), rows)
    # an expert multiplies by its number + 1
    partial = hidden * (probs * (expert + 1) * (expert >= 0)).sum(1, keepdim=True)
    return rows.can_reach(expert[expert >= 0]), expert.tolist(), return_rows(partial, rows)


def test_the_nearest_of_several_hosts_computes_a_row_and_no_other():
    found = run_ranks(several_hosts, 3, threads_per_rank=1, total_timeout_seconds=120)
    for rank, (reaches, told, sums) in enumerate(found):
        wanted = [
            [expert if NEAREST[owner][expert] == rank else -1 for expert in pair]
            for owner in range(3)
            for pair in rows_of(owner)[2].tolist()
        ]
        assert told == wanted and reaches
        hidden, probs, expert = rows_of(rank)
        torch.testing.assert_close(
            sums, hidden * (probs * (expert + 1)).sum(1, keepdim=True), rtol=0, atol=1e-12
        )
