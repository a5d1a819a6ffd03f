"""What the rollout tests run on their ranks: a small model, requests, and ways to generate."""

import torch
import torch.distributed as dist

from flexfloor import parallel
from flexfloor.models.build import build_model
from flexfloor.models.config import ModelConfig
from flexfloor.rollout.config import RolloutConfig, SamplingConfig
from flexfloor.rollout.engine import RolloutEngine
from flexfloor.rollout.types import Request

VOCAB, EOS, LONGEST = 48, 1, 64
PROMPT_LENGTHS = [5, 1, 9, 3, 17, 2, 8]
SIBLINGS = 3


def model_config(dtype):
    """Weights large enough that logits differ and responses end at different lengths."""
    return ModelConfig(num_layers=2, hidden_size=32, moe_ffn_hidden_size=48, dtype=dtype, init_std=0.2)


def requests():
    """Seven prompts with three responses each, of several allowed lengths."""
    generator = torch.Generator().manual_seed(5)
    made = []
    for index, length in enumerate(PROMPT_LENGTHS):
        prompt = tuple(torch.randint(2, VOCAB, (length,), generator=generator).tolist())
        made += [
            Request(uid=f"p{index}", response_index=i, prompt_ids=prompt, max_new_tokens=12 + 3 * index)
            for i in range(SIBLINGS)
        ]
    return made


def new_model(ep_size, dtype, seed=0):
    """The same weights under every layout."""
    parallel.initialize(ep_size=ep_size, seed=seed, timeout_seconds=60)
    return build_model(
        model_config(dtype),
        vocab_size=VOCAB,
        max_sequence_length=LONGEST,
        groups=parallel.groups(),
        seed=seed,
    )


def own(all_requests, deal):
    """This rank's requests: dealt by response, or by prompt, or all to the last rank."""
    rank, world = dist.get_rank(), dist.get_world_size()
    if deal == "by response":
        return all_requests[rank::world]
    if deal == "backwards":
        return all_requests[rank::world][::-1]
    if deal == "by prompt":
        return [request for request in all_requests if int(request.uid[1:]) % world == rank]
    assert deal == "last rank", deal
    return all_requests if rank == world - 1 else []


def generate(model, *, path, deal, max_live=64, sampling=None, kv_budget_bytes=2**26):
    """{(uid, index): response} of all ranks, and every rank's statistics."""
    rollout = RolloutConfig(path=path, max_live_sequences=max_live, kv_budget_bytes=kv_budget_bytes)
    engine = RolloutEngine(model, group=parallel.groups().ep, rollout=rollout, eos_id=EOS)
    assert engine.path_name == path
    responses, stats = engine.generate(
        own(requests(), deal), seed=11, sampling=SamplingConfig(**(sampling or {}))
    )
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, (responses, stats))
    found = {(r.uid, r.response_index): r for mine, _ in gathered for r in mine}
    assert len(found) == sum(len(mine) for mine, _ in gathered), "a response was generated twice"
    return found, [each for _, each in gathered]
