"""Imports that fail or are stopped say why and leave nothing that looks finished; memory stays small."""

import errno
import os
import signal

import hf_models
import pytest
import test_weights_interrupted as interrupted
import torch

from flexfloor.cli import main
from flexfloor.convert import import_folder as importing
from flexfloor.convert.request import Export, Import
from flexfloor.errors import RankError, WeightsError
from flexfloor.launch import run_ranks
from flexfloor.models.weights import hf_folder
from flexfloor.train.checkpoint_folder import is_sealed


def start(fn, world_size, *args):
    return run_ranks(fn, world_size, *args, threads_per_rank=1, total_timeout_seconds=200)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return hf_models.save(hf_models.hf_model("mixtral"), tmp_path_factory.mktemp("hf") / "m")


def disturbed(wanted, instead):
    """An import whose last rank does `instead` of reading its fifth piece."""
    importing.CHUNK_BYTES = 1500
    rows, left = importing.FolderModel.rows, iter(range(4))

    def read(self, *args):
        if (
            torch.distributed.get_rank() == torch.distributed.get_world_size() - 1
            and next(left, None) is None
        ):
            instead()
        return rows(self, *args)

    importing.FolderModel.rows = read
    importing.import_folder(wanted)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def fill_the_disk():
    raise OSError(errno.ENOSPC, "No space left on device")


def exported_on_a_full_disk(wanted):
    from flexfloor.convert import export

    export.write_shard = lambda *_: fill_the_disk()
    export.export_checkpoint(wanted)


def test_a_killed_import_leaves_no_folder_and_the_next_one_succeeds(source, tmp_path):
    wanted = Import(hf=source, out=tmp_path / "out")
    with pytest.raises(RankError, match="SIGKILL"):
        start(disturbed, 1, wanted, die)
    [left] = tmp_path.iterdir()
    assert left == hf_folder.partial_of(wanted.out) and not is_sealed(left)
    assert main(["convert", "import", "--hf", str(source), "--out", str(wanted.out)]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"] and is_sealed(wanted.out)
    with pytest.raises(WeightsError, match=r"cannot write .*hf: OSError: .*choose another --out$") as error:
        start(exported_on_a_full_disk, 1, Export(checkpoint=wanted.out, out=tmp_path / "hf"))
    assert "max_ckpt" not in str(error.value) and not (tmp_path / "hf").exists()


def test_a_full_disk_is_told_with_what_to_do(source, tmp_path):
    with pytest.raises(WeightsError) as error:
        start(disturbed, 2, Import(hf=source, out=tmp_path / "out"), fill_the_disk)
    said = str(error.value)
    assert said.startswith(
        f"cannot write {tmp_path / 'out'} (rank 0): rank 1: OSError: [Errno 28] No space left"
    )
    assert (
        said.splitlines()[0].endswith("Free space there, or choose another --out") and "max_ckpt" not in said
    )
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_imported_is_named_before_anything_is_written(source, tmp_path, capfd):
    words = ["convert", "import", "--hf", str(source), "--out"]
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "mine").write_text("precious")
    assert main([*words, str(tmp_path / "kept")]) == 2
    assert "kept: must be a folder that is empty or does not exist" in capfd.readouterr().err
    assert main([*words, str(tmp_path / "out"), "--ranks", "0"]) == 2
    assert "--ranks = 0: must be 1 or more" in capfd.readouterr().err
    assert main(["convert", "import", "--hf", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert f"--hf = '{tmp_path}': holds no config.json" in capfd.readouterr().err
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in source.iterdir():
        (broken / file.name).write_bytes(file.read_bytes()[: -8 if "00002-of" in file.name else None])
    assert main(["convert", "import", "--hf", str(broken), "--out", str(tmp_path / "out")]) == 2
    said = capfd.readouterr().err
    assert f"cannot take the weights of {broken}" in said and "model-00002-of-" in said and "is cut" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken", "kept"]
    assert (tmp_path / "kept" / "mine").read_text() == "precious"


def memory_of_importing(wanted):
    import gc

    from flexfloor import parallel

    parallel.initialize(ep_size=1, seed=0, timeout_seconds=60)
    importing.CHUNK_BYTES = 2**20
    gc.collect()
    parallel.initialize = lambda **_: None
    return interrupted.peak_of(lambda: importing.import_folder(wanted))


def test_an_import_holds_a_chunk_of_a_tensor_and_no_more(tmp_path):
    source = hf_models.save(hf_models.hf_model("mixtral", intermediate_size=120_000), tmp_path / "source")
    largest = 120_000 * 32 * 4
    [peak] = start(memory_of_importing, 1, Import(hf=source, out=tmp_path / "out"))
    written = sum(file.stat().st_size for file in (tmp_path / "out" / "weights").iterdir())
    assert written > 20 * largest
    assert peak < 40e6, peak
