"""Ranges of Triton versions."""

from __future__ import annotations

from functools import cache

from packaging.specifiers import SpecifierSet
from packaging.version import Version

#: The supported minor versions of Triton, and their range.
MINOR_VERSIONS = ("3.6", "3.7", "3.8", "3.9")
SUPPORTED = SpecifierSet(">=3.6,<3.10")

_PATCHES = range(20)


@cache
def minor_versions(versions: SpecifierSet) -> tuple[str, ...]:
    """The supported minor versions that have a patch release in `versions`."""
    return tuple(minor for minor in MINOR_VERSIONS if any(f"{minor}.{patch}" in versions for patch in _PATCHES))


@cache
def spelled(versions: SpecifierSet) -> str:
    """The range with its lower bound first, and only the tightest of each bound: `>=3.6,<3.9`."""
    parts = {str(part) for part in versions}
    for operator, tightest in ((">=", max), ("<", min)):
        bounds = {part for part in parts if part.startswith(operator) and part[len(operator)].isdigit()}
        if bounds:
            parts = parts - bounds | {tightest(bounds, key=lambda part: Version(part.lstrip("<>=")))}
    return ",".join(sorted(parts, key=lambda part: (not part.startswith(">"), part)))
