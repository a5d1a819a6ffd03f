"""Runs that begin with an imported folder, or with one in FP8, and what is exported of them."""

import json

import fp8
import hf_models
import pytest
import torch
from small_run import metrics_of, run

from flexfloor.cli import main

VOCAB = 256  # of the recipe's tokenizer
SHAPE = {"num_local_experts": 4, "intermediate_size": 32, "rope_theta": 10_000.0, "vocab_size": VOCAB}
SHAPE |= {"max_position_embeddings": 256}
BRIEF = ["sft.steps=0", "trainer.test_freq=-1", "trainer.val_before_train=false", "trainer.save_freq=1"]
BRIEF += ["trainer.logger=[jsonl]", "trainer.total_training_steps=1"]


def exported(checkpoint, out):
    assert main(["convert", "export", "--checkpoint", str(checkpoint), "--out", str(out)]) == 0
    return hf_models.tensors_in(out)


@pytest.mark.slow
def test_a_run_begins_with_an_imported_folder(tmp_path, capfd):
    folder = hf_models.save(hf_models.hf_model("mixtral", torch.bfloat16, **SHAPE), tmp_path / "hf")
    assert main(["convert", "import", "--hf", str(folder), "--out", str(tmp_path / "in")]) == 0
    assert run(tmp_path / "run", *BRIEF, f"model.path={tmp_path / 'in'}") == 0
    read = hf_models.tensors_in(folder)
    written = exported(tmp_path / "run" / "checkpoints" / "step_000000", tmp_path / "first")
    assert read.keys() == written.keys()
    assert all(torch.equal(tensor.float(), written[name]) for name, tensor in read.items())
    assert metrics_of(tmp_path / "run")[1]["actor/grad_norm"] > 0
    state = ["trainer.resume_mode=path", f"trainer.resume_from_path={tmp_path / 'in'}"]
    assert run(tmp_path / "new", *BRIEF, *state) == 2
    assert "must be a run's checkpoint; this holds weights alone" in capfd.readouterr().err
    shard = next((tmp_path / "in" / "weights").glob("*.distcp"))
    shard.write_bytes(shard.read_bytes()[:-1])
    assert run(tmp_path / "new", *BRIEF, f"model.path={tmp_path / 'in'}") == 2
    assert f"must be a whole folder of weights; {shard} has" in capfd.readouterr().err


@pytest.mark.slow
def test_a_run_that_began_in_fp8_is_exported_in_plain_weights(tmp_path):
    source = hf_models.save(hf_models.hf_model("mixtral", **SHAPE), tmp_path / "source", "1GB")
    stored, plain = fp8.quantized(hf_models.tensors_in(source), (16, 16))
    folder = fp8.write(tmp_path / "hf", source, stored, (16, 16))
    assert run(tmp_path / "run", *BRIEF, f"model.path={folder}") == 0
    written = exported(tmp_path / "run" / "checkpoints" / "step_000000", tmp_path / "first")
    assert plain.keys() == written.keys()
    assert all(torch.equal(tensor, written[name]) for name, tensor in plain.items())
    last = exported(tmp_path / "run", tmp_path / "last")
    assert (last["model.norm.weight"] - plain["model.norm.weight"]).abs().max() > 0
    said = json.loads((tmp_path / "last" / "config.json").read_text())
    assert "quantization_config" not in said and said["max_position_embeddings"] == 256
