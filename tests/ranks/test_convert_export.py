"""A checkpoint of ranks becomes the Hugging Face folder that its model was taken from, bit by bit."""

import hf_models
import pytest
import torch
import weights_ranks as ranks

from flexfloor.convert.export import export_checkpoint
from flexfloor.convert.request import Export
from flexfloor.errors import CheckpointError, ConfigError
from flexfloor.launch import run_ranks
from flexfloor.models.config import ModelConfig
from flexfloor.models.hf_config import read_hf_config

POSITIONS = 77


def start(fn, world_size, *args):
    return run_ranks(fn, world_size, *args, threads_per_rank=1, total_timeout_seconds=200)


def saved(ep_size, dtype, folders, out):
    """A checkpoint of each folder's model, in `out`/<kind>/checkpoints as a run has it."""
    from flexfloor import parallel
    from flexfloor.train.checkpoint import save_checkpoint
    from flexfloor.train.config import OptimConfig
    from flexfloor.train.optimizer import build_ddp, build_optimizer, build_scheduler

    parallel.initialize(ep_size=ep_size, seed=0, timeout_seconds=60)
    for kind, folder in folders.items():
        gpt, _ = ranks.taken(folder, dtype=dtype)
        ddp = build_ddp(gpt, parallel.groups())
        optimizer = build_optimizer(ddp, OptimConfig(), parallel.groups())
        identity = ModelConfig(**read_hf_config(folder).fields, dtype=dtype).identity()
        save_checkpoint(
            out / kind / "checkpoints",
            3,
            model=[ddp],
            optimizer=optimizer,
            scheduler=build_scheduler(optimizer, OptimConfig()),
            extra={
                "model": {**identity, "vocab_size": hf_models.VOCAB},
                "origin": {"model_path": None, "tokenizer_path": "builtin:char", "max_positions": POSITIONS},
            },
        )


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    root = tmp_path_factory.mktemp("hf")
    return {kind: hf_models.save(hf_models.hf_model(kind), root / kind) for kind in hf_models.KINDS}


@pytest.mark.parametrize("layout", [(4, 2)])
def test_every_familys_checkpoint_is_written_as_it_was_read(layout, sources, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    start(saved, *layout, "float32", sources, tmp_path)
    ids = torch.arange(ranks.TOKENS)[None] % hf_models.VOCAB
    for kind, source in sources.items():
        out = tmp_path / "out" / kind
        shape = {"fused_experts": kind == "qwen3_moe", "max_shard_bytes": 50_000}
        start(export_checkpoint, 1, Export(checkpoint=tmp_path / kind, out=out, **shape))
        read, written = hf_models.tensors_in(source), hf_models.tensors_in(out)
        if not shape["fused_experts"]:
            assert read.keys() == written.keys()
            assert all(torch.equal(tensor, written[name]) for name, tensor in read.items()), kind
        with torch.no_grad():
            theirs, ours = (
                AutoModelForCausalLM.from_pretrained(folder, dtype="float32")(ids).logits
                for folder in (source, out)
            )
        assert torch.equal(theirs, ours), kind
        assert read_hf_config(out).max_positions == POSITIONS
        assert len(AutoTokenizer.from_pretrained(out)) == 256
        assert len(list(out.glob("*.safetensors"))) > 1


def test_as_bfloat16_and_what_is_refused(sources, tmp_path):
    kind = "deepseek_v3"
    start(saved, 1, 1, "float32", {kind: sources[kind]}, tmp_path)
    step, out = tmp_path / kind / "checkpoints" / "step_000003", tmp_path / "out"
    start(export_checkpoint, 1, Export(checkpoint=step, out=out, dtype="bfloat16", hf=sources[kind]))
    for name, tensor in hf_models.tensors_in(out).items():
        wanted = hf_models.tensors_in(sources[kind])[name]
        is_bias = name.endswith("e_score_correction_bias")
        assert torch.equal(tensor, wanted if is_bias else wanted.bfloat16()), name
    assert read_hf_config(out).max_positions == hf_models.POSITIONS
    with pytest.raises(ConfigError, match=r"--out = .*out: must be a folder that is empty"):
        start(export_checkpoint, 1, Export(checkpoint=step, out=out))
    with pytest.raises(CheckpointError, match="neither a checkpoint nor the folder of a run"):
        start(export_checkpoint, 1, Export(checkpoint=tmp_path, out=tmp_path / "more"))
    shard = next((step / "weights").glob("*.distcp"))
    shard.write_bytes(shard.read_bytes()[:-10])
    with pytest.raises(CheckpointError, match=f"{shard.name} has .* bytes"):
        start(export_checkpoint, 1, Export(checkpoint=step, out=tmp_path / "more"))
    assert not (tmp_path / "more").exists()
