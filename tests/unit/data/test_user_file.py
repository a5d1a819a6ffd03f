import dataclasses

import pytest

from flexfloor.data.user_file import load_user_file
from flexfloor.errors import ConfigError


def test_a_file_runs_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("calls = []\n")
    load_user_file("own.py", "setting").calls.append(1)
    assert load_user_file(str(tmp_path / "own.py"), "setting").calls == [1]


def test_dataclasses_with_postponed_annotations_work_in_it(tmp_path):
    (tmp_path / "own.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Own:\n    x: int = 3\n"
    )
    assert dataclasses.asdict(load_user_file(str(tmp_path / "own.py"), "setting").Own()) == {"x": 3}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "setting=.*own.py: no such file"),
        ("1/0", "setting=.*own.py: ZeroDivisionError while importing it: division by zero"),
        ("def f(:", "setting=.*own.py: SyntaxError while importing it"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_every_time(tmp_path, content, message):
    if content is not None:
        (tmp_path / "own.py").write_text(content)
    for _ in range(2):
        with pytest.raises(ConfigError, match=message):
            load_user_file(str(tmp_path / "own.py"), "setting")
