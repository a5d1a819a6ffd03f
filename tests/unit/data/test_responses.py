import json

import pytest

from flexfloor.data.responses import SavedResponse, write_responses
from flexfloor.errors import DataError

RESPONSE = {
    "uid": "p/1",
    "data_source": "sums",
    "response_index": 2,
    "prompt": "1+1",
    "response": "tw\u2028o é\n",
    "finish_reason": "eos",
    "score": None,
    "ground_truth": {"answer": [2, 1.5]},
}


def test_a_line_holds_one_response(tmp_path):
    file = tmp_path / "new" / "responses.jsonl"
    second = {**RESPONSE, "score": 0.5}
    write_responses(file, [SavedResponse(**RESPONSE), SavedResponse(**second)])
    lines = file.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [RESPONSE, second]
    assert [path.name for path in file.parent.iterdir()] == ["responses.jsonl"]


def test_a_file_stays_as_it_was_when_its_successor_is_not_finished(tmp_path):
    file = tmp_path / "responses.jsonl"
    write_responses(file, [SavedResponse(**RESPONSE)])

    def breaking():
        yield SavedResponse(**{**RESPONSE, "uid": "p/2"})
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_responses(file, breaking())
    assert json.loads(file.read_text(encoding="utf-8")) == RESPONSE


def test_a_path_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"file/responses.jsonl cannot be written"):
        write_responses(tmp_path / "file" / "responses.jsonl", [])
