import subprocess
import sys

import pytest

from flexfloor.data.types import Prompt, Row
from flexfloor.data.uid import check_unique, fingerprint, prompt_uid
from flexfloor.errors import DataError

IN_ANOTHER_PROCESS = """
from flexfloor.data.types import Row
from flexfloor.data.uid import prompt_uid
row = lambda **extra: Row(where="", data_source="sums", messages=(), ground_truth="", extra_info=extra)
print(prompt_uid(row(uid="mine"), [1, 2]), prompt_uid(row(index=7), [1, 2]), prompt_uid(row(), [1, 2]))
"""


def row(data_source="sums", **extra_info):
    return Row(where="", data_source=data_source, messages=(), ground_truth="", extra_info=extra_info)


def prompt(uid, token_ids=(1,)):
    return Prompt(uid=uid, data_source="sums", text="", token_ids=token_ids, ground_truth="")


def test_a_given_uid_wins_and_is_a_string():
    assert prompt_uid(row(uid="mine", index=7), [1, 2]) == "mine"
    assert prompt_uid(row(uid=12, index=7), [1, 2]) == "12"
    assert prompt_uid(row(uid=0, index=7), [1, 2]) == "0"


def test_source_and_index_count_before_tokens():
    assert prompt_uid(row(index=7), [1, 2]) == prompt_uid(row(index=7), [3])
    assert prompt_uid(row(index=7), [1]) != prompt_uid(row(index=8), [1])
    assert prompt_uid(row(index=7), [1]) != prompt_uid(row("products", index=7), [1])
    assert prompt_uid(row(index=0), [1]) != prompt_uid(row(), [1]), "index 0 is an index"


@pytest.mark.parametrize(
    "extra", [{}, {"uid": None, "index": None}], ids=["missing", "null, as parquet has it"]
)
def test_tokens_count_when_there_is_no_name(extra):
    assert prompt_uid(row(**extra), [1, 2]) == prompt_uid(row("products"), [1, 2])
    assert prompt_uid(row(**extra), [1, 2]) != prompt_uid(row(**extra), [2, 1])
    assert prompt_uid(row(**extra), [1, 2]) != prompt_uid(row(**extra), [12])


def test_another_process_finds_the_same_uids():
    out = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS], capture_output=True, text=True, check=True
    ).stdout.split()
    assert out == ["mine", prompt_uid(row(index=7), [1, 2]), prompt_uid(row(), [1, 2])]


def test_two_rows_of_one_uid_are_both_named():
    with pytest.raises(DataError, match=r"f, row 2 and f, row 3 have the same uid b"):
        check_unique([prompt("a"), prompt("b"), prompt("b")], ["f, row 1", "f, row 2", "f, row 3"])
    check_unique([prompt("a"), prompt("b")], ["f, row 1", "f, row 2"])


def test_a_fingerprint_knows_order_uid_and_tokens():
    prompts = [prompt("a"), prompt("b", (2, 3))]
    others = [
        prompts[::-1],
        prompts[:1],
        [prompt("a"), prompt("c", (2, 3))],
        [prompt("a"), prompt("b", (2,))],
    ]
    assert fingerprint(prompts) == fingerprint([prompt("a"), prompt("b", (2, 3))])
    assert fingerprint(prompts) not in [fingerprint(other) for other in others]
