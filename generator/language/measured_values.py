"""What the values of measurements may be, as parts of JSON Schemas, and the reading of files that have such values.

Each kind of file has its schema beside the dataclasses that it describes. What a schema cannot say, such as that a
kernel is one of its contract, is checked while the value is built (`Unfit`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

from generator.files.checked_json import Schema, Wrong, line_of, loaded
from generator.files.reading import FileError, read_text
from generator.language.errors import CallError, shown

_Built = TypeVar("_Built")

#: The largest size of a product: a call refuses larger ones, of which the offsets within a tile pass 32 bits.
LARGEST_SIZE = 2**31 - 2**16
#: Text without halves of characters, which no file can have in UTF-8.
TEXT: dict[str, Any] = {"type": "string", "pattern": r"^[^\ud800-\udfff]*$"}
#: What becomes a name in rendered source: printable ASCII without a quote and a backslash.
NAME: dict[str, Any] = {"type": "string", "pattern": r"^[ !#-\[\]-~]+$"}
SWITCH: dict[str, Any] = {"type": "boolean"}
COUNT: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": 2**53}
SIZE: dict[str, Any] = {"type": "integer", "minimum": 1, "maximum": LARGEST_SIZE}
PRODUCTS: dict[str, Any] = {**SIZE, "minimum": 0}
#: Seconds of a call: more than a picosecond, and less than a day.
SECONDS: dict[str, Any] = {"type": "number", "minimum": 1e-12, "maximum": 86400}
#: A positive number, such as a ratio, which can be multiplied and divided without becoming infinite or 0.
ABOVE_0: dict[str, Any] = {"type": "number", "minimum": 1e-30, "maximum": 1e30}
#: The same, or 0.
SHARE: dict[str, Any] = {"type": "number", "minimum": 0, "maximum": 1e30}
#: An error, which may be of any size.
ERROR: dict[str, Any] = {"type": "number", "minimum": 0}
#: The largest value of a configuration.
LARGEST_VALUE = 1 << 20
#: A configuration. `configuration` says what else holds.
CONFIG: dict[str, Any] = {
    "type": "object",
    "patternProperties": {"^[A-Za-z_][A-Za-z0-9_]*$": {"type": "integer", "minimum": 1, "maximum": LARGEST_VALUE}},
    "additionalProperties": False,
}

#: The columns of a configuration that are powers of two, or the sum of so many; and the largest value of a column.
_POWERS = {"BLOCK_M": 3, "BLOCK_N": 3, "BLOCK_K": 1, "num_warps": 1}
_LARGEST = {"num_warps": 64, "num_stages": 64}


#: The end of a message about a file of measurements in another format.
MEASURE_AGAIN = ": name another file, or remove this one, and what it held is measured again"


class Unfit(ValueError):
    """A value that its schema accepts and that is wrong all the same: the keys and indices to it, and the reason."""

    def __init__(self, reason: str, *steps: str | int) -> None:
        super().__init__(reason)
        self.reason, self.steps = reason, tuple(map(str, steps))


def or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a value or null."""
    return {**schema, "type": [schema["type"], "null"]}


def exactly(value: int) -> dict[str, Any]:
    """The schema of a whole number that a file must have, such as its format."""
    return {"type": "integer", "enum": [value]}


def mapping(properties: Mapping[str, Any], optional: Sequence[str] = ()) -> dict[str, Any]:
    """The schema of a mapping with exactly these keys, of which the optional ones may be missing."""
    required = [name for name in properties if name not in optional]
    schema = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return {**schema, "required": required} if required else schema


def record(of: type[Any], properties: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a dataclass: `properties` are those of its fields, and fields with a default may be missing."""
    own = fields(of)
    if {field.name for field in own} != set(properties):
        raise TypeError(f"the fields of {of.__name__} are {', '.join(field.name for field in own)}")
    return mapping(properties, [f.name for f in own if f.default is not MISSING or f.default_factory is not MISSING])


def entries(of: Mapping[str, Any], least: int = 0) -> dict[str, Any]:
    """The schema of a list of such values."""
    return {"type": "array", "items": dict(of), "minItems": least}


def by_name(of: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a mapping from names to such values."""
    return {"type": "object", "patternProperties": {NAME["pattern"]: dict(of)}, "additionalProperties": False}


def configuration(config: Mapping[str, int], *steps: str | int) -> None:
    """Raise `Unfit`, with `steps` to the configuration, for a value that no entry of `CONFIGS` has."""
    for name, value in config.items():
        if value > _LARGEST.get(name, value) or value.bit_count() > _POWERS.get(name, 64):
            raise Unfit(f"{value} is not a value that a kernel has", *steps, name)


def of_contract(kernel: str, contract: str, *steps: str | int) -> None:
    """Raise `Unfit`, with `steps` to the kernel's name, for a kernel of another contract."""
    if kernel.partition("__")[0] != contract or not kernel.partition("__")[2]:
        raise Unfit(f"{shown(kernel)} is not a kernel of the contract {shown(contract)}", *steps)


class OtherFormat(Wrong):
    """A text of the same kind whose format, a whole number, this version does not read."""


def parsed(text: str, schema: Schema, build: Callable[[Any], _Built], first: int = 1) -> _Built:
    """What `build` makes of a text that has the schema; the first line has the number `first`.

    Raises `Wrong`, and of this `OtherFormat` if the text begins with the number of another format.
    """
    value = loaded(text, first)
    legal = schema.contents.get("properties", {}).get("format", {}).get("enum")
    # The oldest files do not say their format.
    number = value.get("format", 1) if isinstance(value, dict) else None
    if legal is not None and type(number) is int and abs(number) < 1000 and number not in legal:
        line = first + line_of(text, ["format"]) - 1
        raise OtherFormat(line, f"format {number}, this version reads {legal[-1]}")
    try:
        return build(schema.check(value, text, first))
    except Unfit as error:
        reason = f"{'.'.join(error.steps)}: {error.reason}" if error.steps else error.reason
        raise Wrong(first + line_of(text, error.steps) - 1, reason) from None


def read(
    path: Path, schema: Schema, build: Callable[[Any], _Built], kind: str, option: str = "", remedy: str = ""
) -> _Built:
    """What `build` makes of a file of some kind, such as `a file of winners`.

    Raises FileNotFoundError if there is none, and `CallError`, which begins with the option, for one of another kind.
    `remedy` is the end of the message about another format.
    """
    front = f"{option}: " if option else ""
    try:
        return parsed(read_text(path), schema, build)
    except FileError as error:
        raise CallError(f"{front}{error}") from None
    except Wrong as error:
        end = remedy if isinstance(error, OtherFormat) else ""
        raise CallError(f"{front}{path}:{error.line}: is not {kind}: {error.reason}{end}") from None


def checked(text: str, schema: Schema, build: Callable[[Any], object], path: Path) -> str:
    """The text, which is about to be written to a file; raises `FileError` if it could not be read, as by `parsed`.

    Halves of characters, which the message of an exception may have, become question marks.
    """
    text = text.encode("utf-8", "replace").decode()
    try:
        parsed(text, schema, build)
    except Wrong as error:
        raise FileError(path, f"is not written, because line {error.line} would be wrong: {error.reason}") from None
    return text
