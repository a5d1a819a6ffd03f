"""The manager binds patches all or none, finds drift, and undoes to the identical objects."""

from __future__ import annotations

import importlib
import inspect
import logging
import sys
from typing import Any

import pytest
from toy_upstream import by_value, functions

from megatron_patches import Kind, Patch, PatchConflict, UpstreamChanged, applied, apply
from megatron_patches.patch import patches_for_version, source_sha, upstream_version

DOUBLE = "toy_upstream.functions:double"


def add_one(original: Any) -> Any:
    """A wrapper whose effect shows how often it lies on the original."""

    def wrapped(*args: Any) -> Any:
        return original(*args) + 1

    return wrapped


def tripled(x: int) -> int:
    """A replacement that stands in this module under its own name."""
    return 3 * x


def patch(target: str = DOUBLE, **fields: Any) -> Patch:
    """A patch of the toy upstream with the hash of what is there."""
    original: Any = functions
    for name in target.partition(":")[2].split("."):
        original = inspect.getattr_static(original, name, None)
    defaults = {
        "why": "the test wants another answer",
        "remove_when": "never",
        "wrap": add_one,
        "upstream_sha": {"1.0": source_sha(original, functions)},
    }
    return Patch(target=target, **{**defaults, **fields})


def replacement(**fields: Any) -> Patch:
    """A patch that puts `tripled` in the place of `double`."""
    return patch(wrap=lambda _: tripled, kind=Kind.REPLACEMENT, **fields)


def test_binds_and_restores_the_identical_object() -> None:
    original = functions.double
    with applied([patch()]):
        assert functions.double(3) == 7
    assert functions.double is original


def test_importing_the_package_changes_nothing() -> None:
    original = functions.double
    importlib.reload(importlib.import_module("megatron_patches.mappings"))
    patch()
    assert functions.double is original


def test_undoes_when_the_block_raises() -> None:
    original = functions.double
    with pytest.raises(KeyError), applied([patch()]):
        raise KeyError
    assert functions.double is original


def test_rebinds_imports_by_value_under_any_name() -> None:
    original = functions.double
    with applied([patch()]):
        assert by_value.twice is functions.again is functions.double is not original
    assert by_value.twice is functions.again is original


def test_restores_an_import_by_value_made_in_between() -> None:
    with applied([replacement()]):
        late = importlib.import_module("toy_upstream.late")
        assert late.late_double is tripled
    assert late.late_double is functions.double
    del sys.modules["toy_upstream.late"]


def test_leaves_a_replacement_where_it_is_at_home() -> None:
    here = sys.modules[__name__]
    for _ in range(2):
        with applied([replacement()]):
            assert functions.double(5) == 15
        assert functions.double(5) == 10
        assert here.tripled(5) == 15


@pytest.mark.parametrize(
    ("target", "call", "plain", "patched"),
    [
        ("toy_upstream.functions:Worker.run", lambda: functions.Worker().run(1), 2, 3),
        ("toy_upstream.functions:Worker.scale", lambda: functions.Worker().scale(1), 10, 11),
        ("toy_upstream.functions:Worker.scale", lambda: functions.Worker.scale(1), 10, 11),
    ],
)
def test_patches_methods_of_each_kind(target: str, call: Any, plain: int, patched: int) -> None:
    assert call() == plain
    with applied([patch(target)]):
        assert call() == patched
    assert call() == plain


def test_patches_a_class_method() -> None:
    with applied(
        [patch("toy_upstream.functions:Worker.label", wrap=lambda get: lambda cls: get(cls).upper())]
    ):
        assert functions.Worker.label() == "WORKER"
    assert functions.Worker.label() == "Worker"


def test_replaces_a_flag_without_touching_equal_ones() -> None:
    flag = patch("toy_upstream.functions:FLAG", wrap=lambda _: False, kind=Kind.REPLACEMENT)
    by_value.OTHER_FLAG = True
    with applied([flag]):
        assert functions.FLAG is False
        assert by_value.OTHER_FLAG is True
    assert functions.FLAG is True


def test_defines_an_undefined_name_and_takes_it_away() -> None:
    define = patch("toy_upstream.functions:undefined_name", wrap=lambda _: "defined", kind=Kind.DEFINITION)
    with applied([define]):
        assert functions.reads_undefined() == "defined"
    with pytest.raises(NameError):
        functions.reads_undefined()


