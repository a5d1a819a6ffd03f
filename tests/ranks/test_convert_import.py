"""Hugging Face folders become folders of a checkpoint's weights, which load under any layout and go back."""

import fp8
import hf_models
import numpy as np
import pytest
import tensor_ranks
import torch
import weights_ranks

from flexfloor.convert import import_folder as importing
from flexfloor.convert.export import export_checkpoint
from flexfloor.convert.import_folder import import_folder
from flexfloor.convert.request import Export, Import
from flexfloor.launch import run_ranks
from flexfloor.models.hf_config import read_hf_config


def start(fn, world_size, *args):
    return run_ranks(fn, world_size, *args, threads_per_rank=1, total_timeout_seconds=200)


def in_small_chunks(wanted):
    """An import that cuts every tensor into several chunks."""
    importing.CHUNK_BYTES = 5000
    for each in wanted:
        import_folder_again(each)


def import_folder_again(wanted):
    from flexfloor import parallel

    import_folder(wanted)
    parallel.destroy()


def exported(wanted):
    for each in wanted:
        from flexfloor import parallel

        export_checkpoint(each)
        parallel.destroy()


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folder, imported folder and transformers' logits of each kind of model."""
    found, ids = {}, torch.arange(weights_ranks.TOKENS) % hf_models.VOCAB
    root = tmp_path_factory.mktemp("import")
    for kind in hf_models.KINDS:
        model = hf_models.hf_model(kind)
        with torch.no_grad():
            logits = model(ids[None]).logits[0].double().numpy()
        found[kind] = (hf_models.save(model, root / "hf" / kind), root / "imported" / kind, logits)
    (root / "imported").mkdir()
    start(in_small_chunks, 2, [Import(hf=hf, out=out) for hf, out, _ in found.values()])
    return found


def require_same_tensors(read, written):
    assert read.keys() == written.keys()
    for name, tensor in read.items():
        assert written[name].dtype == tensor.dtype and torch.equal(written[name], tensor), name


def test_what_is_exported_is_what_was_imported(models, tmp_path):
    wanted = [Export(checkpoint=out, out=tmp_path / kind) for kind, (_, out, _) in models.items()]
    start(exported, 1, wanted)
    for kind, (hf, _, _) in models.items():
        require_same_tensors(hf_models.tensors_in(hf), hf_models.tensors_in(tmp_path / kind))
        assert read_hf_config(tmp_path / kind).max_positions == hf_models.POSITIONS


@pytest.mark.parametrize(
    ("world_size", "layout"),
    [
        (2, (2, 2, 1)),
        pytest.param(4, (1, 4, 1), marks=pytest.mark.slow),
        pytest.param(4, (2, 2, 2), marks=pytest.mark.slow),
    ],
)
def test_an_imported_folder_is_a_models_weights_under_any_layout(world_size, layout, models, tmp_path):
    folders = {kind: out for kind, (_, out, _) in models.items()}
    of_ranks = start(tensor_ranks.in_and_out, world_size, layout, folders, tmp_path, 10**9)
    for kind, (hf, _, logits) in models.items():
        for found, _ in (of_rank[kind] for of_rank in of_ranks):
            assert np.abs(found - logits).max() < 1e-5 * np.abs(logits).max(), kind
        require_same_tensors(hf_models.tensors_in(hf), hf_models.tensors_in(tmp_path / kind))


def taken_as(dtype, folder):
    """Weights of the imported `folder` in a model of `dtype`."""
    from flexfloor import parallel
    from flexfloor.models.init import global_tensors

    parallel.initialize(ep_size=1, seed=0, timeout_seconds=60)
    gpt, _ = weights_ranks.taken(folder, dtype=dtype)
    return {name: tensor.detach().numpy() for name, tensor in global_tensors(gpt).items()}


def test_types_are_those_of_the_files_and_weights_in_fp8_become_plain(tmp_path):
    half = hf_models.save(hf_models.hf_model("mixtral", torch.bfloat16), tmp_path / "half")
    source = hf_models.save(hf_models.hf_model("deepseek_v3"), tmp_path / "source", "1GB")
    stored, plain = fp8.quantized(hf_models.tensors_in(source), (16, 16))
    stored["model.norm.weight"] = stored["model.norm.weight"].bfloat16()
    coded = fp8.write(tmp_path / "coded", source, stored, (16, 16))
    wanted = [
        Import(hf=half, out=tmp_path / "out" / "half"),
        Import(hf=coded, out=tmp_path / "out" / "coded"),
        Import(hf=coded, out=tmp_path / "out" / "rounded", dtype="bfloat16"),
    ]
    (tmp_path / "out").mkdir()
    start(in_small_chunks, 1, wanted)
    start(exported, 1, [Export(checkpoint=each.out, out=tmp_path / each.out.name / "hf") for each in wanted])
    require_same_tensors(hf_models.tensors_in(half), hf_models.tensors_in(tmp_path / "half" / "hf"))
    plain["model.norm.weight"] = plain["model.norm.weight"].bfloat16().float()
    require_same_tensors(plain, hf_models.tensors_in(tmp_path / "coded" / "hf"))
    of_router = "model.layers.1.mlp.gate.e_score_correction_bias"
    rounded = {name: t if name.endswith("correction_bias") else t.bfloat16() for name, t in plain.items()}
    assert rounded[of_router].dtype is torch.float32
    require_same_tensors(rounded, hf_models.tensors_in(tmp_path / "rounded" / "hf"))
    [found] = start(taken_as, 1, "float32", tmp_path / "out" / "half")
    embedding = hf_models.tensors_in(half)["model.embed_tokens.weight"].float().numpy()
    assert np.array_equal(found["embedding.word_embeddings.weight"], embedding)
