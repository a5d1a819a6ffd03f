"""What this machine has that a run can use."""

from __future__ import annotations

import os

from flexfloor import device
from flexfloor.doctor.types import Finding

GIB = 2**30


def look_at_machine() -> list[Finding]:
    """Device, backend, cores and memory."""
    found = {
        "device": device.describe(),
        "backend": device.backend(),
        "cores": str(len(os.sched_getaffinity(0))),
        "free memory": f"{device.free_memory_bytes() / GIB:.1f} GiB",
    }
    return [Finding(name=name, found=text) for name, text in found.items()]
