"""The memory estimate, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from flexfloor.config import compose
from flexfloor.doctor import memory
from flexfloor.doctor.parameters import dense_parameters, expert_parameters

VOCAB_SIZE = 320


def test_a_rank_on_a_cpu_holds_its_experts_and_everything_five_times() -> None:
    # one layer, hidden 4, 2 heads of 2 with 2 groups, 4 experts of width 3 on 2 ranks, vocabulary 8
    settings = ["model.num_layers=1", "model.hidden_size=4", "model.num_attention_heads=2"]
    settings += ["model.num_query_groups=2", "model.moe_ffn_hidden_size=3", "model.num_experts=4"]
    settings += ["data.tasks=[{name: spell_backward}]", "launch.nproc=2", "parallel.ep=2"]
    settings += ["data.max_prompt_length=6", "data.max_response_length=4", "rollout.max_live_sequences=3"]
    config = compose([*settings, "actor.micro_batch_tokens=10"])
    dense = 4 * 8 * 2 + (4 * 4 * 4 + 2 * 4 + 4 * 4) + 4
    own_experts = 2 * 3 * 4 * 3
    kv = 3 * 10 * (2 * 2 * 2 * 4)
    activations = 2 * 10 * (10 * 8 + 2 * (24 + 15) + 4 * 8) * 4
    expected = (dense + own_experts) * 4 * 5 + kv + activations + memory.PROCESS_BYTES
    assert memory.rank_bytes(config, vocab_size=8, world_size=2, is_cpu_host=True) == expected


def test_ranks_of_a_replica_share_what_is_dense_and_all_but_the_logits() -> None:
    """The first case on 4 ranks, two replicas of two: 2 experts and one head with one group each."""
    # one layer, hidden 4, 2 heads of 2 with 2 groups, 4 experts of width 3, vocabulary 8
    settings = ["model.num_layers=1", "model.hidden_size=4", "model.num_attention_heads=2"]
    settings += ["model.num_query_groups=2", "model.moe_ffn_hidden_size=3", "model.num_experts=4"]
    settings += ["data.tasks=[{name: spell_backward}]", "launch.nproc=4", "parallel.ep=2", "parallel.tp=2"]
    settings += ["data.max_prompt_length=6", "data.max_response_length=4", "rollout.max_live_sequences=3"]
    config = compose([*settings, "actor.micro_batch_tokens=10"])
    # embeddings 64, attention 64, norms 8, router 16, last norm 4; an expert has 36
    dense, own_experts, logits = 156, 2 * 36, 4 * 8
    layers = 10 * 8 + 2 * (24 + 15)
    activations = 10 * 2 * 4 * (layers // 2 + logits)
    cache = 3 * 10 * (2 * 1 * 2 * 4)
    found = memory.gpu_memory(config, vocab_size=8, world_size=4, ep=2)
    assert (found.dense, found.experts) == (4 * dense // 2, 4 * own_experts)
    assert found.gradients == 4 * (dense // 2 + own_experts)
    # a half lies on two ranks, an expert on two of four: Adam's state lies once on all of them
    assert found.optimizer == 12 * (dense // 4 + 4 * 36 // 4)
    assert (found.cache, found.activations) == (cache, activations)
    on_cpu = (dense // 2 + own_experts) * 4 * 5 + cache + activations + memory.PROCESS_BYTES
    assert memory.rank_bytes(config, vocab_size=8, world_size=4, is_cpu_host=True) == on_cpu


def test_accelerators_share_the_optimizer_out_and_the_process_is_the_hosts() -> None:
    shape = ["recipe=tiny-mixtral", "model.dtype=bfloat16"]
    config = compose([*shape, "launch.nproc=8"])
    dense = dense_parameters(config.model, VOCAB_SIZE)
    experts = expert_parameters(config.model) * 8
    # 4 ranks share the experts, so that 8 ranks hold each expert twice and each dense weight 8 times
    state = (dense + experts // 4) * 6 + 12 * (dense // 8 + experts // 8)
    # The cache is gone when the update begins.
    rest = max(memory.kv_bytes(config), memory.activation_bytes(config, VOCAB_SIZE))
    found = memory.rank_bytes(config, vocab_size=VOCAB_SIZE, world_size=8, is_cpu_host=False)
    assert found == state + rest


def test_the_kv_cache_stays_within_its_budget() -> None:
    config = compose(["recipe=tiny-mixtral", "rollout.kv_budget_bytes=300000"])
    assert memory.kv_bytes(config) == 300000


def test_a_sequence_longer_than_a_micro_batch_is_trained_whole() -> None:
    words = ["recipe=tiny-mixtral", "actor.micro_batch_tokens=100"]
    short, long = (compose([*words, f"data.max_response_length={more}"]) for more in (4, 104))
    of_100, of_200 = (memory.activation_bytes(config, VOCAB_SIZE) for config in (short, long))
    assert of_200 == 2 * of_100


def test_what_is_recomputed_is_kept_as_one_layer_by_hand() -> None:
    # three layers, hidden 4, 2 heads of 2, 2 of the experts of width 3, vocabulary 8, 10 rows in float32
    shape = ["model.num_layers=3", "model.hidden_size=4", "model.num_attention_heads=2"]
    shape += ["model.num_query_groups=2", "model.moe_ffn_hidden_size=3", "actor.micro_batch_tokens=10"]
    shape += ["data.tasks=[{name: spell_backward}]", "data.max_prompt_length=6", "data.max_response_length=4"]
    attention, experts, logits = 10 * 8, 2 * (24 + 15), 4 * 8
    numbers = {
        "none": 3 * (attention + experts) + logits,
        "moe": 3 * attention + experts + logits,
        "full": 3 * 4 + attention + experts + logits,
    }
    for recompute, kept in numbers.items():
        config = compose([*shape, f"actor.recompute={recompute}"])
        assert memory.activation_bytes(config, 8) == 10 * 2 * 4 * kept


def test_mixtral_8x7b_on_8_gpus_by_hand() -> None:
    sizes = ["data.max_response_length=320", "actor.micro_batch_tokens=512", "actor.recompute=none"]
    config = compose(["recipe=mixtral-8x7b", *sizes])
    attention = 4096 * (2 * 32 + 2 * 8) * 128
    dense = 2 * 32_000 * 4096 + 32 * (attention + 2 * 4096 + 8 * 4096) + 4096
    expert = 32 * 3 * 4096 * 14_336
    found = memory.gpu_memory(config, vocab_size=32_000, world_size=8, ep=8)
    assert (found.dense, found.experts) == (2 * dense, 2 * expert)
    assert found.gradients == 4 * (dense + expert)
    assert found.optimizer == 12 * (dense // 8 + expert)
    assert found.cache == 128 * 512 * 131_072
    numbers_of_a_row = 32 * (10 * (4096 + 4096) + 2 * (6 * 4096 + 5 * 14_336)) + 4 * 32_000
    assert found.activations == 512 * 2 * 2 * numbers_of_a_row
    assert found.most == 6 * (dense + expert) + found.optimizer + found.activations
    assert (found.most - found.activations) / 2**30 == pytest.approx(105.7, abs=0.05)


def test_a_state_on_the_host_makes_room_for_the_cache_and_is_there_for_the_update() -> None:
    sizes = ["rollout.kv_budget_bytes=68719476736", "rollout.max_live_sequences=1024"]
    stays, leaves = (
        memory.gpu_memory(
            compose(["recipe=mixtral-8x7b", *sizes, f"actor.offload_optimizer={leaves}"]),
            vocab_size=32_000,
            world_size=8,
            ep=8,
        )
        for leaves in (False, True)
    )
    always = leaves.dense + leaves.experts + leaves.gradients
    assert leaves.optimizer == stays.optimizer > 2**36 and leaves.cache == 2**36
    assert (stays.training, leaves.training) == (stays.gradients + stays.optimizer, leaves.gradients)
    assert stays.most == always + stays.optimizer + stays.cache
    assert leaves.most == always + leaves.optimizer + leaves.activations
