"""The part `references` of `gpu_check`: a small model of each family against computations in float64.

transformers computes the logits of the same weights in float64 on the CPU, and they must be those of the
float64 model on the device, whose experts run one by one. That model's logits and gradients are then the
measure of float32 and bfloat16 on the device with experts in grouped products. All have weights that
bfloat16 holds exactly, so that only computing differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from gpu_parts import Result
from torch import Tensor, nn

from flexfloor import device, parallel
from flexfloor.elastic.expert_banks import is_even
from flexfloor.elastic.moe_layer import moe_layers
from flexfloor.models.build import build_model
from flexfloor.models.config import ModelConfig
from flexfloor.models.forward import packed_logits
from flexfloor.models.hugging_face import hf_config
from flexfloor.models.registry import weight_map_of
from flexfloor.models.weights.state_dict import hf_state_dict

VOCAB, LENGTHS = 128, (17, 5, 42)
SHAPE = {"num_layers": 2, "hidden_size": 64, "moe_ffn_hidden_size": 96, "init_std": 0.08}
FAMILIES: dict[str, dict[str, Any]] = {
    "mixtral": {},
    "qwen3_moe": {"family": "qwen3_moe", "num_experts": 12, "moe_router_topk": 4, "norm_eps": 1e-6},
    "deepseek_v3": {
        "family": "deepseek_v3",
        "first_k_dense_replace": 1,
        "ffn_hidden_size": 128,
        "q_lora_rank": 32,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 16,
        "v_head_dim": 16,
        "num_shared_experts": 1,
        "moe_router_topk": 4,
        "moe_router_score_function": "sigmoid",
        "moe_router_num_groups": 4,
        "moe_router_group_topk": 2,
        "moe_router_enable_expert_bias": True,
        "norm_eps": 1e-6,
    },
}
PEER_LIMIT = 1e-6
"""|difference| / |logits|; transformers takes norms and softmax in float32 whatever the model's type is."""
LOGITS_LIMIT = {"float32": 1e-5, "bfloat16": 3e-2}
"""Median over rows of |difference| / |logits|: single rows may choose another expert at a near tie."""
GRADIENT_LIMIT = {"float32": 1e-4, "bfloat16": 0.15}
"""|difference| / |gradient| over all parameters together."""


def run(size: str) -> Iterator[Result]:
    """Each family in turn."""
    for name, fields in FAMILIES.items():
        config = {**SHAPE, **fields}
        exact = _build(config, "float64", grouped=False)
        logits, gradients = _logits_and_gradients(exact)
        error = float((logits - _transformers(exact, config)).norm() / logits.norm())
        yield f"{name} in float64 against transformers", error < PEER_LIMIT, {"logits_error": error}
        for dtype in LOGITS_LIMIT:
            model = _build(config, dtype, grouped=True)
            _take_weights(model, exact)
            even = all(is_even(layer.expert_weights()) for layer in moe_layers(model))
            yield _compared(
                f"{name} in {dtype}, grouped", dtype, even, _logits_and_gradients(model), (logits, gradients)
            )


def _build(fields: dict[str, Any], dtype: str, *, grouped: bool) -> nn.Module:
    model = build_model(
        ModelConfig(**fields, dtype=dtype),
        vocab_size=VOCAB,
        max_sequence_length=max(LENGTHS),
        groups=parallel.groups(),
        groups_experts=grouped,
    )
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.bfloat16())
    if grouped:
        lay_evenly(model)
    return model


@torch.no_grad()
def lay_evenly(model: nn.Module) -> None:
    """Let experts of a layer lie side by side, as they do in buffers of the distributed optimizer."""
    for layer in moe_layers(model):
        weights = [weight for pair in layer.expert_weights().values() for weight in pair]
        room = torch.cat([weight.flatten() for weight in weights])
        for weight, place in zip(weights, room.split([weight.numel() for weight in weights]), strict=True):
            weight.data = place.view(weight.shape)


@torch.no_grad()
def _take_weights(model: nn.Module, source: nn.Module) -> None:
    given = {**dict(source.named_parameters()), **dict(source.named_buffers())}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        tensor.copy_(given[name])


def _rows() -> list[Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randint(VOCAB, (length,), generator=generator) for length in LENGTHS]


def _logits_and_gradients(model: nn.Module) -> tuple[Tensor, dict[str, Tensor]]:
    """[T, V] in float64 on the CPU, and of each parameter the gradient of a sum over them."""
    here = device.current_device()
    ids = torch.cat(_rows()).to(here)
    positions = torch.cat([torch.arange(length) for length in LENGTHS]).to(here)
    starts = torch.tensor([0, *LENGTHS]).cumsum(0).to(device=here, dtype=torch.int32)
    logits = packed_logits(model, ids, positions, starts)
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    wide.log_softmax(-1).gather(1, ids.roll(-1)[:, None]).mean().backward()
    gradients = {
        name: weight.grad.double().cpu()
        for name, weight in model.named_parameters()
        if weight.grad is not None
    }
    return logits.detach().double().cpu(), gradients


def _transformers(model: nn.Module, fields: dict[str, Any]) -> Tensor:
    from transformers import AutoModelForCausalLM

    shape = ModelConfig(**fields, dtype="float64")
    config = hf_config(shape, vocab_size=VOCAB, max_sequence_length=max(LENGTHS))
    peer = AutoModelForCausalLM.from_config(config, experts_implementation="eager").double().eval()
    state = hf_state_dict(model, weight_map_of(shape))
    peer.load_state_dict({name: weight.cpu() for name, weight in state.items()})
    with torch.no_grad():
        return torch.cat([peer(row[None]).logits[0] for row in _rows()])


def _compared(name: str, dtype: str, even: bool, got: Any, wanted: Any) -> Result:
    (logits, gradients), (exact_logits, exact_gradients) = got, wanted
    of_rows = (logits - exact_logits).norm(dim=1) / exact_logits.norm(dim=1)
    nothing = torch.zeros(())
    differences = [gradients.get(each, nothing) - exact for each, exact in exact_gradients.items()]
    size = sum(exact.square().sum() for exact in exact_gradients.values()) ** 0.5
    figures = {
        "logits_error": float(of_rows.median()),
        "worst_row": float(of_rows.max()),
        "gradient_error": float(sum(each.square().sum() for each in differences) ** 0.5 / size),
    }
    is_right = (
        figures["logits_error"] < LOGITS_LIMIT[dtype] and figures["gradient_error"] < GRADIENT_LIMIT[dtype]
    )
    return name, bool(is_right and even), figures
