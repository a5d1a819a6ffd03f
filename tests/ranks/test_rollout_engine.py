"""What the engine does with cache, prefill, idle ranks and the training model's log-probabilities."""

import numpy as np
import pytest
import rollout_ranks as ranks
import torch

from flexfloor import parallel
from flexfloor.errors import ConfigError
from flexfloor.launch import run_ranks
from flexfloor.models.hugging_face import hf_config
from flexfloor.models.registry import weight_map_of
from flexfloor.models.weights.state_dict import hf_state_dict
from flexfloor.schedule.prediction import greatest_length


def start(fn, world_size, *args):
    return run_ranks(fn, world_size, *args, threads_per_rank=1, total_timeout_seconds=200)


def prefilled_on_one_rank(max_live):
    _, [stats] = ranks.generate(
        ranks.new_model(1, "float32"), path="fast", deal="by prompt", max_live=max_live
    )
    return stats.prefilled_tokens, stats.decoded_tokens, stats.peak_kv_bytes


def test_a_groups_prompt_is_prefilled_once():
    once = sum(ranks.PROMPT_LENGTHS)
    assert start(prefilled_on_one_rank, 1, 64)[0][0] == once
    # with one sequence at a time no sibling is there to copy from
    assert start(prefilled_on_one_rank, 1, 1)[0][0] == ranks.SIBLINGS * once
    # with two at a time a sibling often is
    assert once < start(prefilled_on_one_rank, 1, 2)[0][0] < ranks.SIBLINGS * once


def stats_with_all_on_the_last_rank(path):
    _, stats = ranks.generate(ranks.new_model(2, "float32"), path=path, deal="last rank")
    return stats


@pytest.mark.parametrize("path", ["fast", "reference"])
def test_a_rank_without_sequences_takes_part_to_the_end(path):
    [idle, busy], _ = start(stats_with_all_on_the_last_rank, 2, path)
    assert idle.decoded_tokens == idle.prefilled_tokens == 0 and idle.busy_seconds == 0
    assert busy.decoded_tokens > 100
    assert idle.passes == busy.passes >= 20


def loads(path, name, budget):
    model = ranks.new_model(2, "float64", name)
    return ranks.generate(model, path=path, deal="by response", kv_budget_bytes=budget)[1]


@pytest.mark.parametrize("budget", [2**26, 32_000])
@pytest.mark.parametrize(("name", "topk"), [("mixtral", 2), ("qwen3_moe", 3), ("deepseek_v3", 4)])
def test_every_row_chooses_its_experts_once_on_both_paths(name, topk, budget):
    fast, reference = (start(loads, 2, path, name, budget)[0] for path in ("fast", "reference"))
    for ours, expected, num_responses in zip(fast, reference, (11, 10), strict=True):
        assert (ours.expert_load == expected.expert_load).all()
        assert (ours.preemptions > 0) == (ours.recomputed_tokens > 0) == (budget == 32_000)
        # a token that comes from a prefill has no row of its own, and a response's last one is never fed
        from_prefills = num_responses + ours.preemptions
        rows = ours.prefilled_tokens + ours.recomputed_tokens + ours.decoded_tokens - from_prefills
        assert (ours.expert_load.sum(axis=1) == topk * rows).all()


def under_budget(budget, admission, predict):
    found, [stats] = ranks.generate(
        ranks.new_model(1, "float32"),
        path="fast",
        deal="by prompt",
        kv_budget_bytes=budget,
        admission=admission,
        predict=predict,
    )
    return len(found), stats


def needs_nothing_more(uid, num_tokens, max_new_tokens):
    return num_tokens + 1


def test_the_cache_stays_within_its_budget_and_reserving_or_predicting_rightly_preempts_nothing():
    for budget in (12_000, 40_000):
        found = {
            admission: start(under_budget, 1, budget, admission, None)[0]
            for admission in ("predicted", "reserve")
        }
        for count, stats in found.values():
            assert count == 21 and 0 < stats.peak_kv_bytes <= budget
        assert found["reserve"][1].preemptions == found["reserve"][1].recomputed_tokens == 0
        assert found["predicted"][1].preemptions > 0
        assert found["predicted"][1].passes < found["reserve"][1].passes


def test_a_schedules_own_prediction_decides_who_is_admitted():
    eager, careful = (
        start(under_budget, 1, 40_000, admission, predict)[0][1]
        for admission, predict in (("reserve", needs_nothing_more), ("predicted", greatest_length))
    )
    assert eager.preemptions > 0 and careful.preemptions == 0


