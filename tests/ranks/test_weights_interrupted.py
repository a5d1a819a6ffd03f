"""An export that is stopped leaves nothing that looks finished; weights come and go without memory."""

import os
import signal
from pathlib import Path

import hf_models
import pytest
import torch
import weights_ranks as ranks

from flexfloor import parallel
from flexfloor.errors import ConfigError, RankError, WeightsError
from flexfloor.launch import run_ranks
from flexfloor.models.weights import give, hf_folder, shard_file
from flexfloor.models.weights.stored import read_index
from flexfloor.models.weights.take import import_weights


def start(fn, world_size, *args):
    return run_ranks(fn, world_size, *args, threads_per_rank=1, total_timeout_seconds=200)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return hf_models.save(hf_models.hf_model("mixtral"), tmp_path_factory.mktemp("hf") / "m")


def out(folder, place, *, at, instead):
    """Export, with `instead` done at the fourth piece, or before the folder is put in its place."""
    parallel.initialize(ep_size=2, seed=0, timeout_seconds=20)
    gpt, weight_map = ranks.taken(folder)
    is_rank_1 = torch.distributed.get_rank() == 1
    if at == "a tensor" and is_rank_1:
        seen = []
        real = give.write_shard

        def write_shard(partial, shard, chunks):
            real(
                partial,
                shard,
                (seen.append(chunk) or (len(seen) > 3 and instead()) or chunk for chunk in chunks),
            )

        give.write_shard = write_shard
    more = (lambda _: instead()) if at == "the end" else (lambda _: None)
    export = give.export_weights
    export(gpt, weight_map, place, vocab_size=hf_models.VOCAB, max_shard_bytes=30_000, write_more=more)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def fill_the_disk():
    raise OSError(28, "No space left on device", "model-00001.safetensors")


@pytest.mark.parametrize("at", [pytest.param("a tensor", marks=pytest.mark.slow), "the end"])
def test_a_killed_export_leaves_no_folder_and_the_next_one_succeeds(at, source, tmp_path):
    place = tmp_path / "out"
    with pytest.raises(RankError, match="SIGKILL"):
        run_ranks(killed, 2, source, place, at, threads_per_rank=1, total_timeout_seconds=200)
    assert not place.exists()
    [left] = tmp_path.iterdir()
    assert left == hf_folder.partial_of(place)
    with pytest.raises(WeightsError, match="has neither model"):
        read_index(left)
    start(undisturbed, 2, source, place)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    read, written = hf_models.tensors_in(source), hf_models.tensors_in(place)
    assert all(torch.equal(tensor, written[name]) for name, tensor in read.items())


def killed(source, place, at):
    out(source, place, at=at, instead=die)


def undisturbed(source, place):
    out(source, place, at="never", instead=die)


def full(source, place):
    out(source, place, at="a tensor", instead=fill_the_disk)


def test_a_full_disk_is_told_by_all_ranks_and_what_stands_there_is_kept(source, tmp_path):
    with pytest.raises(WeightsError, match=r"cannot write .*out \(rank 1\): .*No space left on device"):
        start(full, 2, source, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "mine").write_text("precious")
    with pytest.raises(ConfigError, match=r"kept: must be a folder that is empty or does not exist"):
        start(undisturbed, 2, source, tmp_path / "kept")
    assert (tmp_path / "kept" / "mine").read_text() == "precious"


def peak_of(action):
    """Bytes by which the resident set of this process grew beyond what it was while `action` ran."""
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    before = resident("VmRSS")
    action()
    return resident("VmHWM") - before


def resident(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))


def memory_of_taking_and_giving(source, place, dtype):
    parallel.initialize(ep_size=1, seed=0, timeout_seconds=60)
    gpt, weight_map = ranks.taken(source, dtype=dtype)
    shard_file.CHUNK_BYTES = 2**20  # so that a tensor is many pieces
    taking = peak_of(lambda: import_weights(gpt, weight_map, source))
    giving = peak_of(
        lambda: give.export_weights(gpt, weight_map, place, vocab_size=gpt.vocab_size, dtype=torch.float32)
    )
    return sum(p.nbytes for p in gpt.parameters()), taking, giving


@pytest.mark.parametrize("dtype", [pytest.param("float32", marks=pytest.mark.slow), "float64"])
def test_taking_and_giving_need_no_memory_beside_the_model(dtype, tmp_path):
    source = hf_models.save(hf_models.hf_model("mixtral", intermediate_size=120_000), tmp_path / "source")
    largest = 120_000 * 32 * 4
    [(model, taking, giving)] = start(memory_of_taking_and_giving, 1, source, tmp_path / "out", dtype)
    assert model > 20 * largest > 300e6
    assert max(taking, giving) < 12e6 < largest
