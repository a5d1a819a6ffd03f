"""What a user can mend, said on stderr without a traceback of FlexFloor's own."""

from __future__ import annotations

import os
import sys

from flexfloor.errors import FlexFloorError, RankError

MAX_TRACEBACK_LINES = 20
"""Of a rank's traceback; the last ones say what happened."""


def write_error(error: FlexFloorError) -> None:
    """Write `error`, and where the rank failed; ranks other than the first of a launcher write one line."""
    if isinstance(error, RankError):
        lines = error.rank_traceback.splitlines()
        sys.stderr.writelines(f"{line}\n" for line in lines[-MAX_TRACEBACK_LINES:])
    rank, message = os.environ.get("RANK", "0"), str(error)
    if rank != "0" and not isinstance(error, RankError):
        message = f"rank {rank}: " + message.partition("\n")[0]
    elif error.place:
        message += f"\n(on {error.place})"
    sys.stderr.write(f"flexfloor: {message}\n")
