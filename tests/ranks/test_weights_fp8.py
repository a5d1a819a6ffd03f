"""Folders in FP8: the model that is meant, at any EP size."""

import fp8
import hf_models
import numpy as np
import pytest
import torch
import weights_ranks as ranks

from flexfloor.launch import run_ranks

LARGE = {"hidden_size": 136, "intermediate_size": 260, "moe_intermediate_size": 148, "kv_lora_rank": 132}
CASES = {
    "deepseek": ("deepseek_v3", (16, 16), {"num_nextn_predict_layers": 1}),
    "released blocks": ("deepseek_v3", (128, 128), LARGE),
    "fused queries": ("qwen3_moe", (16, 10), {}),
}


def start(fn, world_size, *args):
    return run_ranks(fn, world_size, *args, threads_per_rank=1, total_timeout_seconds=200)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folder in FP8, plain tensors and transformers' logits of each case."""
    at, found = tmp_path_factory.mktemp("fp8"), {}
    ids = torch.arange(ranks.TOKENS) % hf_models.VOCAB
    for name, (kind, block, changes) in CASES.items():
        source = hf_models.save(hf_models.hf_model(kind, **changes), at / f"{name} source", "1GB")
        stored, plain = fp8.quantized(hf_models.tensors_in(source), block)
        if changes.get("num_nextn_predict_layers"):  # a layer that is left out, scales and all
            values, scales = fp8.quantize(torch.randn(40, 32), block)
            more = "model.layers.3.mlp.up_proj.weight"
            stored |= {more: values, f"{more}_scale_inv": scales}
        folder = fp8.write(at / name, source, stored, block)
        found[name] = (folder, plain, logits_of(source, plain, ids))
    return found


def logits_of(source, tensors, ids):
    """Of transformers' model with `tensors`."""
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM

    save_file(tensors, source / "model.safetensors", metadata={"format": "pt"})
    with torch.no_grad():
        return AutoModelForCausalLM.from_pretrained(source).eval()(ids[None]).logits[0].double().numpy()


@pytest.mark.parametrize("ep_size", [1, 2])
def test_weights_are_those_that_are_meant_to_the_bit(ep_size, models, tmp_path):
    folders = {name: folder for name, (folder, *_) in models.items()}
    of_ranks = start(ranks.in_and_out, ep_size, ep_size, folders, "float32", tmp_path, 10**9)
    for name, (_, plain, logits) in models.items():
        assert logits.std() > 0.5
        for found in of_ranks:
            assert np.abs(found[name] - logits).max() < 1e-5 * np.abs(logits).max(), name
        written = hf_models.tensors_in(tmp_path / name)
        assert written.keys() == plain.keys()
        for tensor, wanted in plain.items():
            assert written[tensor].dtype == wanted.dtype and torch.equal(written[tensor], wanted), tensor
