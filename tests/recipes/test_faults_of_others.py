"""Kinds of faults that other frameworks shipped, and the tests that would show each of them here.

1. A hang: ranks plan different micro-batches, have no data, only filtered groups, or experts without a token.
   tests/unit/train/test_packing.py::test_plan_is_complete_and_alike_on_all_ranks
   tests/unit/train/test_packing.py::test_fewer_samples_than_ranks_leave_empty_micro_batches
   tests/ranks/test_gradients.py::test_gradients_and_metrics_are_the_references ("one row")
   tests/ranks/test_gradients.py::test_updates_without_tokens_or_without_a_finite_loss_change_nothing
   tests/ranks/test_gradients.py::test_ranks_with_different_samples_stop_instead_of_hanging
   tests/ranks/test_rollout_engine.py::test_a_rank_without_sequences_takes_part_to_the_end
   tests/recipes/test_grpo.py::test_a_batch_that_teaches_nothing_passes_without_a_hang
   tests/recipes/test_faults_of_others.py::test_groups_filtered_on_some_ranks_only
2. A batch that the ranks do not divide is refused, or truncated to nothing; a split over the wrong ranks.
   tests/unit/test_schedule_static.py::test_deals_each_prompt_once_in_order_and_evenly
   tests/recipes/test_grpo.py::test_what_is_learned_does_not_depend_on_the_layout
   tests/recipes/test_faults_of_others.py::test_fewer_prompts_than_ranks
3. The gradient depends on the split into micro-batches; an auxiliary loss is counted for each of them.
   tests/ranks/test_gradients.py::test_gradients_and_metrics_are_the_references
   tests/unit/train/test_aggregate.py::test_parts_of_a_split_add_up
   tests/recipes/test_faults_of_others.py::test_no_auxiliary_loss_is_added_to_the_routers
4. Equal rewards whose standard deviation is not 0.
   tests/unit/train/test_advantage.py::test_equal_rewards_give_exactly_zero
   tests/unit/train/test_advantage.py::test_float32_rewards_are_normalised_in_float64
5. NaN from masked positions; advantages of padding; nothing but empty responses.
   tests/unit/train/test_forward.py::test_nan_at_prompt_rows_reaches_no_gradient
   tests/unit/train/test_train_logprobs.py::test_nan_in_rows_that_are_not_read_reaches_neither_values_nor_gradient
   tests/unit/train/test_packed_batch.py::test_empty_response_has_no_rows
   tests/ranks/test_gradients.py::test_updates_without_tokens_or_without_a_finite_loss_change_nothing
6. A KL term without gradient.
   tests/unit/train/test_kl.py::test_value_and_slope_by_hand
   tests/ranks/test_gradients.py::test_gradients_and_metrics_are_the_references ("kl")
7. The end token is lost from the loss where it pads too; no padding token; not exactly one end token.
   tests/unit/data/test_demonstrations.py::test_exactly_one_eos_ends_an_answer_whatever_padding_is
   tests/unit/train/test_packed_batch.py::test_exactly_the_response_is_trained_even_when_pad_and_eos_share_an_id
   tests/ranks/test_same_tokens.py::test_finish_reasons_and_one_end_token
8. Log-probabilities without the temperature, of the wrong token, or changed by padding.
   tests/unit/train/test_train_logprobs.py::test_formula_with_temperature
   tests/ranks/test_rollout_engine.py::test_the_sampler_and_the_trainer_agree_so_the_first_ratio_is_1
   tests/ranks/test_gradients.py::test_recomputed_logprobs_are_the_references
9. A response that waited, moved or was recomputed gets its whole token budget again.
   tests/ranks/test_same_tokens.py::test_float64_tokens_are_exactly_the_same_in_every_layout_and_way
   tests/ranks/test_same_tokens.py::test_finish_reasons_and_one_end_token
   tests/ranks/test_same_tokens.py::test_sequences_yield_and_are_computed_again_where_the_budget_is_tight
10. Padding is routed to experts; a token is counted for an expert that it did not choose.
   tests/ranks/test_gradients.py::test_only_rows_of_samples_are_routed
   tests/ranks/test_rollout_engine.py::test_every_row_chooses_its_experts_once_on_both_paths
   tests/unit/test_expert_load.py::test_counts_each_choice_in_its_layer
12. A resumed run with a fresh schedule, optimizer, data order or W&B run.
   tests/ranks/test_checkpoint.py::test_resumed_run_equals_the_unbroken_one
   tests/recipes/test_grpo.py::test_resuming_equals_not_stopping
   tests/unit/data/test_sampler.py::test_a_restored_sampler_continues_where_the_saved_one_stood
   tests/unit/track/test_track_tracker.py::test_a_resumed_run_has_the_same_id_and_no_step_twice
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from small_run import learned, metrics_of, run

from flexfloor import parallel
from flexfloor.launch import run_ranks
from flexfloor.models.build import build_model
from flexfloor.models.config import ModelConfig

ROOT = Path(__file__).parents[2]
FLOAT64 = ["model.dtype=float64", "launch.threads_per_rank=1", "trainer.val_before_train=false"]
LISTED = re.findall(r"^   (tests/\S+)::(\w+)", __doc__, re.MULTILINE)
SCORER = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return 0.5 if ground_truth[0] < "m" else len(solution_str) / 10
"""


