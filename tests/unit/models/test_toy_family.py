"""The family that docs/models.md shows: its code is taken from the page, and its weights go in and out."""

import json
import re
import sys
from pathlib import Path

import fp8
import pytest
import torch
from safetensors.torch import load_file, save_file

from flexfloor.config import compose
from flexfloor.launch import run_ranks

PAGE = Path(__file__).parents[3] / "docs" / "models.md"
VOCAB, HIDDEN, FFN, EXPERTS, HEADS, GROUPS = 20, 16, 12, 4, 4, 2
MODEL = [
    "recipe=tiny-mixtral",
    "model.family=my_family:Toy",
    "model.num_layers=2",
    f"model.hidden_size={HIDDEN}",
    f"model.moe_ffn_hidden_size={FFN}",
    f"model.num_experts={EXPERTS}",
    f"model.num_attention_heads={HEADS}",
    f"model.num_query_groups={GROUPS}",
]


@pytest.fixture
def module_folder(tmp_path, monkeypatch):
    """Where `my_family.py` lies, as the page has it."""
    blocks = re.findall(r"```python\n(# my_family.py\n.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 1
    (tmp_path / "my_family.py").write_text(blocks[0])
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def toy_weights():
    generator = torch.Generator().manual_seed(3)
    dim = HIDDEN // HEADS
    shapes = {"tokens": (VOCAB, HIDDEN), "unembed": (VOCAB, HIDDEN), "norm": (HIDDEN,)}
    for layer in range(2):
        block = {
            "norm_1": (HIDDEN,),
            "norm_2": (HIDDEN,),
            "query": (HEADS * dim, HIDDEN),
            "key": (GROUPS * dim, HIDDEN),
            "value": (GROUPS * dim, HIDDEN),
            "out": (HIDDEN, HEADS * dim),
            "router": (EXPERTS, HIDDEN),
            "experts_in": (EXPERTS, 2 * FFN, HIDDEN),
            "experts_out": (EXPERTS, HIDDEN, FFN),
            "angles": (dim // 2,),
        }
        shapes |= {f"blocks.{layer}.{name}": shape for name, shape in block.items()}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def in_and_out(config, module_folder, out):
    """An expert and the mixed attention as they are in the model; the rest goes to `out`."""
    sys.path.insert(0, str(module_folder))
    from flexfloor import parallel
    from flexfloor.models.build import build_model
    from flexfloor.models.init import global_tensors
    from flexfloor.models.registry import weight_map_of
    from flexfloor.models.weights.give import export_weights

    parallel.initialize(ep_size=1, seed=0, timeout_seconds=60)
    sizes = {"vocab_size": VOCAB, "max_sequence_length": 8}
    gpt = build_model(config, **sizes, groups=parallel.groups())
    export_weights(gpt, weight_map_of(config), out, vocab_size=VOCAB)
    own = global_tensors(gpt)
    layer = "decoder.layers.1"
    return [
        own[f"{layer}.{name}.weight"].detach().clone()
        for name in ("mlp.experts.local_experts.2.linear_fc1", "self_attention.linear_qkv")
    ]


def test_the_pages_family_takes_and_writes_weights(module_folder, tmp_path):
    folder = tmp_path / "toy"
    folder.mkdir()
    weights, block = toy_weights(), (8, 6)
    values, scales = fp8.quantize(weights["blocks.0.out"], block)
    coded = weights | {"blocks.0.out": values, "blocks.0.out_scale_inv": scales}
    weights["blocks.0.out"] = fp8.meant(values, scales, block)
    save_file(coded, folder / "model.safetensors")
    quantization = {"quant_method": "fp8", "weight_block_size": block}
    content = {"model_type": "toy", "quantization_config": quantization}
    (folder / "config.json").write_text(json.dumps(content))
    config = compose([*MODEL, f"model.path={folder}"]).model
    [(expert, mixed)] = run_ranks(
        in_and_out, 1, config, module_folder, tmp_path / "out", threads_per_rank=1, total_timeout_seconds=200
    )
    assert torch.equal(expert, weights["blocks.1.experts_in"][2])
    query, key, value = (weights[f"blocks.1.{name}"] for name in ("query", "key", "value"))
    assert torch.equal(mixed, torch.cat([query[:8], key[:4], value[:4], query[8:], key[4:], value[4:]]))
    written = load_file(tmp_path / "out" / "model.safetensors")
    assert written.keys() == {name for name in weights if not name.endswith("angles")}
    assert all(torch.equal(tensor, weights[name]) for name, tensor in written.items())
