"""One forward pass of the model over packed sequences.

The ranks of a replica share the rows evenly: where their number does not divide, a sequence of rows that
stand for nothing follows. No other row attends to them, and no expert gets them.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from megatron.core.utils import get_model_config
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
    num_rows = input_ids_T.size(0)
    added = -num_rows % get_model_config(model).tensor_model_parallel_size
    is_added = None
    if added:
        input_ids_T, position_ids_T = F.pad(input_ids_T, (0, added)), F.pad(position_ids_T, (0, added))
        cu_seqlens = torch.cat((cu_seqlens, cu_seqlens[-1:] + added))
        is_added = (torch.arange(num_rows + added, device=input_ids_T.device) >= num_rows)[None]
    rows = PackedRows.of(position_ids_T, cu_seqlens)
    logits = model(
        input_ids_T[None], position_ids_T[None], None, packed_seq_params=rows, padding_mask=is_added
    )
    return logits[0, :num_rows]
