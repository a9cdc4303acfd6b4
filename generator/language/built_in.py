"""The operations that every spec has: those of `operations.yaml`, the auxiliary outputs, and `accumulate`.

`operations.yaml` has the form of a spec's own `ops` and is read by the same reader.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from generator.epilogue.auxiliary_outputs import ACCUMULATE, ACCUMULATED, AUXILIARY, named
from generator.epilogue.chain import Epilogue, Used, operation_of, settings_of
from generator.epilogue.operations import FILE, EpilogueOperation
from generator.epilogue.quantisation import QUANTISES, QUANTIZE
from generator.language.document import compose
from generator.language.errors import SpecError
from generator.language.operation_reader import read_operations
from generator.language.quantised_results import quantisation_of
from generator.language.reader import Reader


def _operations() -> dict[str, EpilogueOperation]:
    reader = Reader(FILE)
    operations = read_operations(reader, compose(FILE, FILE.read_text(encoding="utf-8")), {})
    if reader.mistakes:
        raise SpecError(reader.mistakes)
    return {name: replace(operation, built_in=True) for name, operation in operations.items() if operation is not None}


#: The built-in operations that are only a formula.
OPERATIONS: Mapping[str, EpilogueOperation] = _operations()

_OWN: dict[str, EpilogueOperation] = {ACCUMULATE: ACCUMULATED, **AUXILIARY, QUANTIZE: QUANTISES}

#: All built-in operations, those that are only a formula first.
BUILT_IN: Mapping[str, EpilogueOperation] = ChainMap(_OWN, OPERATIONS)  # type: ignore[arg-type]


def known(name: str, operation: EpilogueOperation) -> EpilogueOperation:
    """The built-in operation `name` if `operation`, read from JSON, equals it; else `operation`."""
    own = BUILT_IN.get(name)
    return own if own is not None and own == replace(operation, built_in=True) else operation


def chain_of(operations: Sequence[str | Mapping[str, Any]]) -> Epilogue:
    """The chain of `Epilogue.data`, or of built-in names; raise KeyError for an unknown name."""
    used: list[Used] = []
    for entry in operations:
        if isinstance(entry, str):
            used.append((entry, BUILT_IN[entry], ()))
        elif entry["operation"] == QUANTIZE:
            used.append((QUANTIZE, quantisation_of(entry), ()))
        elif "output" in entry:
            used.append((entry["operation"], named(AUXILIARY[entry["operation"]], entry["output"]), ()))
        else:
            operation = known(entry["operation"], operation_of(entry))
            used.append((entry["operation"], operation, settings_of(entry["settings"], operation)))
    return Epilogue.chain(used)
