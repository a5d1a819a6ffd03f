"""Shrinking step after step: nothing stays behind, and training goes on as if no rank had ever left."""

import dataclasses
import gc
import os
import time
import weakref

import gradient_ranks as gradients
import numpy as np
import psutil
import pytest
import rollout_ranks as ranks
import torch

from flexfloor import parallel
from flexfloor.launch import run_ranks

MIB = 2**20
EAGER = {"policy": "greedy", "interval": 1, "sequences_per_rank": 21}
STEPWISE = {"policy": "greedy", "interval": 2}
DETACHED = STEPWISE | {"detach": True}
WAYS = (EAGER, STEPWISE, DETACHED)
SLOW_RUNS = [pytest.param(*run, marks=pytest.mark.slow) for run in [("mixtral", 4, 4), ("deepseek_v3", 4, 2)]]
TOTAL_SECONDS = 200


def start(name, ep_size):
    from flexfloor.elastic.ladder import make_ladder

    model = ranks.new_model(ep_size, "float64", name)
    return model, make_ladder(parallel.groups().ep, [], timeout_seconds=60, alone=True)


class Guests:
    """Weak references to what each shrink brings to this rank and to the caches of all rollouts."""

    def __init__(self):
        from flexfloor.rollout import active_group, batch

        self.tensors, self.caches = [], []
        self._migrate, self._init = active_group.migrate, batch.LiveBatch.__init__
        active_group.migrate, batch.LiveBatch.__init__ = self.migrate, self.init()

    def migrate(self, *args, **kwargs):
        arrived = self._migrate(*args, **kwargs)
        self.tensors += [
            weakref.ref(t) for layers in arrived.guests.values() for pair in layers for t in pair
        ]
        self.tensors += [weakref.ref(handed.kept) for handed in arrived.sequences]
        return arrived

    def init(self):
        original, caches = self._init, self.caches

        def init(batch, requests, cache, *args, **kwargs):
            caches.append(weakref.ref(cache))
            original(batch, requests, cache, *args, **kwargs)

        return init

    def left(self):
        """How many of them were seen, and how many are still alive."""
        seen = [*self.tensors, *self.caches]
        return len(seen), sum(each() is not None for each in seen)


def state_of_process():
    """(bytes of all tensors, open file descriptors, resident bytes)."""
    time.sleep(0.5)  # gloo's threads let go of the last collective's tensors after it has returned
    gc.collect()
    storages = {
        each.untyped_storage().data_ptr(): each.untyped_storage().nbytes()
        for each in gc.get_objects()
        if isinstance(each, torch.Tensor) and each.device.type == "cpu" and each.layout == torch.strided
    }
    return sum(storages.values()), len(os.listdir("/proc/self/fd")), psutil.Process().memory_info().rss


def shrink_again_and_again(name, ep_size, times):
    from megatron_patches import parallel_state

    model, ladder = start(name, ep_size)
    home = parallel.groups().ep

    def rollout(elastic):
        _, stats = ranks.generate(model, path="fast", deal="backwards", elastic=elastic, ladder=ladder)
        assert parallel_state._active == [] and parallel.groups().ep is home
        return max(each.shrinks for each in stats)

    for way in WAYS:
        rollout(way)
    guests, before = Guests(), state_of_process()
    gc.disable()
    shrinks = [rollout(WAYS[index % len(WAYS)]) for index in range(times)]
    left = guests.left()
    gc.enable()
    return {"before": before, "after": state_of_process(), "shrinks": shrinks, "left": left}


