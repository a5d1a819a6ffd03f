"""Compare each patch record with the Megatron-Core on the path; for one that is new, this gives its hashes.

`PYTHONPATH=<folder of another version> python tools/patch_hashes.py` looks at that version.
"""

from __future__ import annotations

import sys

from megatron_patches import CPU_HOST, EVERY_HOST, WITHOUT_TE, Kind, Patch, UpstreamChanged, applied, quiet
from megatron_patches.patch import upstream_version


def main() -> None:
    """Print the version and one line a record."""
    quiet.silence_expected()
    records = [patch for patch in (*EVERY_HOST, *WITHOUT_TE, *CPU_HOST) if patch.kind is not Kind.STAND_IN]
    lines = [f"megatron-core {upstream_version('megatron.core')}", *map(compared, records)]
    sys.stdout.write("\n".join(lines) + "\n")


def compared(patch: Patch) -> str:
    """Target and what its source hashes to, or that it is one on record."""
    try:
        with applied([patch]):
            return f"{patch.target}: as on record"
    except UpstreamChanged as change:
        return str(change)


if __name__ == "__main__":
    main()
