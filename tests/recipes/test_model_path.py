"""`model.path` through the command line: a run that begins with a Hugging Face model's weights."""

import json
import shutil

import hf_models
import pytest
import torch
from small_run import metrics_of, run
from transformers import AutoModelForCausalLM

from flexfloor.cli import main
from flexfloor.data.tokenizer import decode_response, load_tokenizer

VOCAB = 256  # of the recipe's tokenizer
SHAPE = {"num_local_experts": 4, "intermediate_size": 32, "rope_theta": 10_000.0, "vocab_size": VOCAB}
BRIEF = ["sft.steps=0", "trainer.test_freq=-1", "trainer.val_before_train=false"]


@pytest.fixture(scope="module")
def model():
    return hf_models.hf_model("mixtral", max_position_embeddings=256, **SHAPE)


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    return hf_models.save(model, tmp_path_factory.mktemp("hf") / "mixtral")


def require_the_responses_of(model, lines):
    """Each line's text is what `model` generates greedily."""
    tokenizer = load_tokenizer("builtin:char")
    assert len(lines) == 4
    for line in lines:
        prompt = torch.tensor([tokenizer.encode(line["prompt"], add_special_tokens=False)])
        found = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=12,
            do_sample=False,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=0,
        )
        response = found[0, prompt.size(1) :].tolist()
        assert decode_response(tokenizer, response) == line["response"] and len(response) > 3


def responses(folder, *words):
    """What `flexfloor rollout` gives for the run in `folder`."""
    assert run(folder, "generate.split=val", *words, *BRIEF, command="rollout") == 0
    return [json.loads(line) for line in (folder / "rollout.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_the_first_responses_are_hugging_faces(model, folder, tmp_path):
    require_the_responses_of(model, responses(tmp_path, f"model.path={folder}"))


def test_a_run_begins_with_the_weights_is_held_near_them_and_resumes_without_them(folder, tmp_path, capfd):
    taken = tmp_path / "taken"
    shutil.copytree(folder, taken)
    words = [*BRIEF, f"model.path={taken}", "actor.use_kl_loss=true", "actor.optim.lr=1e-2"]
    words += ["trainer.save_freq=1", "trainer.logger=[jsonl]", "actor.kl_loss_coef=0.1"]
    assert run(tmp_path / "run", *words, "trainer.total_training_steps=1") == 0
    (taken / "model-00002-of-00006.safetensors").unlink()
    assert run(tmp_path / "run", *words, "trainer.total_training_steps=2") == 0
    first, second = (metrics_of(tmp_path / "run")[step] for step in (1, 2))
    assert first["actor/kl_loss"] == pytest.approx(0, abs=1e-7) and second["actor/kl_loss"] > 1e-4
    assert run(tmp_path / "new", *words, "trainer.total_training_steps=1") == 2
    assert "taken/model-00002-of-00006.safetensors is missing" in capfd.readouterr().err

    assert export(tmp_path / "run" / "checkpoints" / "step_000000", tmp_path / "first") == 0
    read, written = hf_models.tensors_in(folder), hf_models.tensors_in(tmp_path / "first")
    assert read.keys() == written.keys() and all(torch.equal(t, written[name]) for name, t in read.items())
    assert export(tmp_path / "run", tmp_path / "last") == 0
    trained = AutoModelForCausalLM.from_pretrained(tmp_path / "last")
    require_the_responses_of(trained, responses(tmp_path / "run", f"model.path={taken}"))
    difference = hf_models.tensors_in(tmp_path / "last")["model.norm.weight"] - read["model.norm.weight"]
    assert difference.abs().max() > 1e-3
    assert len(load_tokenizer(str(tmp_path / "last"))) == VOCAB


def export(checkpoint, out):
    return main(["convert", "export", "--checkpoint", str(checkpoint), "--out", str(out)])
