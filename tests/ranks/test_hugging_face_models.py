"""A model read from a released config.json computes what transformers' class computes from the same file."""

from contextlib import ExitStack, contextmanager
from unittest import mock

import numpy as np
import pytest
import released
import rollout_ranks as ranks
import torch
import torch.nn.functional as F

from flexfloor.launch import run_ranks
from flexfloor.models.config import ModelConfig
from flexfloor.models.hf_config import read_hf_config
from flexfloor.models.registry import weight_map_of
from flexfloor.models.weights.state_dict import hf_state_dict


def start(fn, *args):
    return run_ranks(fn, 1, *args, threads_per_rank=1, total_timeout_seconds=200)[0]


def both(folder, dtype):
    """Our model and transformers', of the same config.json and weights."""
    from transformers import AutoConfig, AutoModelForCausalLM

    found = read_hf_config(folder)
    model = ModelConfig(**found.fields, dtype=dtype)
    ours = ranks.built(model)
    config = AutoConfig.from_pretrained(folder, dtype=getattr(torch, dtype))
    theirs = AutoModelForCausalLM.from_config(config, experts_implementation="eager").eval()
    theirs.to(getattr(torch, dtype))  # routers too, which are made in float32
    theirs.load_state_dict(hf_state_dict(ours, weight_map_of(model)))
    return ours, theirs


@contextmanager
def wide_inside(dtype):
    """In float64, norms and routers of transformers take float64 too, where their code says float32.

    Angles stay in float32, as ours do, and have the cosines of `cos`, from which those of `polar` differ.
    """
    if dtype != "float64":
        yield
        return
    narrow, softmax = torch.Tensor.float, F.softmax
    patches = [
        (torch, "float32", torch.float64),
        (torch.Tensor, "float", lambda x: x if x.dtype is torch.float64 else narrow(x)),
        (torch, "polar", lambda length, angle: torch.complex(length * angle.cos(), length * angle.sin())),
        (F, "softmax", lambda x, dim, **unused: softmax(x, dim)),
    ]
    with ExitStack() as stack:
        for patched in patches:
            stack.enter_context(mock.patch.object(*patched))
        yield


def both_logits(folder, dtype):
    from flexfloor.models.forward import packed_logits

    ours, theirs = both(folder, dtype)
    ids = (torch.arange(75) * 7) % ranks.VOCAB
    positions = torch.cat([torch.arange(15), torch.arange(60)])
    bounds = torch.tensor([0, 15, 75], dtype=torch.int32)
    with torch.no_grad():
        found = packed_logits(ours, ids, positions, bounds)
    with torch.no_grad(), wide_inside(dtype):
        expected = torch.cat([theirs(part[None]).logits[0] for part in ids.split([15, 60])])
    return found.double().numpy(), expected.double().numpy()


@pytest.mark.parametrize("name", released.RELEASED)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-12)])
def test_logits_are_those_of_transformers(name, dtype, tolerance, tmp_path):
    ours, theirs = start(both_logits, released.write(tmp_path, name), dtype)
    assert np.abs(theirs).max() > 1
    assert np.abs(ours - theirs).max() < tolerance * np.abs(theirs).max()


def test_a_rotary_base_keeps_its_fraction(tmp_path):
    ours, theirs = start(both_logits, released.write(tmp_path, "Mixtral", rope_theta=2.75), "float64")
    assert np.abs(ours - theirs).max() < 1e-12 * np.abs(theirs).max()


def greedy_tokens(folder, path):
    ours, theirs = both(folder, "float32")
    found, _ = ranks.generate(ours, path=path, deal="by prompt", sampling={"temperature": 0.0})
    expected = {}
    for request in ranks.requests():
        key = (request.uid, request.response_index)
        found[key] = found[key].token_ids
        expected[key] = continued(theirs, request) if request.response_index == 0 else expected[key[0], 0]
    return found, expected


def continued(theirs, request):
    prompt = torch.tensor([request.prompt_ids])
    ids = theirs.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=request.max_new_tokens,
        do_sample=False,
        eos_token_id=ranks.EOS,
        pad_token_id=0,
    )
    return tuple(ids[0, prompt.size(1) :].tolist())


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("DeepSeek-V2", "fast"),
        ("DeepSeek-V3", "fast"),
        (released.BY_TRANSFORMERS_5, "fast"),
        (released.BY_TRANSFORMERS_5, "reference"),
    ],
)
def test_greedy_tokens_are_those_of_transformers(name, path, tmp_path):
    ours, theirs = start(greedy_tokens, released.write(tmp_path, name), path)
    assert ours == theirs
    tokens = [token for response in ours.values() for token in response]
    assert len(tokens) > 300 and len(set(tokens)) > 10, "something to confuse"
