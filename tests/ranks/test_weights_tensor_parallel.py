"""Weights in and out of models whose tensors ranks share: TP, experts' own TP, and both beside EP."""

import fp8
import hf_models
import numpy as np
import pytest
import tensor_ranks as ranks
import torch
from weights_ranks import TOKENS

from flexfloor.launch import run_ranks

SLOW = pytest.mark.slow
LAYOUTS = [
    # ranks, (TP, EP, expert TP)
    (2, (2, 2, 1)),
    (2, (2, 1, 2)),
    pytest.param(2, (2, 1, 1), marks=SLOW),  # every rank has all experts, whole, and half of the rest
    pytest.param(2, (1, 1, 2), marks=SLOW),
    pytest.param(4, (2, 1, 1), marks=SLOW),
    pytest.param(4, (2, 2, 1), marks=SLOW),
    pytest.param(4, (2, 2, 2), marks=SLOW),
    pytest.param(4, (2, 4, 1), marks=SLOW),
]


def start(fn, world_size, *args):
    return run_ranks(fn, world_size, *args, threads_per_rank=1, total_timeout_seconds=200)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folder and logits of each kind of model, by transformers."""
    return hf_models.saved_with_logits(tmp_path_factory.mktemp("hf"), TOKENS)


@pytest.mark.parametrize(("world_size", "layout"), LAYOUTS)
def test_the_logits_are_hugging_faces_and_what_is_written_is_what_was_read(
    world_size, layout, models, tmp_path
):
    folders = {kind: folder for kind, (folder, _) in models.items()}
    of_ranks = start(ranks.in_and_out, world_size, layout, folders, tmp_path, 30_000)
    for kind, (folder, logits) in models.items():
        for found, _ in (of_rank[kind] for of_rank in of_ranks):
            assert np.abs(found - logits).max() < 1e-5 * np.abs(logits).max(), kind
        read, written = hf_models.tensors_in(folder), hf_models.tensors_in(tmp_path / kind)
        assert read.keys() == written.keys()
        for name, tensor in read.items():
            assert written[name].dtype == tensor.dtype and torch.equal(written[name], tensor), name
        whole = sum(tensor.nbytes for tensor in read.values())
        assert max(held for _, held in (of_rank[kind] for of_rank in of_ranks)) < 0.95 * whole


@pytest.mark.parametrize(
    ("extra", "of_tokens"),
    [
        (4, (26, 22)),
        pytest.param(56, (48, 0), marks=SLOW),  # the second rank has no token at all
    ],
)
def test_rows_of_no_token_are_zero_on_the_last_ranks(extra, of_tokens, models, tmp_path):
    folder, _ = models["mixtral"]
    of_ranks = start(ranks.padded, 2, (2, 1, 1), folder, extra, tmp_path / "out")
    read = hf_models.tensors_in(folder)
    for index, name in enumerate(("model.embed_tokens.weight", "lm_head.weight")):
        held = [of_rank[index] for of_rank in of_ranks]
        assert all(len(rows) == (48 + extra) // 2 for rows in held)
        assert not any(rows[num:].any() for rows, num in zip(held, of_tokens, strict=True))
        tokens = np.concatenate([rows[:num] for rows, num in zip(held, of_tokens, strict=True)])
        assert np.array_equal(tokens, read[name].numpy())
    written = hf_models.tensors_in(tmp_path / "out")
    assert read.keys() == written.keys()
    assert all(torch.equal(tensor, written[name]) for name, tensor in read.items())


def test_shapes_are_compared_whole(models, tmp_path):
    from safetensors.torch import save_file

    tensors = hf_models.tensors_in(models["mixtral"][0])
    name = "model.layers.1.self_attn.o_proj.weight"
    tensors[name] = tensors[name][:, :16].contiguous()  # what a rank of two has
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((models["mixtral"][0] / "config.json").read_bytes())
    for found in start(ranks.complaint, 2, (2, 1, 1), tmp_path):
        assert found.startswith("WeightsError")
        assert f"{name} is [32, 16] in model.safetensors, the model needs [32, 32]" in found


def test_a_full_disk_is_told_by_the_ranks_that_send_too(models, tmp_path):
    of_ranks = start(ranks.out_on_a_full_disk, 2, (2, 1, 1), models["mixtral"][0], tmp_path / "out")
    assert of_ranks[0] == of_ranks[1] and of_ranks[0].startswith("WeightsError: cannot write")
    assert "out (rank 0): OSError: [Errno 28] No space left on device" in of_ranks[0]
    assert not (tmp_path / "out").exists()


@SLOW
def test_columns_of_weights_in_fp8_have_their_scales(tmp_path):
    block = (16, 12)
    source = hf_models.save(hf_models.hf_model("deepseek_v3"), tmp_path / "source", "1GB")
    stored, plain = fp8.quantized(hf_models.tensors_in(source), block)
    folder = fp8.write(tmp_path / "fp8", source, stored, block)
    start(ranks.in_and_out, 4, (2, 2, 2), {"mine": folder}, tmp_path / "out", 10**9)
    written = hf_models.tensors_in(tmp_path / "out" / "mine")
    assert written.keys() == plain.keys()
    assert all(torch.equal(written[name], wanted) for name, wanted in plain.items())
