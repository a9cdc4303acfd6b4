"""Read and expand several specs, and report the mistakes of all of them together."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from generator.language.errors import Mistake, SpecError
from generator.language.spec import read
from generator.plan.expand import expand
from generator.plan.kernels import Family


def families(paths: Iterable[Path]) -> list[Family]:
    """The families of the specs at `paths`, each path once.

    Raises `SpecError` with the mistakes of all specs; two specs with the same name are a mistake, too.
    """
    found: list[Family] = []
    mistakes: list[Mistake] = []
    for path in dict.fromkeys(paths):
        try:
            family = expand(read(path))
        except SpecError as error:
            mistakes += error.mistakes
            continue
        twin = next((other for other in found if other.spec.name == family.spec.name), None)
        if twin is not None:
            line, column = family.spec.positions.get(("name", ""), (1, 1))
            message = (
                f"name: {family.spec.name!r} is also the name of {twin.spec.path}; two specs cannot share a folder"
            )
            mistakes.append(Mistake(path, line, column, message))
        found.append(family)
    if mistakes:
        raise SpecError(mistakes)
    return found