def live_under_budget(budget):
    return under_budget(budget, "predicted", None)


def test_a_budget_too_small_for_one_sequence_is_an_error():
    # 41 tokens at most, of 2 layers x 2 (K, V) x 2 heads x 8 channels x 4 bytes
    with pytest.raises(ConfigError, match=r"rollout.kv_budget_bytes = 9000: .*at least 10496 bytes"):
        start(live_under_budget, 1, 9000)


def rollout_and_training_logprobs(ep_size, dtype, temperature, name):
    from flexfloor.train.recompute import compute_logprobs

    model = ranks.new_model(ep_size, dtype, name)
    found, _ = ranks.generate(model, path="fast", deal="by response", sampling={"temperature": temperature})
    trained = compute_logprobs(
        model, ranks.samples(found), parallel.groups().dp_cp, micro_batch_tokens=100, temperature=temperature
    )
    sampled = [np.array(response.logprobs) for _, response in sorted(found.items())]
    return np.concatenate(sampled), np.concatenate(trained)


@pytest.mark.parametrize(("world_size", "ep_size"), [(1, 1), (2, 2), (4, 2)])
@pytest.mark.parametrize(
    ("name", "temperature"),
    [("mixtral", 1.0), ("mixtral", 0.6), ("qwen3_moe", 0.8), ("deepseek_v3", 1.2)],
)
def test_the_sampler_and_the_trainer_agree_so_the_first_ratio_is_1(world_size, ep_size, name, temperature):
    sampled, trained = start(
        rollout_and_training_logprobs, world_size, ep_size, "float64", temperature, name
    )[0]
    assert np.abs(np.exp(trained - sampled) - 1).max() < 1e-12
    assert len(sampled) > 200 and sampled.std() > 0.5, "log-probabilities that could not be mixed up"


@pytest.mark.parametrize("name", ranks.MODELS)
def test_the_sampler_and_the_trainer_agree_in_float32(name):
    sampled, trained = start(rollout_and_training_logprobs, 2, 2, "float32", 1.0, name)[0]
    assert np.abs(np.exp(trained - sampled) - 1).max() < 1e-4


def our_and_hf_logits(name):
    from transformers import AutoModelForCausalLM

    from flexfloor.models.forward import packed_logits

    model = ranks.new_model(1, "float32", name)
    ours = ranks.model_config("float32", name)
    config = hf_config(ours, vocab_size=ranks.VOCAB, max_sequence_length=ranks.LONGEST)
    peer = AutoModelForCausalLM.from_config(config).eval()
    peer.load_state_dict(hf_state_dict(model, weight_map_of(ours)))
    ids = torch.arange(40) % ranks.VOCAB
    positions = torch.cat([torch.arange(15), torch.arange(25)])
    bounds = torch.tensor([0, 15, 40], dtype=torch.int32)
    with torch.no_grad():
        ours = packed_logits(model, ids, positions, bounds)
        theirs = torch.cat([peer(part[None]).logits[0] for part in ids.split([15, 25])])
    return ours.numpy(), theirs.numpy(), type(peer).__name__


@pytest.mark.parametrize(
    ("name", "peer"),
    [
        ("mixtral", "MixtralForCausalLM"),
        ("qwen3_moe", "Qwen3MoeForCausalLM"),
        (ranks.UNNORMALISED, "Qwen3MoeForCausalLM"),
        ("deepseek_v3", "DeepseekV3ForCausalLM"),
        (ranks.WHOLE_QUERIES, "DeepseekV3ForCausalLM"),
    ],
)
def test_logits_are_hugging_faces(name, peer):
    ours, theirs, found = start(our_and_hf_logits, 1, name)[0]
    assert found == peer
    assert np.abs(ours).max() > 1
    assert np.abs(ours - theirs).max() < 1e-4


def weights_of(ep_size, name):
    from flexfloor.models.init import global_parameters

    model = ranks.new_model(ep_size, "float64", name)
    return {name: weight.detach().double().sum().item() for name, weight in global_parameters(model)}


@pytest.mark.parametrize("name", ranks.FAMILIES)
def test_initial_weights_do_not_depend_on_the_layout(name):
    [alone] = start(weights_of, 1, 1, name)
    for ep_size in (2, 4):
        spread = start(weights_of, ep_size, ep_size, name)
        assert {name for part in spread for name in part} == set(alone)
        for part in spread:
            assert part == {name: alone[name] for name in part}
