"""What the tests of weights run on ranks that share tensors, experts' too, which a run never cuts."""

import errno
from pathlib import Path

import torch
import weights_ranks as ranks
from megatron.core import parallel_state
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

from flexfloor.models.init import global_tensors
from flexfloor.models.moe_family import MoEFamily
from flexfloor.models.weights import give


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
        if expert_tp > 1:  # between ranks of one expert gloo gathers no unequal shares of rows
            config.sequence_parallel = False
        return whole(self, config)

    MoEFamily.block_spec = block_spec


def in_and_out(layout, folders, out, max_shard_bytes):
    """Logits of each folder's model, and bytes of its weights here; what was taken goes to `out`/<name>."""
    lay_out(layout)
    found = {}
    for name, folder in folders.items():
        gpt, weight_map = ranks.taken(folder)
        give.export_weights(
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
    give.export_weights(gpt, weight_map, Path(out), vocab_size=vocab_size)
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


def out_on_a_full_disk(layout, folder, place):
    """What this rank is told where the first rank finds the disk full while others send it rows."""
    lay_out(layout)
    gpt, weight_map = ranks.taken(folder)
    write, room = give.write_shard, iter(range(5))

    def has_room(chunks):
        for chunk in chunks:
            if next(room, None) is None:
                raise OSError(errno.ENOSPC, "No space left on device", "model-00002.safetensors")
            yield chunk

    give.write_shard = lambda partial, shard, chunks: write(partial, shard, has_room(chunks))
    try:
        give.export_weights(gpt, weight_map, Path(place), vocab_size=gpt.vocab_size, max_shard_bytes=30_000)
    except ValueError as error:
        return f"{type(error).__name__}: {error}"
    return "written"
