"""Every mutation, as catalogue.txt has it.

Its first section names the kernels. A case is `KERNEL: name`, or `KERNEL/FILE: name` where another file of the family
is changed. What is said of it is `kind, level "words of the message": what comes of it in use`, or
`kind, equivalent "why nothing changes": ...`, and after that other fields of `Mutation`.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.helpers.changes import Case, sections

from .mutation import Mutation

_KERNELS, *_SECTIONS = sections(Path(__file__).with_suffix(".txt")).values()
_LINES = [line.split() for line in _KERNELS.preface.splitlines() if not line.startswith("#")]
_BY_NAME = {name: tuple(kernel.split("/")) for name, kernel in _LINES}


def _mutation(case: Case) -> Mutation:
    place, name = case.title.split(": ", 1)
    kernel, _, own = place.partition("/")
    said, *others = case.said
    told = re.fullmatch(r'([\w ]+), (\w+)(?: "([^"]*)")?: (.*)', said)
    assert told, case
    kind, level, words, why = told.groups(default="")
    fields = {field: value.split() for field, value in (line.split(": ") for line in others)}
    equivalent = level == "equivalent"
    return Mutation(
        name,
        kind,
        _BY_NAME[kernel],
        case.replacements,
        why,
        by="interpret" if equivalent else level,
        says="" if equivalent else words,
        equivalent=words if equivalent else None,
        launches=tuple(fields.pop("launches", ())),
        contract=next(iter(fields.pop("contract", ())), None),
        own=own or None,
        stale=frozenset(fields.pop("stale", ())),
    )


MUTATIONS = tuple(_mutation(case) for section in _SECTIONS for case in section.cases)
