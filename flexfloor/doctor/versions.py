"""Versions of Python and of the packages that a run imports, against those that the package asks for.

Invariants:
- A package that is missing or has another version than asked for is always listed.
"""

from __future__ import annotations

import platform
from importlib import metadata

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from flexfloor.doctor.types import Finding

DISTRIBUTION = "flexfloor"
ALWAYS_LISTED = ("torch", "megatron-core", "transformers", "wandb")


def check_versions(distribution: str = DISTRIBUTION) -> list[Finding]:
    """Python and the packages of `ALWAYS_LISTED`, then each other package that something is wrong with."""
    python, asked = _asked_for(distribution)
    wanted = {name: asked.get(name, SpecifierSet()) for name in (*ALWAYS_LISTED, *sorted(asked))}
    packages = [_check_package(name, specifier) for name, specifier in wanted.items()]
    listed = [each for each in packages if each.name in ALWAYS_LISTED or each.complaint]
    return [_finding("python", platform.python_version(), python), *listed]


def _asked_for(distribution: str) -> tuple[SpecifierSet, dict[str, SpecifierSet]]:
    """What the installed metadata of `distribution` asks for; nothing where it runs from a bare checkout."""
    try:
        about, lines = metadata.metadata(distribution), metadata.requires(distribution) or []
    except metadata.PackageNotFoundError:
        return SpecifierSet(), {}
    needs = [Requirement(line) for line in lines]
    of_every_run = [need for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    python = SpecifierSet(about["Requires-Python"] or "")
    return python, {need.name: need.specifier for need in of_every_run}


def _check_package(name: str, specifier: SpecifierSet) -> Finding:
    try:
        return _finding(name, metadata.version(name), specifier)
    except metadata.PackageNotFoundError:
        return Finding(name=name, found="-", wanted=str(specifier), complaint="missing")


def _finding(name: str, version: str, specifier: SpecifierSet) -> Finding:
    supported = specifier.contains(version, prereleases=True)
    complaint = None if supported else "not supported"
    return Finding(name=name, found=version, wanted=str(specifier), complaint=complaint)