def test_drift_stops_with_the_name_and_changes_nothing() -> None:
    original, run = functions.double, functions.Worker.run
    drifted = patch("toy_upstream.functions:Worker.run", upstream_sha={"0.9": "0" * 12})
    with pytest.raises(
        UpstreamChanged, match=r"toy_upstream.functions:Worker.run: .*1\.0.*0\.9: 000000000000"
    ):
        apply([patch(), drifted])
    assert functions.double is original
    assert functions.Worker.run is run


def test_a_flag_drifts_with_the_source_of_its_module() -> None:
    with pytest.raises(UpstreamChanged, match="FLAG"):
        apply([patch("toy_upstream.functions:FLAG", upstream_sha={"1.0": "0" * 12})])


@pytest.mark.parametrize("path", ["gone", "Worker.gone", "Gone.run"])
def test_a_target_that_is_gone_is_drift(path: str) -> None:
    with pytest.raises(UpstreamChanged, match=f"{path}: is gone"):
        apply([patch(f"toy_upstream.functions:{path}", upstream_sha={"1.0": "0" * 12})])


def test_a_name_that_upstream_defines_by_now_is_drift() -> None:
    with pytest.raises(UpstreamChanged, match="FLAG: is defined by now"):
        apply([patch("toy_upstream.functions:FLAG", kind=Kind.DEFINITION)])


def test_any_recorded_version_will_do() -> None:
    sha = source_sha(functions.double, functions)
    with applied([patch(upstream_sha={"0.9": "0" * 12, "1.0": sha})]):
        assert functions.double(3) == 7


def test_a_local_part_is_not_part_of_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["toy_upstream"], "__version__", "1.0+e14cd7d")
    assert upstream_version("toy_upstream.functions") == "1.0"


def test_a_version_gets_the_patches_that_name_it() -> None:
    old, both = patch(upstream_sha={"1.0": "a" * 12}), patch(upstream_sha={"1.0": "a" * 12, "2.0": "b" * 12})
    new = patch(upstream_sha={"2.0": "c" * 12})
    stand_in = patch(kind=Kind.STAND_IN, upstream_sha={})
    records = (old, both, new, stand_in)
    assert patches_for_version(records, "1.0") == (old, both, stand_in)
    assert patches_for_version(records, "2.0") == (both, new, stand_in)
    assert patches_for_version(records, "3.0") == records, "an unknown version is checked against all"


def test_stacked_wrappers_hash_the_pristine_original() -> None:
    original = functions.double
    wrappers = [patch(), patch(), patch()]
    with applied(wrappers[:2]), applied(wrappers[2:]):
        assert functions.double(3) == 9
    assert functions.double is original


def test_a_wrapper_lies_on_a_replacement() -> None:
    with applied([replacement(), patch()]):
        assert functions.double(3) == 10


def test_second_replacement_is_refused() -> None:
    with pytest.raises(PatchConflict, match=DOUBLE):
        apply([replacement(), replacement()])
    first, second = replacement(), replacement()
    with applied([first]), pytest.raises(PatchConflict, match=DOUBLE):
        apply([second])


def test_replacement_of_a_wrapped_target_is_refused() -> None:
    wrapper, second = patch(), replacement()
    with applied([wrapper]), pytest.raises(PatchConflict, match=DOUBLE):
        apply([second])


def test_undo_out_of_order_is_refused() -> None:
    records = [patch(), patch()]
    first, second = apply(records[:1]), apply(records[1:])
    with pytest.raises(PatchConflict, match="out of order"):
        first.undo()
    second.undo()
    first.undo()
    with pytest.raises(PatchConflict, match="twice"):
        first.undo()


def test_logs_one_line_for_each_patch(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), applied([patch(), patch("toy_upstream.functions:Worker.run")]):
        assert [record.message.split(" ")[1] for record in caplog.records] == [
            DOUBLE,
            "toy_upstream.functions:Worker.run",
        ]


def test_only_a_stand_in_goes_without_a_hash() -> None:
    with pytest.raises(AssertionError):
        patch(upstream_sha={})
    with pytest.raises(AssertionError):
        patch(kind=Kind.STAND_IN)
    with applied([patch(kind=Kind.STAND_IN, upstream_sha={}, wrap=lambda _: tripled)]):
        assert functions.double(3) == 9
