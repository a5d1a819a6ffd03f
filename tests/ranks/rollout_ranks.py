"""What the rollout tests run on their ranks: a small model, requests, and ways to generate."""

import dataclasses

import numpy as np
import torch
import torch.distributed as dist

from flexfloor import parallel
from flexfloor.elastic.config import ElasticConfig
from flexfloor.models.build import build_model
from flexfloor.models.config import ModelConfig
from flexfloor.rollout.config import RolloutConfig, SamplingConfig
from flexfloor.rollout.engine import RolloutEngine
from flexfloor.rollout.types import Request

VOCAB, EOS, LONGEST = 48, 1, 64
PROMPT_LENGTHS = [5, 1, 9, 3, 17, 2, 8]
SIBLINGS = 3


FAMILIES = {
    "mixtral": {},
    "qwen3_moe": {
        "family": "qwen3_moe",
        "head_dim": 12,
        "num_experts": 12,
        "moe_router_topk": 3,
        "rope_theta": 1e6,
        "norm_eps": 1e-6,
    },
    "deepseek_v3": {
        "family": "deepseek_v3",
        "num_layers": 3,
        "first_k_dense_replace": 1,
        "ffn_hidden_size": 40,
        "q_lora_rank": 20,
        "kv_lora_rank": 12,
        "qk_nope_head_dim": 10,
        "qk_rope_head_dim": 6,
        "v_head_dim": 14,
        "num_experts": 12,
        "num_shared_experts": 1,
        "moe_router_topk": 4,
        "moe_router_score_function": "sigmoid",
        "moe_router_num_groups": 4,
        "moe_router_group_topk": 2,
        "moe_router_topk_scaling_factor": 1.6,
        "moe_router_enable_expert_bias": True,
        "norm_eps": 1e-6,
    },
}
"""What sets each family's test model apart; heads of 12 channels where hidden_size / heads is 8."""
UNNORMALISED = "qwen3_moe, shares as they are"
WHOLE_QUERIES = "deepseek_v3, queries without a latent"
TWELVE_EXPERTS = "mixtral, twelve experts"
MODELS = FAMILIES | {
    UNNORMALISED: FAMILIES["qwen3_moe"] | {"norm_topk_prob": False},
    TWELVE_EXPERTS: {"num_experts": 12},
    WHOLE_QUERIES: FAMILIES["deepseek_v3"] | {"q_lora_rank": None, "moe_router_topk_scaling_factor": None},
}


def model_config(dtype, name="mixtral"):
    """Weights large enough that logits differ and responses end at different lengths."""
    shape = {"num_layers": 2, "hidden_size": 32, "moe_ffn_hidden_size": 48, "init_std": 0.2}
    return ModelConfig(**shape | MODELS[name], dtype=dtype)


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


def new_model(ep_size, dtype, name="mixtral", seed=0, tp_size=1):
    """The same weights under every layout, with norms that cannot be mixed up."""
    return built(model_config(dtype, name), ep_size, seed, tp_size=tp_size)


def built(config, ep_size=1, seed=0, num_tokens=None, recompute="none", tp_size=1):
    """As `new_model`, of any configuration."""
    parallel.initialize(ep_size=ep_size, tp_size=tp_size, seed=seed, timeout_seconds=60)
    model = build_model(
        config,
        vocab_size=VOCAB,
        num_tokens=num_tokens,
        max_sequence_length=LONGEST,
        groups=parallel.groups(),
        seed=seed,
        recompute=recompute,
    )
    for number, weight in enumerate(p for p in model.parameters() if p.dim() == 1):
        weight.data += 0.4 * torch.sin(torch.arange(weight.numel(), dtype=weight.dtype) + number)
    for name, bias in model.named_buffers():
        if name.endswith("expert_bias"):
            bias += 0.2 * torch.cos(torch.arange(bias.numel(), dtype=bias.dtype))
    return model


def own(all_requests, deal):
    """The requests of this rank's replica: by response, by prompt, by length, or all to the last one."""
    tp_size = parallel.groups().tp.size()
    rank, world = dist.get_rank() // tp_size, dist.get_world_size() // tp_size
    if deal == "by response":
        return all_requests[rank::world]
    if deal == "backwards":
        return all_requests[rank::world][::-1]
    if deal == "by prompt":
        return [request for request in all_requests if int(request.uid[1:]) % world == rank]
    if deal == "longest first":
        by_length = sorted(all_requests, key=lambda request: -request.max_new_tokens)
        each = -(-len(by_length) // world)
        return by_length[rank * each : (rank + 1) * each]
    assert deal == "last rank", deal
    return all_requests if rank == world - 1 else []


def samples(found):
    """What the trainer takes of generated responses, in their order."""
    from flexfloor.train.types import Sample

    prompts = {request.uid: np.array(request.prompt_ids) for request in requests()}
    return [
        Sample(
            uid=uid,
            response_index=index,
            prompt_ids=prompts[uid],
            response_ids=np.array(response.token_ids),
        )
        for (uid, index), response in sorted(found.items())
    ]


def decode(token_ids):
    """Two letters for each token, so that a string of three lies across a border."""
    return "".join(f"{chr(97 + token // 7)}{chr(97 + token % 7)}" for token in token_ids)


def generate(
    model,
    *,
    path,
    deal,
    max_live=64,
    sampling=None,
    kv_budget_bytes=2**26,
    forced=None,
    predict=None,
    elastic=None,
    ladder=None,
    budget=None,
    on_pass=None,
    on_finished=None,
    guidance=None,
    **rollout,
):
    """{(uid, index): response} of all ranks, and every rank's statistics.

    `kv_budget_bytes` is that of a rank with all heads, and less where a rank has some of them. `forced` is a
    forced length, or one for each request; `elastic` the fields of its section, `budget`
    bytes of memory, `guidance` makes a schedule's out of all requests.
    """
    shape = model.config
    own_heads = 1 if shape.multi_latent_attention else shape.tensor_model_parallel_size
    budget_bytes = kv_budget_bytes // own_heads
    config = RolloutConfig(path=path, max_live_sequences=max_live, kv_budget_bytes=budget_bytes, **rollout)
    engine = RolloutEngine(
        model,
        group=parallel.groups().ep,
        tp_group=parallel.groups().tp,
        rollout=config,
        eos_id=EOS,
        decode=decode,
        elastic=ElasticConfig(**(elastic or {})),
        ladder=ladder,
        budget_bytes=budget,
    )
    assert engine.path_name == path
    made = requests()
    lengths = forced if isinstance(forced, list) else [forced] * len(made)
    wanted = [dataclasses.replace(r, forced_length=n) for r, n in zip(made, lengths, strict=True)]
    responses, stats = engine.generate(
        own(wanted, deal),
        seed=11,
        sampling=SamplingConfig(**(sampling or {})),
        predict=predict,
        on_pass=on_pass,
        on_finished=on_finished,
        guidance=guidance(wanted) if guidance else None,
    )
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, (responses, stats))
    found = {(r.uid, r.response_index): r for mine, _ in gathered for r in mine}
    assert len(found) == sum(len(mine) for mine, _ in gathered), "a response was generated twice"
    return found, [each for _, each in gathered]
