"""A prompt to be scored."""

import pytest

from flexfloor.data.types import Prompt


@pytest.fixture
def make_prompt():
    def make(uid="p", ground_truth="2", data_source="sums", **extra_info):
        return Prompt(
            uid=uid,
            data_source=data_source,
            text="1+1",
            token_ids=(1,),
            ground_truth=ground_truth,
            extra_info=extra_info,
        )

    return make
