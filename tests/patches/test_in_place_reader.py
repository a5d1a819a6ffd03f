"""Whatever part of a stored tensor goes wherever, its place holds what Torch's reader would have put."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from probes import Copies
from torch.distributed import checkpoint
from torch.distributed.checkpoint import FileSystemReader, LoadPlan
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import LoadItemType, ReadItem

from megatron_patches.in_place_reader import in_place
from megatron_patches.stored_tensor import stored_tensor

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # for one process it may be

STORED = torch.arange(24.0).reshape(4, 6)


class Places:
    """The part of a planner that a reader asks: where to put the one tensor there is."""

    def __init__(self, place: torch.Tensor) -> None:
        self.place = place
        self.committed: list[torch.Tensor] = []

    def resolve_tensor(self, _: ReadItem) -> torch.Tensor:
        return self.place

    def commit_tensor(self, _: ReadItem, tensor: torch.Tensor) -> None:
        self.committed.append(tensor)


def read(folder: Path, stored: torch.Tensor, part: tuple[slice, ...], place: torch.Tensor) -> int:
    """Store `stored`, read `part` of it into `place`, and say how many copies that took."""
    checkpoint.save({"weight": stored}, checkpoint_id=folder, no_dist=True)
    reader = in_place(FileSystemReader(folder))
    metadata = reader.read_metadata()
    reader.set_up_storage_reader(metadata, True)
    [index] = metadata.storage_data
    offsets = torch.Size(each.start for each in part)
    lengths = torch.Size(each.stop - each.start for each in part)
    item = ReadItem(
        type=LoadItemType.TENSOR,
        dest_index=MetadataIndex("weight"),
        dest_offsets=torch.Size(0 for _ in part),
        storage_index=index,
        storage_offsets=offsets,
        lengths=lengths,
    )
    planner: Any = Places(place)
    with Copies() as copies:
        reader.read_data(LoadPlan([item]), planner).wait()
    assert len(planner.committed) == 1
    return copies.number


WHOLE = (slice(0, 4), slice(0, 6))
ROWS = (slice(1, 3), slice(0, 6))
IN_PLACE = {
    "whole": (STORED, WHOLE, torch.zeros(4, 6)),
    "rows": (STORED, ROWS, torch.zeros(2, 6)),
    "a part of one row": (STORED, (slice(2, 3), slice(1, 4)), torch.zeros(1, 3)),
    "rows of a larger place": (STORED, ROWS, torch.zeros(5, 6)[1:3]),
    "float64": (STORED.double(), ROWS, torch.zeros(2, 6, dtype=torch.float64)),
    "bfloat16": (STORED.bfloat16(), ROWS, torch.zeros(2, 6, dtype=torch.bfloat16)),
    "uint8": (STORED.to(torch.uint8), WHOLE, torch.zeros(4, 6, dtype=torch.uint8)),
    "a number": (torch.tensor(7.0), (), torch.tensor(0.0)),
    "a parameter": (STORED, WHOLE, torch.nn.Parameter(torch.zeros(4, 6))),
}
BY_TORCH = {
    "columns": (STORED, (slice(0, 4), slice(1, 3)), torch.zeros(4, 2)),
    "columns of a larger place": (STORED, WHOLE, torch.zeros(4, 8)[:, 1:7]),
    "another type": (STORED, WHOLE, torch.zeros(4, 6, dtype=torch.float64)),
    "stored in another order": (STORED.t().contiguous().t(), WHOLE, torch.zeros(4, 6)),
    "uint16, stored otherwise": (STORED.to(torch.uint16), WHOLE, torch.zeros(4, 6, dtype=torch.uint16)),
}


@pytest.mark.parametrize(("stored", "part", "place"), IN_PLACE.values(), ids=IN_PLACE)
def test_what_lies_in_one_piece_is_read_in_place(
    tmp_path: Path, stored: torch.Tensor, part: tuple[slice, ...], place: torch.Tensor
) -> None:
    assert read(tmp_path, stored, part, place) == 0
    assert torch.equal(place, stored[part])


@pytest.mark.parametrize(("stored", "part", "place"), BY_TORCH.values(), ids=BY_TORCH)
def test_anything_else_is_left_to_torch(
    tmp_path: Path, stored: torch.Tensor, part: tuple[slice, ...], place: torch.Tensor
) -> None:
    assert read(tmp_path, stored, part, place) == 1
    assert torch.equal(place, stored[part].to(place.dtype))


def test_bytes_around_the_place_stay_as_they_are(tmp_path: Path) -> None:
    room = torch.full((4, 6), -1.0)
    read(tmp_path, STORED, ROWS, room[2:])
    assert torch.equal(room[:2], torch.full((2, 6), -1.0))
    assert torch.equal(room[2:], STORED[1:3])


def test_several_tensors_and_objects_of_one_file(tmp_path: Path) -> None:
    state = {"first": STORED, "note": "3 steps", "second": STORED + 100, "turned": (STORED + 200).t()}
    checkpoint.save(state, checkpoint_id=tmp_path, no_dist=True)
    found = {name: "" if name == "note" else torch.zeros_like(value) for name, value in state.items()}
    checkpoint.load(found, storage_reader=in_place(FileSystemReader(tmp_path)), no_dist=True)
    assert found.pop("note") == state.pop("note")
    assert all(torch.equal(found[name], value) for name, value in state.items())


def test_a_file_that_ends_early_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    description, _ = stored_tensor(_file_of(STORED))
    monkeypatch.setattr("megatron_patches.in_place_reader.stored_tensor", lambda _: (description, 2**20))
    with pytest.raises(checkpoint.api.CheckpointException, match="96 bytes are missing at the end"):
        checkpoint.save({"weight": STORED}, checkpoint_id=tmp_path, no_dist=True)
        checkpoint.load(
            {"weight": STORED.clone()}, storage_reader=in_place(FileSystemReader(tmp_path)), no_dist=True
        )


@pytest.mark.parametrize(
    "stored", [print, [STORED], {"weight": STORED}, [STORED, STORED + 1], torch.nn.Linear(1, 1)]
)
def test_what_is_not_one_plain_tensor_is_not_described(stored: Any) -> None:
    assert stored_tensor(_file_of(stored)) is None


def _file_of(stored: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(stored, file)
    file.seek(0)
    return file
