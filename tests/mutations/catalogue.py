"""Every mutation, as catalogue.txt has it.

Its first section names the kernels. A case is `KERNEL: name`, or `KERNEL/FILE: name` where another file of the family
is changed. What is said of it is `kind, level "words of the message": what comes of it in use`, or
`kind, equivalent "why nothing changes": ...`, and after that other fields of `Mutation`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.changes import Case, sections


@dataclass(frozen=True)
class Mutation:
    """One mistake planted in one rendered file, known by its `name`; the catalogue says what comes of it in use."""

    name: str
    #: The family's folder and the kernel's name.
    kernel: tuple[str, str]
    #: Each text of the file that is replaced, found exactly once, and what stands there instead.
    changes: tuple[tuple[str, str], ...]
    #: The level that finds it at the latest: one before may be the first.
    by: str = "interpret"
    #: Words of the message when that level is the first.
    says: str = ""
    #: Why nothing that anybody could observe is changed: then every level must pass it.
    equivalent: str | None = None
    #: The launches that the compile level compiles; without any, the aligned one of the smallest row.
    launches: tuple[str, ...] = ()
    #: A contract whose function is run, in place of the kernel.
    contract: str | None = None
    #: The file of the family that is changed; without one it is the kernel's.
    own: str | None = None
    #: What is left as it was, of `digest` in the file and `manifest` beside it.
    stale: frozenset[str] = frozenset()

    @property
    def file(self) -> str:
        """The name of the file that is changed."""
        return self.own or f"{self.kernel[1]}.py"


_KERNELS, *_SECTIONS = sections(Path(__file__).with_suffix(".txt")).values()
_LINES = [line.split() for line in _KERNELS.preface.splitlines() if not line.startswith("#")]
_BY_NAME = {name: tuple(kernel.split("/")) for name, kernel in _LINES}


def _mutation(case: Case) -> Mutation:
    place, name = case.title.split(": ", 1)
    kernel, _, own = place.partition("/")
    said, *others = case.said
    told = re.fullmatch(r'[\w ]+, (\w+)(?: "([^"]*)")?: .*', said)
    assert told, case
    level, words = told.groups(default="")
    fields = {field: value.split() for field, value in (line.split(": ") for line in others)}
    equivalent = level == "equivalent"
    return Mutation(
        name,
        _BY_NAME[kernel],
        case.replacements,
        by="interpret" if equivalent else level,
        says="" if equivalent else words,
        equivalent=words if equivalent else None,
        launches=tuple(fields.pop("launches", ())),
        contract=next(iter(fields.pop("contract", ())), None),
        own=own or None,
        stale=frozenset(fields.pop("stale", ())),
    )


MUTATIONS = tuple(_mutation(case) for section in _SECTIONS for case in section.cases)