@pytest.mark.parametrize(("file", "name"), LISTED, ids=lambda part: part.rpartition("/")[2])
def test_the_list_names_tests_that_are_there(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def steps_of(folder: Path, *words: str, layout: tuple[int, int]) -> list[dict[str, float]]:
    """What a run of `layout` (ranks, EP size) learns at each step, and how much of it was trained."""
    ranks, ep = layout
    own = folder / f"{ranks}-{ep}"
    assert run(own, *FLOAT64, f"launch.nproc={ranks}", f"parallel.ep={ep}", *words) == 0
    return [learned(step) for _, step in sorted(metrics_of(own).items())]


def test_fewer_prompts_than_ranks(tmp_path) -> None:
    words = ["data.train_batch_size=1", "actor.ppo_mini_batch_size=1", "data.val_size=1"]
    alone, spread = (steps_of(tmp_path, *words, layout=layout) for layout in ((1, 1), (4, 2)))
    assert len(spread) == 3
    for ours, expected in zip(spread, alone, strict=True):
        assert ours == pytest.approx(expected, rel=1e-7, abs=1e-10)


def test_groups_filtered_on_some_ranks_only(tmp_path) -> None:
    (tmp_path / "scorer.py").write_text(SCORER)
    words = [
        f"reward.custom_reward_function.path={tmp_path / 'scorer.py'}",
        "algorithm.filter_groups=true",
        "data.val_size=0",
        "trainer.test_freq=-1",
        "trainer.total_training_steps=3",
    ]
    alone, spread = (steps_of(tmp_path, *words, layout=layout) for layout in ((1, 1), (2, 2)))
    trained = [step["critic/trained_fraction"] for step in alone[1:]]
    assert any(0 < share < 1 for share in trained), trained
    for ours, expected in zip(spread, alone, strict=True):
        assert ours == pytest.approx(expected, rel=1e-7, abs=1e-10)


def router_settings() -> list[tuple[str, float, float | None]]:
    """What could add to the gradient of each router, on one rank."""
    parallel.initialize(ep_size=1, seed=0, timeout_seconds=60)
    config = ModelConfig(num_layers=2, hidden_size=32, moe_ffn_hidden_size=32)
    model = build_model(config, vocab_size=16, max_sequence_length=8, groups=parallel.groups())
    return [
        (c.moe_router_load_balancing_type, c.moe_aux_loss_coeff, c.moe_z_loss_coeff)
        for c in (layer.mlp.router.config for layer in model.decoder.layers)
    ]


def test_no_auxiliary_loss_is_added_to_the_routers() -> None:
    [settings] = run_ranks(router_settings, 1, threads_per_rank=1)
    assert settings == [("none", 0.0, None)] * 2
