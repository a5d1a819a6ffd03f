"""What the tests of weights run on ranks that share tensors, experts' too, which a run never cuts."""

from pathlib import Path

import torch
import weights_ranks as ranks
from megatron.core import parallel_state
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

from flexfloor.models.init import global_tensors
from flexfloor.models.moe_family import MoEFamily
from flexfloor.models.weights.give import export_weights


def lay_out(layout):
    """Groups of the (TP, EP, expert TP) sizes `layout`, and models that are built for them."""
    tp, ep, expert_tp = layout
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=tp,
        expert_model_parallel_size=ep,
        expert_tensor_parallel_size=expert_tp,
        distributed_timeout_minutes=1,
    )
    model_parallel_cuda_manual_seed(0, force_reset_rng=True)
    whole = MoEFamily.block_spec

    def block_spec(self, config):
        config.tensor_model_parallel_size, config.expert_tensor_parallel_size = tp, expert_tp
        return whole(self, config)

    MoEFamily.block_spec = block_spec


def in_and_out(layout, folders, out, max_shard_bytes):
    """Logits of each folder's model, and bytes of its weights here; what was taken is written to `out`/<name>."""
    lay_out(layout)
    found = {}
    for name, folder in folders.items():
        gpt, weight_map = ranks.taken(folder)
        export_weights(
            gpt, weight_map, Path(out) / name, vocab_size=gpt.vocab_size, max_shard_bytes=max_shard_bytes
        )
        held = sum(tensor.nbytes for tensor in global_tensors(gpt).values())
        found[name] = logits_of(gpt).double().numpy(), held
    return found


def logits_of(gpt):
    return ranks.logits_of(gpt.eval(), ranks.TOKENS)


def padded(layout, folder, extra_vocab, out):
    """This rank's rows of the embedding and of the output layer, in models with `extra_vocab` more rows."""
    lay_out(layout)
    gpt, weight_map = ranks.taken(folder, extra_vocab=extra_vocab)
    vocab_size = gpt.vocab_size - extra_vocab
    export_weights(gpt, weight_map, Path(out), vocab_size=vocab_size)
    return [
        tensor.detach().numpy()
        for name, tensor in global_tensors(gpt).items()
        if name in ("embedding.word_embeddings.weight", "output_layer.weight")
    ]


def complaint(layout, folder):
    """What the weights of `folder` are refused with, on this rank."""
    lay_out(layout)
    try:
        ranks.taken(folder)
    except ValueError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        torch.distributed.barrier()
    return "taken"
