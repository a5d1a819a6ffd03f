"""A model's weights under Hugging Face's names in memory, for comparing with Hugging Face's own classes."""

from __future__ import annotations

import torch
from megatron.core.models.gpt.gpt_model import GPTModel
from torch import Tensor

from flexfloor.models.init import global_tensors
from flexfloor.models.weights.assembly import Assembly, assemble
from flexfloor.models.weights.fusion import num_rows, row_width
from flexfloor.models.weights.take import as_rows
from flexfloor.models.weights.weight_map import WeightMap


def hf_state_dict(gpt: GPTModel, weight_map: WeightMap) -> dict[str, Tensor]:
    """The weights of `gpt`, all of whose experts this rank holds, as transformers 5 has them in memory."""
    own = global_tensors(gpt)
    shapes = {name: tuple(tensor.shape) for name, tensor in own.items()}
    dtypes = {name: tensor.dtype for name, tensor in own.items()}
    vocab_size = gpt.vocab_size
    tensors = assemble(weight_map, shapes, dtypes, vocab_size=vocab_size, fused_experts=True)
    state = {tensor.name: _joined(tensor, own) for tensor in tensors}
    if weight_map.tied is not None and gpt.share_embeddings_and_output_weights:
        name, other = weight_map.tied
        state[name] = state[other]
    return state


def _joined(tensor: Assembly, own: dict[str, Tensor]) -> Tensor:
    parts = [as_rows(own[name])[piece.row : piece.row + piece.num_rows] for name, piece in tensor.sources]
    joined = torch.cat(parts)
    assert joined.shape == (num_rows(tensor.shape), row_width(tensor.shape)), tensor.name
    return joined.view(tensor.shape)
