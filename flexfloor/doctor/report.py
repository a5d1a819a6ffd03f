"""The doctor's tables and its verdict.

Invariants:
- It is ill when a package or a patch is not as it must be, or when nothing that was asked about would run;
  a shipped recipe that is too large for this machine is no illness.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flexfloor.doctor.types import Finding, Verdict
from flexfloor.doctor.versions import check_versions
from flexfloor.track.console import Console

GIB = 2**30


def examine(recipes: Sequence[str], overrides: list[str], config_dir: Path | None = None) -> bool:
    """Print what is found; whether a run can be started.

    Args:
        recipes: names of the recipes to judge where `overrides` are empty.
        overrides: one configuration to judge instead.
    """
    console = Console()
    versions = check_versions()
    console.table("versions", ("", "found", "supported", ""), [_row(each) for each in versions], num_left=4)
    if any(each.complaint == "missing" for each in versions):
        return _conclude(console, versions, [])
    # What is missing could not be imported, and is told instead.
    from flexfloor.doctor.machine import look_at_machine
    from flexfloor.doctor.recipes import judge
    from flexfloor.doctor.upstream import check_patches

    console.table("machine", ("", ""), [(each.name, each.found) for each in look_at_machine()], num_left=2)
    patches = check_patches()
    rows = [(each.name, each.found, each.state) for each in patches]
    console.table("patches of this host, and the sources they were written against", ("", "", ""), rows, 3)
    asked = {"these settings": overrides} if overrides else {name: [f"recipe={name}"] for name in recipes}
    verdicts = [judge(name, words, config_dir) for name, words in asked.items()]
    columns = ("", "ranks", "memory, about", "would run here")
    console.table("recipes", columns, [_verdict_row(each) for each in verdicts], num_left=4)
    return _conclude(console, [*versions, *patches], verdicts)


def _row(each: Finding) -> tuple[str, str, str, str]:
    return each.name, each.found, each.wanted or "any", each.state


def _verdict_row(each: Verdict) -> tuple[str, str, str, str]:
    ranks = "-" if each.ranks is None else str(each.ranks)
    memory = "-" if each.needed_bytes is None else f"{each.needed_bytes / GIB:.1f} GiB"
    return each.name, ranks, memory, "yes" if each.complaint is None else f"no: {each.complaint}"


def _conclude(console: Console, findings: list[Finding], verdicts: list[Verdict]) -> bool:
    wrong = [f"{each.name} is {each.state}" for each in findings if each.complaint]
    if not wrong and verdicts and all(each.complaint for each in verdicts):
        wrong = ["nothing of this would run here"]
    console.line(f"not ready: {'; '.join(wrong)}" if wrong else "ready")
    return not wrong
