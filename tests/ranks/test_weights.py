"""Weights of Hugging Face folders in and out of models on ranks: the same logits, and the same bits."""

import hf_models
import numpy as np
import pytest
import torch
import weights_ranks as ranks

from flexfloor.launch import run_ranks

SLOW = pytest.mark.slow
LAYOUTS = [(2, 2), (4, 2), pytest.param(1, 1, marks=SLOW), pytest.param(4, 4, marks=SLOW)]


def start(fn, world_size, *args):
    return run_ranks(fn, world_size, *args, threads_per_rank=1, total_timeout_seconds=200)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folder and logits of each kind of model, by transformers."""
    return hf_models.saved_with_logits(tmp_path_factory.mktemp("hf"), ranks.TOKENS)


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


def cuts(folders):
    """Of each parameter the dimension that tensor parallelism cuts, by the weight map and by Megatron."""
    from flexfloor import parallel
    from flexfloor.models.build import build_shell
    from flexfloor.models.config import ModelConfig
    from flexfloor.models.hf_config import read_hf_config
    from flexfloor.models.moe_family import MoEFamily
    from flexfloor.models.registry import weight_map_of

    parallel.initialize(ep_size=1, seed=0, timeout_seconds=60)
    plain = MoEFamily.transformer_config

    def initialising(self, model, *, ep_size):
        config = plain(self, model, ep_size=ep_size)
        config.perform_initialization = True  # upstream says how a weight is cut where it fills it
        return config

    MoEFamily.transformer_config = initialising
    found = {}
    for kind, folder in folders.items():
        model = ModelConfig(**read_hf_config(folder).fields)
        gpt = build_shell(model, vocab_size=48, max_sequence_length=8, groups=parallel.groups())
        for name, parameter in gpt.named_parameters():
            is_cut = getattr(parameter, "tensor_model_parallel", False)
            mine = weight_map_of(model).row_of(name)[0].tp_dim
            found[f"{kind}: {name}"] = (mine, parameter.partition_dim if is_cut else None)
    return found


def test_the_maps_know_what_tensor_parallelism_cuts(models):
    [found] = start(cuts, 1, {kind: folder for kind, (folder, _) in models.items()})
    assert {name: both for name, both in found.items() if both[0] != both[1]} == {}
    assert {mine for mine, _ in found.values()} == {None, 0, 1}
