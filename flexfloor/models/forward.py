"""One forward pass of the model over packed sequences."""

from __future__ import annotations

from torch import Tensor, nn

from flexfloor.models.attention import PackedRows


def packed_logits(
    model: nn.Module, input_ids_T: Tensor, position_ids_T: Tensor, cu_seqlens: Tensor
) -> Tensor:
    """Next-token logits of every row of sequences packed end to end.

    Args:
        model: Megatron's `GPTModel`, bare or wrapped in its `DistributedDataParallel`.
        input_ids_T: [T] token ids; T may be 0 on a rank, which then still takes part in every
            collective of the expert group, forward and backward.
        position_ids_T: [T] position of each row within its sequence.
        cu_seqlens: [S + 1] row at which each sequence starts, ending with T.

    Returns: [T, V], with gradient unless autograd is off.
    """
    rows = PackedRows.of(position_ids_T, cu_seqlens)
    logits = model(input_ids_T[None], position_ids_T[None], None, packed_seq_params=rows)
    return logits[0]
