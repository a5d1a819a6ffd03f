"""The loops are compiled once, and what stands in the way is said."""

import logging
import os
import stat

import pytest
import torch

from flexfloor.errors import ConfigError
from flexfloor.rollout.config import RolloutConfig
from flexfloor.rollout.kernels import choose
from flexfloor.rollout.kernels.choose import choose_operators
from flexfloor.rollout.kernels.fused import FusedOperators
from flexfloor.rollout.kernels.library import CompilerError, library
from flexfloor.rollout.kernels.plain import PlainOperators

GIVEN = (torch.float32, 4)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(choose.dist, "get_rank", lambda: 0)
    library.cache_clear()
    yield tmp_path
    library.cache_clear()


def compiler(tmp_path, body):
    """A compiler that is a shell script, and notes each of its calls."""
    path = tmp_path / "my-cc"
    path.write_text(f"#!/bin/sh\necho >> {tmp_path}/calls\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_is_compiled_once_and_nothing_half_written_stays(own_cache, monkeypatch):
    monkeypatch.setenv("CC", compiler(own_cache, 'exec cc "$@"'))
    for _ in range(2):
        library.cache_clear()
        library()
    assert len((own_cache / "calls").read_text().splitlines()) == 1
    assert sorted(path.suffix for path in (own_cache / "flexfloor").iterdir()) == [".lock", ".so"]


def test_auto_and_on_take_compiled_loops_on_a_cpu_and_off_does_not():
    kinds = {setting: type(choose_operators(setting, *GIVEN)) for setting in ("auto", "on", "off")}
    assert kinds == {"auto": FusedOperators, "on": FusedOperators, "off": PlainOperators}


def test_a_compiler_that_fails_is_quoted(own_cache, monkeypatch):
    monkeypatch.setenv("CC", compiler(own_cache, "echo no such thing as C >&2; exit 1"))
    with pytest.raises(ConfigError, match=r"rollout.kernels = 'on'.*auto or off.*no such thing as C"):
        choose_operators("on", *GIVEN)
    assert not list((own_cache / "flexfloor").glob("*.so"))


def test_auto_without_a_compiler_says_so_and_goes_on(monkeypatch, caplog):
    monkeypatch.setenv("CC", "there-is-no-such-compiler")
    with caplog.at_level(logging.WARNING):
        assert isinstance(choose_operators("auto", *GIVEN), PlainOperators)
    assert "there-is-no-such-compiler" in caplog.text and "slower" in caplog.text


def test_a_cache_folder_that_cannot_be_made_is_named(own_cache, monkeypatch):
    (own_cache / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(own_cache / "file"))
    with pytest.raises(CompilerError, match=os.path.join("file", "flexfloor")):
        library()


def test_a_gpu_takes_pytorchs_and_refuses_on(monkeypatch):
    monkeypatch.setattr(choose.device, "is_cpu_host", lambda: False)
    assert isinstance(choose_operators("auto", *GIVEN), PlainOperators)
    with pytest.raises(ConfigError, match="GPU"):
        choose_operators("on", *GIVEN)


def test_another_word_is_refused():
    with pytest.raises(ConfigError, match=r"rollout.kernels = 'fast'.*auto, on, off"):
        RolloutConfig(kernels="fast")
