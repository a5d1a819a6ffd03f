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
