"""Read JSON that a machine wrote, and check every value by the JSON Schema of that kind of file."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from generator.files.reading import FileError, read_text

#: The draft whose integers are whole numbers that are written as such: `1.0` is none.
_DRAFT = "http://json-schema.org/draft-04/schema"
_BETWEEN = re.compile(r"[ \t\n\r,:]*")


class Wrong(ValueError):
    """Text that is not what its schema says: the line, from 1, and the reason."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line, self.reason = line, reason


class Schema:
    """The JSON Schema (draft 4) of one kind of file, or of one line of it.

    Numbers are finite: `NaN`, `Infinity` and `1e999` are wrong whatever the schema says, and so is a repeated key.
    """

    def __init__(self, contents: Mapping[str, Any]) -> None:
        self.contents = {"$schema": _DRAFT, **contents}

    @cached_property
    def _check(self) -> Any:
        # Imported here, so that a command line can say that the package is missing.
        import fastjsonschema

        return fastjsonschema.compile(self.contents, use_default=False, use_formats=False)

    def parse(self, text: str, first: int = 1) -> Any:
        """The value of a text whose first line has the number `first`; raises `Wrong`."""
        return self.check(loaded(text, first), text, first)

    def check(self, instance: Any, text: str = "", first: int = 1) -> Any:
        """The value, which `text` holds, if it has the schema; raises `Wrong` with its line."""
        import fastjsonschema

        try:
            return self._check(instance)
        except fastjsonschema.JsonSchemaValueException as error:
            path = [str(step) for step in error.path[1:]]
            rule = str(error.message).removeprefix(str(error.name)).strip()
            value = json.dumps(error.value)
            found = value if len(value) <= 60 else f"{value[:57]}..."
            line = first + line_of(text, path) - 1
            raise Wrong(line, f"{'.'.join(path) or 'the value'} {rule}, found {found}") from None
        except RecursionError:
            raise Wrong(first, "is nested too deeply") from None

    def read(self, path: Path) -> Any:
        """The value in a file; raises FileNotFoundError if there is none, else `FileError` with line and reason."""
        try:
            return self.parse(read_text(path))
        except Wrong as error:
            raise FileError(path, error.reason, error.line) from None


def loaded(text: str, first: int = 1) -> Any:
    """The value of a text of any JSON, whose first line has the number `first`; raises `Wrong`."""
    try:
        return json.loads(text, parse_float=_finite, parse_constant=_finite, object_pairs_hook=_distinct)
    except json.JSONDecodeError as error:
        raise Wrong(first + error.lineno - 1, f"is not JSON: {error.msg}") from None
    except RecursionError:
        raise Wrong(first, "is nested too deeply") from None
    except ValueError as error:
        # Of a literal, or without one of an integer of thousands of digits, which Python refuses to read.
        reason, literal = (*error.args, "")[:2]
        raise Wrong(first + text.count("\n", 0, max(0, text.find(literal))), reason) from None


def _finite(literal: str) -> float:
    value = float(literal)
    if not math.isfinite(value):
        raise ValueError(f"{literal} is not a finite number", literal)
    return value


def _distinct(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {repeated!r} appears twice", json.dumps(repeated, ensure_ascii=False))
    return members


def line_of(text: str, path: Iterable[str]) -> int:
    """The line, from 1, on which the value at `path` (keys and indices) of a JSON text begins."""
    at = _next(text, 0)
    for step in path:
        member = dict(_members(text, at)).get(step)
        if member is None:
            break
        at = member
    return text.count("\n", 0, at) + 1


def _members(text: str, at: int) -> Iterable[tuple[str, int]]:
    """The keys or indices of the object or list that begins at `at`, with the positions of their values."""
    decode, opening = json.JSONDecoder().raw_decode, text[at : at + 1]
    for number in itertools.count() if opening in ("{", "[") else ():
        at = _next(text, at if number else at + 1)
        if text[at : at + 1] in ("}", "]", ""):
            return
        key = str(number)
        if opening == "{":
            key, at = decode(text, at)
            at = _next(text, at)
        yield key, at
        at = decode(text, at)[1]


def _next(text: str, at: int) -> int:
    """The position, from `at`, of what is neither space nor a mark between values."""
    return match.end() if (match := _BETWEEN.match(text, at)) else at
