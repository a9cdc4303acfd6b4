"""Read and expand several specs, and report the mistakes of all of them together."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from pathlib import Path

from generator.files.same_file import identity
from generator.language.errors import Mistake, SpecError
from generator.language.spec import read
from generator.plan.expand import expand
from generator.plan.kernels import Family


def families(paths: Iterable[Path]) -> list[Family]:
    """The families of the specs at `paths`, each once: several paths to one spec are one.

    A link with another name is another spec, since the file's name gives the family its name. Raises `SpecError` with
    the mistakes of all specs; two specs with the same name are a mistake, too.
    """
    found: list[Family] = []
    mistakes: list[Mistake] = []
    known: set[tuple[str, Hashable]] = set()
    for path in paths:
        spelled = path.name, identity(path)
        if spelled in known:
            continue
        known.add(spelled)
        try:
            family = expand(read(path))
        except SpecError as error:
            mistakes += error.mistakes
            continue
        twin = next((other for other in found if other.spec.name == family.spec.name), None)
        if twin is not None and identity(twin.spec.path) == identity(path):
            continue
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
