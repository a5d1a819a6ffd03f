"""The arithmetic of a lease's memory against what guests and the model really allocate."""

import pytest
import rollout_ranks as ranks

from flexfloor.launch import run_ranks


def counted_and_allocated(dtype, name, has_reference, tp_size):
    """(by arithmetic, by adding up tensors) of a guest, and of what the rank has without one."""
    from flexfloor.elastic.moe_layer import moe_layers
    from flexfloor.models.activations import row_activation_bytes
    from flexfloor.models.config import ModelConfig
    from flexfloor.overlap.footprint import SKEW, lease_memory
    from flexfloor.overlap.guests import Guest

    model = ranks.new_model(2, dtype, name, tp_size=tp_size)
    asked = dict(budget=1, training=7, rows=10, recompute="full", has_reference=has_reference)
    memory = lease_memory(model, ModelConfig(), **asked)
    own = [layer.expert_weights() for layer in moe_layers(model)]
    guest = Guest([layer[min(layer)] for layer in own], has_reference=has_reference)
    tensors = [*guest.arriving(), *guest.flat_gradients()]
    allocated = sum(
        storage.nbytes()
        for storage in {t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors}.values()
    )
    held = sum(weight.untyped_storage().nbytes() for weight in model.parameters())
    # all logits of a row are on each rank of a replica, of the rest its part
    passing = memory.rows * SKEW * row_activation_bytes(ModelConfig(), ranks.VOCAB, "full", tp_size)
    return (memory.needed(1) - memory.needed(0), allocated), (memory.needed(0) - passing - 7, held)


@pytest.mark.parametrize(
    ("dtype", "name", "has_reference", "tp_size"),
    [
        ("float32", "mixtral", False, 1),
        ("bfloat16", "mixtral", True, 2),
        ("float64", "deepseek_v3", True, 1),
    ],
)
def test_the_arithmetic_counts_what_a_guest_and_the_model_take(dtype, name, has_reference, tp_size):
    for (guest, allocated), (weights, held) in run_ranks(
        counted_and_allocated,
        2,
        dtype,
        name,
        has_reference,
        tp_size,
        threads_per_rank=1,
        total_timeout_seconds=200,
    ):
        assert guest == allocated
        assert weights == held