@pytest.mark.parametrize(("name", "world_size", "ep_size"), [("deepseek_v3", 3, 3), *SLOW_RUNS])
def test_twelve_rollouts_that_shrink_leave_a_rank_as_it_was(name, world_size, ep_size):
    found = run_ranks(
        shrink_again_and_again,
        world_size,
        name,
        ep_size,
        12,
        threads_per_rank=1,
        total_timeout_seconds=TOTAL_SECONDS,
    )
    assert sum(each["left"][0] for each in found) > 12 * world_size
    for rank, each in enumerate(found):
        assert len(each["shrinks"]) == 12 and min(each["shrinks"]) >= 1
        assert each["left"][1] == 0, (rank, each["left"])
        tensors, files, resident = zip(each["before"], each["after"], strict=True)
        assert tensors[0] == tensors[1], (rank, tensors)
        assert files[0] == files[1], (rank, files)
        assert resident[1] - resident[0] < 16 * MIB, (rank, resident)


def train(name, ep_size, policies):
    """For each policy: weights after two steps of a rollout and an update, from the same start."""
    from flexfloor.train.optimizer import build_ddp

    model, ladder = start(name, ep_size)
    groups = parallel.groups()
    ddp = build_ddp(model, groups)
    first = {key: value.clone() for key, value in model.state_dict().items() if value is not None}
    found = {}
    for policy in policies:
        with torch.no_grad():
            for key, value in first.items():
                model.state_dict()[key].copy_(value)
        step = gradients.make_step(ddp, groups, gradients.make_case(budget=100), **gradients.ADAM)
        told = [train_a_step(model, ladder, ddp, groups, step, policy) for _ in range(2)]
        found[policy] = {"told": told, "weights": gradients.named(ddp, lambda p: p)}
    return found


def train_a_step(model, ladder, ddp, groups, step, policy):
    """One rollout and one update on its responses; what was generated, and whether ranks left."""
    from flexfloor.train.recompute import compute_logprobs

    elastic = EAGER | {"policy": policy, "interval": 3}
    responses, stats = ranks.generate(model, path="fast", deal="by response", elastic=elastic, ladder=ladder)
    samples = [
        {
            "prompt": list(request.prompt_ids),
            "response": list(responses[request.uid, request.response_index].token_ids),
            "old_logprobs": responses[request.uid, request.response_index].logprobs,
            "ref_logprobs": [0.0] * len(responses[request.uid, request.response_index].token_ids),
            "advantage": (-1.0) ** number * (1 + number / 7),
        }
        for number, request in enumerate(ranks.requests())
    ]
    made = gradients.as_samples(samples, "grpo")
    # The sampler's own log-probabilities follow the shape of its batches in their last bit.
    old = compute_logprobs(ddp, made, groups.dp_cp, micro_batch_tokens=100, temperature=gradients.TEMPERATURE)
    made = [dataclasses.replace(each, old_logprobs=own) for each, own in zip(made, old, strict=True)]
    metrics = step.update(made)
    tokens = {key: response.token_ids for key, response in responses.items()}
    return {"tokens": tokens, "released": sum(each.is_released for each in stats), "metrics": metrics}


@pytest.mark.parametrize(
    ("name", "world_size", "ep_size"), [("mixtral", 4, 2), ("deepseek_v3", 3, 3), *SLOW_RUNS]
)
def test_training_after_the_join_gives_the_same_weights_to_the_bit(name, world_size, ep_size):
    policies = ["never", "greedy"]
    for each in run_ranks(
        train, world_size, name, ep_size, policies, threads_per_rank=1, total_timeout_seconds=TOTAL_SECONDS
    ):
        fixed, elastic = (each[policy] for policy in policies)
        assert [step["released"] for step in fixed["told"]] == [0, 0]
        assert min(step["released"] for step in elastic["told"]) > 0
        for index in (0, 1):
            assert fixed["told"][index]["tokens"] == elastic["told"][index]["tokens"], index
            assert fixed["told"][index]["metrics"] == elastic["told"][index]["metrics"], index
        assert fixed["told"][0]["tokens"] != fixed["told"][1]["tokens"]  # the first update changed the policy
        for key, value in fixed["weights"].items():
            np.testing.assert_array_equal(elastic["weights"][key], value, err_msg=key)
