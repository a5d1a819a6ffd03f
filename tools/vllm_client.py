"""vLLM, started in its own environment, as something to call.

Invariants:
- It inherits no variable of a rank, nor of the environment that FlexFloor runs in.
- Nothing is waited for without an end, and what it last wrote is told when it fails.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
from pathlib import Path
from typing import Any, Self

from flexfloor.errors import FlexFloorError

SCRIPT = Path(__file__).with_name("vllm_peer.py")
INHERITED = ("PATH", "HOME", "TMPDIR", "LANG")
OPENMP = "lib/libiomp5.so"
"""Of the environment; vLLM's manual wants it loaded first. Without one, bound threads share a core."""
READY_SECONDS, ANSWER_SECONDS = 1200, 600
TOLD_LINES = 15


class PeerError(FlexFloorError):
    """vLLM is not there, did not start or did not answer."""


class VllmPeer:
    """A process of `vllm_peer.py`; a context that ends it."""

    def __init__(self, environment: Path, folder: Path, *, threads: int, max_length: int, max_sequences: int):
        """Start it and wait until its model is loaded and compiled.

        Args:
            environment: of Python, with vLLM in it.
            folder: the model, as Hugging Face has it; what the process says goes beside it, to FOLDER.log.

        Raises PeerError when it cannot.
        """
        self._log = folder.with_suffix(".log")
        sizes = {"threads": threads, "max-length": max_length, "max-sequences": max_sequences}
        command = [environment / "bin" / "python", SCRIPT, folder]
        command += [f"--{name}={value}" for name, value in sizes.items()]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=variables(environment),
            )
        try:
            self._answer(READY_SECONDS)
        except PeerError:
            self.close()
            raise

    def generate(self, prompts: list[list[int]], new_tokens: int) -> dict[str, Any]:
        """Its answer to one request; PeerError when none comes."""
        request = json.dumps({"prompts": prompts, "new_tokens": new_tokens})
        try:
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._failed("ended") from error
        return self._answer(ANSWER_SECONDS)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait(timeout=60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self, seconds: float) -> dict[str, Any]:
        # An answer is one line and the only one, so that nothing can be left in the buffer.
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        if not ready:
            raise self._failed(f"said nothing for {seconds:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise self._failed("ended")
        return json.loads(line)

    def _failed(self, what: str) -> PeerError:
        told = self._log.read_text(errors="replace").splitlines()[-TOLD_LINES:]
        return PeerError("\n".join([f"vLLM {what}; its last lines:", *told]))


def require_vllm(environment: Path) -> None:
    """Raise PeerError unless `make` has installed vLLM in `environment`."""
    if not list(environment.glob("installed-*")):
        raise PeerError(f"vLLM is not installed in {environment}: make vllm says why")


def variables(environment: Path) -> dict[str, str]:
    """The process's own: those of a rank would tell vLLM that it is one of several ranks."""
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    chosen = {
        "VLLM_CACHE_ROOT": environment.resolve() / "cache",
        "LD_PRELOAD": environment.resolve() / OPENMP,
        "KMP_BLOCKTIME": 1,  # ms that its threads spin for more work, beside ours
    }
    return inherited | {name: str(value) for name, value in chosen.items()}
