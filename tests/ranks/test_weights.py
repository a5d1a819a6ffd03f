"""Weights of Hugging Face folders in and out of models on ranks: the same logits, and the same bits."""

import hf_models
import numpy as np
import pytest
import torch
import weights_ranks as ranks

from flexfloor.launch import run_ranks

LAYOUTS = [(1, 1), (2, 2), (4, 4), (4, 2)]


def start(fn, world_size, *args):
    return run_ranks(fn, world_size, *args, threads_per_rank=1, total_timeout_seconds=200)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folder and logits of each kind of model, by transformers."""
    found = {}
    ids = torch.arange(ranks.TOKENS) % hf_models.VOCAB
    for kind in hf_models.KINDS:
        model = hf_models.hf_model(kind)
        with torch.no_grad():
            logits = model(ids[None]).logits[0].double().numpy()
        found[kind] = (hf_models.save(model, tmp_path_factory.mktemp("hf") / kind), logits)
    return found


@pytest.mark.parametrize(("world_size", "ep_size"), LAYOUTS)
def test_the_logits_are_hugging_faces_and_what_is_written_is_what_was_read(
    world_size, ep_size, models, tmp_path
):
    folders = {kind: folder for kind, (folder, _) in models.items()}
    of_ranks = start(ranks.in_and_out, world_size, ep_size, folders, "float32", tmp_path, 30_000)
    for kind, (folder, logits) in models.items():
        assert logits.std() > 0.5
        for found in of_ranks:
            assert np.abs(found[kind] - logits).max() < 1e-5 * np.abs(logits).max(), kind
        assert len(list((tmp_path / kind).glob("*.safetensors"))) > ep_size
        read, written = hf_models.tensors_in(folder), hf_models.tensors_in(tmp_path / kind)
        assert read.keys() == written.keys()
        for name, tensor in read.items():
            assert written[name].dtype == tensor.dtype and torch.equal(written[name], tensor), name
