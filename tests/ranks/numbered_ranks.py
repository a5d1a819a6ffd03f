"""What `test_numbered_experts` runs on its ranks: the same work with experts in either layout."""

from pathlib import Path

import early_ranks
import gradient_ranks
import grouped_ranks
import numbered_experts
import rollout_ranks
import torch

from flexfloor import parallel

LAYOUTS = ("one by one", "numbered")


def lay_out(layout):
    """Let models that are built from now on have their experts in this layout."""
    grouped_ranks.group_experts(False)
    if layout == "numbered":
        numbered_experts.number_experts()


def training_and_files(ep_size, name, folder):
    """By layout: kind, names in a checkpoint, weights, sums of gradients, and what went through files."""
    found = {}
    for layout in LAYOUTS:
        lay_out(layout)
        ddp, groups = gradient_ranks.build(ep_size, "float64", name)
        found[layout] = {
            "kinds": sorted({_kind(layer) for layer in grouped_ranks._layers(ddp)}),
            "shards": sorted(map(str, grouped_ranks._shards(ddp).values())),
            "weights": _weights(ddp),
            **{
                case: grouped_ranks._sums(ddp, groups, samples)
                for case, samples in grouped_ranks.CASES.items()
            },
        }
        _export(ddp.module, name, Path(folder) / layout)
        found[layout]["imported"] = _imported(ddp.module, name, Path(folder) / layout)
        found[layout] |= _trained(ddp, groups, Path(folder) / f"run, {layout}")
        parallel.destroy()
    for layout, other in (LAYOUTS, LAYOUTS[::-1]):
        lay_out(layout)
        ddp, groups = gradient_ranks.build(ep_size, "float64", name)
        found[layout] |= _resumed(ddp, groups, Path(folder) / f"run, {other}")
        parallel.destroy()
    return found


def _kind(layer):
    return type(layer.experts).__name__, layer.computes_in_groups


def _weights(ddp):
    return gradient_ranks.named(ddp, lambda parameter: parameter)


def _export(gpt, name, folder):
    from flexfloor.models.registry import weight_map_of
    from flexfloor.models.weights.give import export_weights

    weight_map = weight_map_of(gradient_ranks.model_config("float64", name))
    export_weights(gpt, weight_map, folder, vocab_size=gpt.vocab_size)


@torch.no_grad()
def _imported(gpt, name, folder):
    """Names of parameters that an import does not bring back."""
    from flexfloor.models.init import global_parameters
    from flexfloor.models.registry import weight_map_of
    from flexfloor.models.weights.take import import_weights

    before = {each: parameter.clone() for each, parameter in global_parameters(gpt)}
    for parameter in gpt.parameters():
        parameter.fill_(7.0)
    import_weights(gpt, weight_map_of(gradient_ranks.model_config("float64", name)), folder)
    return [each for each, parameter in global_parameters(gpt) if not torch.equal(parameter, before[each])]


def _step(ddp, groups):
    case = gradient_ranks.make_case()
    return gradient_ranks.make_step(ddp, groups, case, lr=1e-2, clip_grad=0.05)


def _parts(step):
    return {"model": [step.ddp], "optimizer": step.optimizer, "scheduler": step.scheduler}


def _update(step):
    step.update(gradient_ranks.as_samples(gradient_ranks.NINE, "grpo"))
    return _weights(step.ddp)


def _trained(ddp, groups, folder):
    """A step, a checkpoint, another step."""
    from flexfloor.train.checkpoint import save_checkpoint

    step = _step(ddp, groups)
    after_one = _update(step)
    save_checkpoint(folder, 1, **_parts(step), extra={})
    return {"after one": after_one, "after two": _update(step)}


def _resumed(ddp, groups, folder):
    """The second step, from the checkpoint in `folder`."""
    from flexfloor.train.checkpoint import latest_checkpoint, load_checkpoint

    step = _step(ddp, groups)
    load_checkpoint(latest_checkpoint(folder), **_parts(step))
    return {"loaded": _weights(ddp), "resumed": _update(step)}


def tokens_by_way(ep_size, name):
    """Responses and statistics by way, numbered; and those of the fixed group one by one."""
    from flexfloor.elastic.ladder import make_ladder

    usual = {"path": "fast", "deal": "by response"}
    lay_out("one by one")
    model = rollout_ranks.new_model(ep_size, "float64", name)
    found = {"one by one": rollout_ranks.generate(model, **usual)}
    parallel.destroy()
    lay_out("numbered")
    model = rollout_ranks.new_model(ep_size, "float64", name)
    ladder = make_ladder(parallel.groups().ep, [], timeout_seconds=60, alone=True)
    for way, how in grouped_ranks.WAYS.items():
        found[way] = rollout_ranks.generate(model, ladder=ladder, **usual | how)
    return found


def early_pair(folder):
    """A step of the recipe without an early update and experts one by one; the same with both otherwise."""
    found = []
    for layout, overlap, releases in (("one by one", "off", ()), ("numbered", "on", (1,))):
        lay_out(layout)
        words = ("parallel.ep=2", "trainer.total_training_steps=1", f"overlap={overlap}")
        case = early_ranks.Case(words=words, releases=releases)
        found += early_ranks.run_cases([case], f"{folder}/{overlap}")
    return found
