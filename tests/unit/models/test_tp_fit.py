"""What tensor parallelism cannot cut evenly is refused by its name, before ranks start."""

import pytest

from flexfloor.errors import ConfigError
from flexfloor.models.config import ModelConfig
from flexfloor.models.tp_fit import check_tp_fit, check_vocabulary_fit

GROUPED = dict(num_attention_heads=8, num_query_groups=4)
LATENT = dict(family="deepseek_v3", num_attention_heads=8, q_lora_rank=8, kv_lora_rank=16, qk_rope_head_dim=8)


@pytest.mark.parametrize("settings", [GROUPED, LATENT, GROUPED | {"vocab_size": 100}])
def test_even_shares_are_accepted(settings):
    check_tp_fit(ModelConfig(**settings), 4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            GROUPED | {"num_attention_heads": 6, "num_query_groups": 2, "head_dim": 8},
            "model.num_attention_heads = 6",
        ),
        (GROUPED | {"num_query_groups": 2}, "model.num_query_groups = 2"),
        (GROUPED | {"vocab_size": 99}, "model.vocab_size = 99"),
        (LATENT | {"q_lora_rank": 7}, "model.q_lora_rank = 7"),
        (LATENT | {"kv_lora_rank": 15}, "model.kv_lora_rank + model.qk_rope_head_dim = 23"),
        (GROUPED | {"first_k_dense_replace": 1, "ffn_hidden_size": 30}, "model.ffn_hidden_size = 30"),
        (
            GROUPED | {"num_shared_experts": 1, "moe_ffn_hidden_size": 6},
            "model.num_shared_experts * model.moe_ffn_hidden_size = 6",
        ),
    ],
)
def test_the_field_that_does_not_divide_is_named(settings, message):
    model = ModelConfig(**settings)
    check_tp_fit(model, 1)
    with pytest.raises(ConfigError) as raised:
        check_tp_fit(model, 4)
    assert str(raised.value) == f"{message}: must be a multiple of parallel.tp = 4"


def test_widths_of_layers_that_the_model_lacks_do_not_count():
    check_tp_fit(ModelConfig(**GROUPED, ffn_hidden_size=30), 4)


def test_a_vocabulary_is_told_how_to_divide():
    check_vocabulary_fit(100, 4)
    with pytest.raises(ConfigError) as raised:
        check_vocabulary_fit(97, 4)
    message = (
        "model.vocab_size = 97: must be a multiple of parallel.tp = 4; model.vocab_size=100 leaves 3 unused"
    )
    assert str(raised.value) == message
