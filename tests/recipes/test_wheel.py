"""A built wheel holds all that a run needs, under two names, and runs outside of the checkout."""

from __future__ import annotations

import email
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from small_run import SMALL, metrics_of

ROOT = Path(__file__).parents[2]
IN_THE_WHEEL = ("flexfloor", "megatron_patches")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the unpacked wheel, built from a copy so that the checkout stays as it is."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for name in (*IN_THE_WHEEL, "recipes", "conf"):
        shutil.copytree(ROOT / name, source / name, ignore=_links)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([sys.executable, *build, "--wheel-dir", str(folder), str(source)], check=True, timeout=120)
    [wheel] = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "installed")
    return folder / "installed"


def flexfloor(installed: Path, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command from the wheel; -S leaves out the links by which the checkout itself is installed."""
    path = os.pathsep.join([str(installed), sysconfig.get_paths()["purelib"]])
    return subprocess.run(
        [sys.executable, "-S", "-m", "flexfloor", *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=250,
    )


def test_wheel_puts_two_packages_and_nothing_else_beside_others(installed: Path) -> None:
    [info] = installed.glob("*.dist-info")
    assert {path.name for path in installed.iterdir()} == {*IN_THE_WHEEL, info.name}
    assert (info / "top_level.txt").read_text().split() == list(IN_THE_WHEEL)


def test_wheel_says_its_licence_and_its_command(installed: Path) -> None:
    [info] = installed.glob("*.dist-info")
    metadata = email.message_from_string((info / "METADATA").read_text())
    assert metadata["License-Expression"] == "Apache-2.0"
    assert (info / "licenses" / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert "flexfloor = flexfloor.cli:main" in (info / "entry_points.txt").read_text()


def test_wheel_holds_every_source_and_setting(installed: Path) -> None:
    for name in ("flexfloor", "megatron_patches", "recipes", "conf"):
        home = installed / name if name in IN_THE_WHEEL else installed / "flexfloor" / name
        for kind in ("*.py", "*.yaml", "*.html", "*.css", "*.js"):
            ours = {path.relative_to(ROOT / name) for path in (ROOT / name).rglob(kind)}
            assert ours <= {path.relative_to(home) for path in home.rglob(kind)}


def test_wheel_trains_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    done = flexfloor(installed, "train", *SMALL, "trainer.default_local_dir=out", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(metrics_of(tmp_path / "out")) == [0, 1, 2]
    assert {path.name for path in tmp_path.iterdir()} == {"out"}


def _links(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(folder) / name).is_symlink()]
