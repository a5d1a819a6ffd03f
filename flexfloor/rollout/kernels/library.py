"""Compiles `decode.c` for this host's processor when it is first wanted, and loads what came out.

The library lies in the user's cache folder under a name made of all that it depends on, so that a host
compiles once and hosts that share a home folder but not a processor do not take each other's.

Invariants:
- Of the ranks that want the library at once one compiles, and nobody loads one that is half written.
- What a compiler says when it fails is in the error.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import os
import platform
import shlex
import subprocess
from pathlib import Path

from flexfloor.errors import FlexFloorError

SOURCES = tuple(Path(__file__).with_name(name) for name in ("decode.c", "typed.h"))
FLAGS = (
    *("-O3", "-march=native", "-shared", "-fPIC", "-fopenmp", "-fvisibility=hidden"),
    # Nothing here reads errno or floating-point traps; infinities and NaN stay what they are.
    *("-fno-math-errno", "-fno-trapping-math"),
)
COMPILER_SECONDS = 120
"""After which a compiler counts as failed."""


class CompilerError(FlexFloorError):
    """No compiler, or one that failed; says what it said."""


@functools.cache
def library() -> ctypes.CDLL:
    """The compiled functions. Raises `CompilerError`."""
    command = [*shlex.split(os.environ.get("CC", "cc")), *flags()]
    target = cache_folder() / f"decode-{_digest(command)}.so"
    if not target.exists():
        _compile(command, target)
    return ctypes.CDLL(str(target))


def flags() -> tuple[str, ...]:
    """What the compiler is told; x86's compilers take wide vectors for no gain unless asked to use them."""
    return (*FLAGS, "-mprefer-vector-width=512") if platform.machine() == "x86_64" else FLAGS


def cache_folder() -> Path:
    """Where libraries are kept: `$XDG_CACHE_HOME/flexfloor`, `~/.cache/flexfloor` without one."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flexfloor"


def _digest(command: list[str]) -> str:
    parts = [*(source.read_bytes() for source in SOURCES), " ".join(command).encode(), _processor().encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    features = sorted(
        {line for line in lines if line.lower().startswith(("flags", "features", "model name"))}
    )
    return "\n".join([platform.machine(), *features])


def _compile(command: list[str], target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.exists():
                partial = target.with_suffix(".partial")
                _run([*command, "-o", str(partial), str(SOURCES[0]), "-lm"])
                partial.replace(target)
    except OSError as error:
        raise CompilerError(f"{target.parent}: {error.strerror}") from error


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILER_SECONDS)
    except FileNotFoundError as error:
        raise CompilerError(f"there is no C compiler {command[0]!r}; set CC to one") from error
    except subprocess.TimeoutExpired as error:
        raise CompilerError(f"{command[0]} took more than {COMPILER_SECONDS} s") from error
    if done.returncode:
        raise CompilerError(f"{shlex.join(command)} failed: {done.stderr.strip()[-1000:]}")
