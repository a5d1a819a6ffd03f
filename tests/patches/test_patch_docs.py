"""docs/patches.md says what the records say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from megatron_patches import CPU_HOST, EVERY_HOST, WITHOUT_TE

ROOT = Path(__file__).parents[2]


def load_tool() -> ModuleType:
    """The page's generator, which is a script and not part of a package."""
    spec = importlib.util.spec_from_file_location("make_patch_docs", ROOT / "tools" / "make_patch_docs.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_is_current() -> None:
    assert (ROOT / "docs" / "patches.md").read_text() == load_tool().page(), "run tools/make_patch_docs.py"


def test_page_holds_every_record() -> None:
    page = load_tool().page()
    for patch in (*EVERY_HOST, *WITHOUT_TE, *CPU_HOST):
        for text in (patch.target, patch.why, patch.remove_when, *patch.upstream_sha.values()):
            assert text in page
