"""Folders unlike the usual: types, layouts of experts, vocabularies, prediction layers, tied embeddings."""

import json
from pathlib import Path

import hf_models
import numpy as np
import torch
import weights_ranks as ranks
from safetensors.torch import save_file

from flexfloor import parallel
from flexfloor.launch import run_ranks
from flexfloor.models.init import global_tensors
from flexfloor.models.weights.give import export_weights

PAD = 5


def rewritten(folder: Path, source: Path, change, **settings) -> Path:
    """A copy of `source` in one file after `change` of its tensors, with other settings in config.json."""
    folder.mkdir()
    config = json.loads((source / "config.json").read_text()) | settings
    (folder / "config.json").write_text(json.dumps(config))
    save_file(change(hf_models.tensors_in(source)), folder / "model.safetensors")
    return folder


def fused(tensors):
    """The layout of transformers 5's memory, of a Mixtral of two layers and four experts."""
    found = {name: tensor for name, tensor in tensors.items() if "block_sparse_moe" not in name}
    for layer in range(2):
        old, new = f"model.layers.{layer}.block_sparse_moe", f"model.layers.{layer}.mlp"
        of = [{w: tensors[f"{old}.experts.{e}.{w}.weight"] for w in ("w1", "w2", "w3")} for e in range(4)]
        found[f"{new}.gate.weight"] = tensors[f"{old}.gate.weight"]
        found[f"{new}.experts.gate_up_proj"] = torch.stack([torch.cat([e["w1"], e["w3"]]) for e in of])
        found[f"{new}.experts.down_proj"] = torch.stack([e["w2"] for e in of])
    return found


def tensors_of_models(folders, ep_size, dtype, extra_vocab):
    parallel.initialize(ep_size=ep_size, seed=0, timeout_seconds=60)
    return [
        {n: t.detach().clone() for n, t in global_tensors(gpt).items()}
        for gpt, _ in (ranks.taken(folder, extra_vocab=extra_vocab, dtype=dtype) for folder in folders)
    ]


def of_one_rank(*args):
    return run_ranks(tensors_of_models, 1, *args, threads_per_rank=1, total_timeout_seconds=200)[0]


def test_both_layouts_of_experts_and_every_type_give_the_same_model(tmp_path):
    source = hf_models.save(hf_models.hf_model("mixtral", torch.bfloat16), tmp_path / "source")
    folders = [
        source,
        rewritten(tmp_path / "fused", source, fused),
        rewritten(tmp_path / "f32", source, lambda all_: {n: t.float() for n, t in all_.items()}),
        rewritten(tmp_path / "f64", source, lambda all_: {n: t.double() for n, t in all_.items()}),
    ]
    first, *others = of_one_rank(folders, 1, "float32", 0)
    assert {tensor.dtype for tensor in first.values()} == {torch.float32}
    name = "decoder.layers.1.mlp.experts.local_experts.2.linear_fc1.weight"
    gate = hf_models.tensors_in(source)["model.layers.1.block_sparse_moe.experts.2.w1.weight"]
    assert torch.equal(first[name][:48], gate.float())
    for other in others:
        assert first.keys() == other.keys() and all(torch.equal(first[n], other[n]) for n in first)


def test_prediction_layers_are_left_out_tied_ends_compared_and_angles_ignored(tmp_path, caplog):
    whole = hf_models.save(hf_models.hf_model("deepseek_v3"), tmp_path / "v3")
    more = {
        "model.layers.3.eh_proj.weight": torch.ones(4, 4),
        "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(3),
    }
    predicting = rewritten(tmp_path / "mtp", whole, lambda all_: all_ | more, num_nextn_predict_layers=1)
    tied = hf_models.save(hf_models.hf_model("mixtral, tied"), tmp_path / "tied")
    embedding = hf_models.tensors_in(tied)["model.embed_tokens.weight"]
    assert "lm_head.weight" not in hf_models.tensors_in(tied)
    equal = rewritten(tmp_path / "equal", tied, lambda all_: all_ | {"lm_head.weight": embedding.clone()})
    other = rewritten(tmp_path / "other", tied, lambda all_: all_ | {"lm_head.weight": embedding + 1})
    found = of_one_rank([whole, predicting, tied, equal], 1, "float32", 0)
    for one, two in (found[:2], found[2:]):
        assert one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)
    [complaint] = run_ranks(ranks.complaints, 1, 1, [other], threads_per_rank=1, total_timeout_seconds=200)[0]
    assert "ties its embeddings, and in the files lm_head.weight differs from model.embed" in complaint


def padded_out(folder, out):
    parallel.initialize(ep_size=1, seed=0, timeout_seconds=60)
    gpt, weight_map = ranks.taken(folder, extra_vocab=PAD)
    own = {name: tensor.detach().clone() for name, tensor in global_tensors(gpt).items()}
    export_weights(gpt, weight_map, out, vocab_size=hf_models.VOCAB)
    return own


def test_rows_of_a_padded_vocabulary_are_zero_and_are_not_written(tmp_path):
    source = hf_models.save(hf_models.hf_model("qwen3_moe"), tmp_path / "source")
    [own] = run_ranks(padded_out, 1, source, tmp_path / "out", threads_per_rank=1, total_timeout_seconds=200)
    read, written = hf_models.tensors_in(source), hf_models.tensors_in(tmp_path / "out")
    for name, hf in (
        ("embedding.word_embeddings.weight", "model.embed_tokens.weight"),
        ("output_layer.weight", "lm_head.weight"),
    ):
        assert own[name].shape == (hf_models.VOCAB + PAD, 32)
        assert torch.equal(own[name][:-PAD], read[hf]) and not own[name][-PAD:].any()
        assert torch.equal(written[hf], read[hf])


def bfloat16_out(folder, out):
    parallel.initialize(ep_size=2, seed=0, timeout_seconds=60)
    gpt, weight_map = ranks.taken(folder, dtype="float32")
    export_weights(gpt, weight_map, out, vocab_size=hf_models.VOCAB, dtype=torch.bfloat16)


def test_a_float32_model_is_written_as_bfloat16_but_for_its_routers_biases(tmp_path):
    model = hf_models.hf_model("deepseek_v3", torch.bfloat16)
    for layer in model.model.layers[1:]:
        bias = layer.mlp.gate.e_score_correction_bias
        layer.mlp.gate.e_score_correction_bias = torch.randn(bias.shape)  # more than bfloat16 can hold
    source = hf_models.save(model, tmp_path / "source")
    run_ranks(bfloat16_out, 2, source, tmp_path / "out", threads_per_rank=1, total_timeout_seconds=200)
    read, written = hf_models.tensors_in(source), hf_models.tensors_in(tmp_path / "out")
    assert {tensor.dtype for tensor in read.values()} == {torch.bfloat16, torch.float32}
    for name, tensor in read.items():
        assert written[name].dtype == tensor.dtype and torch.equal(written[name], tensor), name


def test_a_bfloat16_model_keeps_its_routers_biases_in_float32(tmp_path):
    model = hf_models.hf_model("deepseek_v3", torch.bfloat16)
    biases = []
    for layer in model.model.layers[1:]:
        layer.mlp.gate.e_score_correction_bias = torch.randn(8)
        biases.append(layer.mlp.gate.e_score_correction_bias)
    [found] = of_one_rank([hf_models.save(model, tmp_path / "source")], 1, "bfloat16", 0)
    for layer, bias in enumerate(biases, start=1):
        assert np.array_equal(found[f"decoder.layers.{layer}.mlp.router.expert_bias"].numpy(), bias.numpy())
