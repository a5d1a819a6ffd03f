"""Packed micro-batches, against a batch written out by hand."""

import numpy as np
import pytest
import torch

from flexfloor.train.batch import pack
from flexfloor.train.types import Sample

CPU = torch.device("cpu")


def _sample(prompt, response, **more):
    return Sample(
        uid="u", response_index=0, prompt_ids=np.array(prompt), response_ids=np.array(response, int), **more
    )


def test_two_samples_by_hand():
    first = _sample([10, 11, 12], [20, 21], old_logprobs=np.array([-1.0, -2.0]), advantage=0.5)
    second = _sample([13], [30, 31, 32], old_logprobs=np.array([-3.0, -4.0, -5.0]), advantage=-1.5)
    batch = pack([first, second], "seq-mean-token-mean", CPU)
    # rows:                                  0   1   2   3 |  4   5   6
    assert batch.input_ids_T.tolist() == [10, 11, 12, 20, 13, 30, 31]
    assert batch.position_ids_T.tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert batch.cu_seqlens.tolist() == [0, 4, 7]
    assert batch.rows_N.tolist() == [2, 3, 4, 5, 6]
    assert batch.labels_N.tolist() == [20, 21, 30, 31, 32]
    assert batch.weights_N.tolist() == [1 / 2, 1 / 2, 1 / 3, 1 / 3, 1 / 3]
    assert batch.advantages_N.tolist() == [0.5, 0.5, -1.5, -1.5, -1.5]
    assert batch.old_logprobs_N.tolist() == [-1.0, -2.0, -3.0, -4.0, -5.0]
    assert (batch.cu_seqlens.dtype, batch.input_ids_T.dtype) == (torch.int32, torch.int64)


def test_exactly_the_response_is_trained_even_when_pad_and_eos_share_an_id():
    eos = 0
    finished, truncated = _sample([5, eos, 5], [7, eos]), _sample([eos, eos], [7, 8])
    assert pack([finished], "token-mean", CPU).labels_N.tolist() == [7, eos]
    assert pack([truncated], "token-mean", CPU).labels_N.tolist() == [7, 8]


def test_no_samples_take_the_same_path():
    batch = pack([], "token-mean", CPU)
    assert batch.cu_seqlens.tolist() == [0]
    sizes = {len(x) for x in (batch.input_ids_T, batch.rows_N, batch.weights_N, batch.old_logprobs_N)}
    assert sizes == {0}
    assert batch.rows_N.dtype == batch.input_ids_T.dtype == torch.int64


def test_demonstrations_have_no_old_logprobs():
    assert pack([_sample([1], [2, 3])], "token-mean", CPU).old_logprobs_N is None
    with pytest.raises(AssertionError, match="1 of 2 samples"):
        pack([_sample([1], [2]), _sample([1], [2], old_logprobs=np.zeros(1))], "token-mean", CPU)


def test_reference_logprobs_of_all_samples_or_of_none():
    one, two = (
        _sample([1], [2], ref_logprobs=np.array([-3.0])),
        _sample([1, 5], [2, 4], ref_logprobs=np.ones(2)),
    )
    assert pack([one, two], "token-mean", CPU).ref_logprobs_N.tolist() == [-3.0, 1.0, 1.0]
    assert pack([_sample([1], [2])], "token-mean", CPU).ref_logprobs_N is None
    with pytest.raises(AssertionError, match="1 of 2 samples have ref_logprobs"):
        pack([one, _sample([1], [2])], "token-mean", CPU)


@pytest.mark.parametrize("response", [[4], [4, 5, 6]])
def test_num_rows_is_what_packing_makes(response):
    sample = _sample([1, 2], response)
    assert sample.num_rows == len(pack([sample], "token-mean", CPU).input_ids_T)


def test_empty_response_has_no_rows():
    assert _sample([1, 2], []).num_rows == 0


def test_logprobs_must_match_tokens():
    with pytest.raises(AssertionError, match="u/0"):
        _sample([1], [2, 3], old_logprobs=np.zeros(3))
    with pytest.raises(AssertionError, match="u/0"):
        _sample([1], [2, 3], ref_logprobs=np.zeros(1))
