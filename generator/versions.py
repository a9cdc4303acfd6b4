"""Ranges of Triton versions."""

from __future__ import annotations

from packaging.specifiers import SpecifierSet

#: The minor versions of Triton that the project supports, and the range they make.
MINOR_VERSIONS = ("3.6", "3.7", "3.8", "3.9")
SUPPORTED = SpecifierSet(">=3.6,<3.10")

_PATCHES = range(20)


def minor_versions(versions: SpecifierSet) -> tuple[str, ...]:
    """The supported minor versions of which some patch lies in `versions`."""
    return tuple(minor for minor in MINOR_VERSIONS if any(f"{minor}.{patch}" in versions for patch in _PATCHES))


def spelled(versions: SpecifierSet) -> str:
    """The range with its lower bound first: `>=3.6,<3.9`."""
    return ",".join(sorted((str(part) for part in versions), key=lambda part: (part[0] == "<", part)))
