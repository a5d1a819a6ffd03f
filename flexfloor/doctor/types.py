"""What the doctor finds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    name: str
    found: str
    """What is there, as text."""
    wanted: str = ""
    """What is supported, as text; empty where anything goes."""
    complaint: str | None = None
    """What is wrong with it; None when nothing is."""

    @property
    def state(self) -> str:
        """`ok`, or the complaint."""
        return self.complaint or "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether one configuration would run on this machine."""

    name: str
    ranks: int | None = None
    """None where the settings themselves are refused."""
    needed_bytes: int | None = None
    """Estimate for all ranks of this machine together; None where it could not be made."""
    complaint: str | None = None
    """Why it would not run; None when it would."""
