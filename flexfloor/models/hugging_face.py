"""A model's configuration as an object of transformers, for comparing with its own classes."""

from __future__ import annotations

import torch
from transformers import AutoConfig, PretrainedConfig

from flexfloor.models.config import ModelConfig
from flexfloor.models.hf_config import hf_content


def hf_config(model: ModelConfig, *, vocab_size: int, max_sequence_length: int) -> PretrainedConfig:
    """Hugging Face's configuration of the same model; ConfigError if there is none."""
    content = hf_content(model, vocab_size=vocab_size, max_positions=max_sequence_length)
    content["dtype"] = getattr(torch, content.pop("torch_dtype"))
    return AutoConfig.for_model(**content)
