"""Values of `generator.runtime` as a kernel's `CALL` has them, as source, and the imports of what it uses."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from generator.lowering.lines import INDENT, WIDTH, bracketed, import_of
from generator.lowering.operands import Slot
from generator.plan.contract_call import Argument

#: What calls use of each module of `generator.runtime`.
EXPORTS: Mapping[str, tuple[str, ...]] = {
    "arguments": ("approximate", "as_bytes", "next_power", "stride"),
    "call": ("SCALES", "Call", "Config", "Launch", "Operand", "cdiv", "cheapest", "index_type", "least"),
    "descriptors": ("described", "undescribed"),
    "gradient_calls": ("Gradient", "Total"),
    "limits": ("absent", "at_most", "capability", "first", "multiple", "older", "unrepeatable"),
    "memory": ("Memory", "Reduction", "Workspace"),
    "occupancy": ("Occupancy",),
    "scalars": ("Number", "on_device"),
    "scattered": ("Scattered",),
    "tuner": ("Tuner",),
}
_HELPERS = {name for names in EXPORTS.values() for name in names}
#: The names in source but for those of keywords and attributes, and the strings in it.
_NAME, _STRING = re.compile(r"(?<![\w.])[A-Za-z_]\w*\b(?!=)"), re.compile(r'"[^"]*"')


@dataclass(frozen=True)
class LaunchTable:
    """A launch as source: its kernel, its grid, and what is passed for each parameter."""

    kernel: str
    grid: str
    slots: tuple[Slot, ...]
    constants: tuple[tuple[str, str], ...]
    configured: bool

    @property
    def passed(self) -> list[tuple[str, str]]:
        """The parameters, each with what it is passed."""
        return [*((slot.parameter, slot.value) for slot in self.slots), *self.constants]

    @property
    def text(self) -> str:
        """The launch as source."""
        items = [bracketed_call(f'"{name}": {value}', 3 * INDENT) for name, value in self.passed]
        arguments = [self.kernel, keyword("grid", self.grid), keyword("arguments", called("{", items, "}"))]
        return called("Launch(", [*arguments, *([] if self.configured else ["configured=False"])], ")")


def keyword(name: str, body: str, depth: int = 3 * INDENT) -> str:
    """The keyword argument that is a function of what `body` names, which a formatter leaves as it is."""
    used = [x for x in dict.fromkeys(_NAME.findall(_STRING.sub("", body))) if x not in _OWN]
    # Tensors and numbers, then sizes, then the configuration.
    used.sort(key=lambda x: (not x.islower(), len(x) > 1, "num_" in x))
    head = f"{name}=lambda {''.join(f'{x}, ' for x in used)}**_: "
    if "\n" in body or depth + len(head) + len(body) < WIDTH:
        return head + body
    # A tuple, or a call: each of what is in its brackets gets a line.
    opening, inner = body[: body.index("(") + 1], body[body.index("(") + 1 : -1]
    return head + called(opening, [bracketed_call(x, depth) for x in _split(inner.rstrip(","))], ")")


#: Names in functions that are no parameters.
_OWN = {*_HELPERS, "True", "False", "None", "torch", "lambda", "if", "else", "in"}


def _split(text: str) -> list[str]:
    """The items that commas divide, but for commas in brackets and strings."""
    parts, depth, start, quoted = [], 0, 0, False
    for at, letter in enumerate(text):
        quoted ^= letter == '"'
        depth += 0 if quoted else (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth and not quoted:
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, text[start:].strip()]


def bracketed_call(entry: str, depth: int) -> str:
    """An item in brackets, whose value may be a call, as a formatter breaks it."""
    if depth + INDENT + len(entry) < WIDTH or "(" not in entry:
        return entry
    at = entry.index("(") + 1
    return bracketed(entry[:at], _split(entry[at:-1]), ")", depth + INDENT)


def index(names: Iterable[str]) -> tuple[str, str]:
    """The constant that says how wide the offsets of tensors are, by its name."""
    return "INDEX", f"index_type({', '.join(dict.fromkeys(names))})"


def argument(x: Argument, *more: str, kind: str = "Operand") -> str:
    """An operand or a result of a call as `CALL` has it."""
    if x.number:
        return f'Number("{x.name}")'
    dtype = [x.torch_dtype] * (x.dtype is not None)
    unit = [f"unit={x.unit}"] * (x.unit is not None) + ["shared=True"] * x.shared
    return bracketed(f"{kind}(", [f'"{x.name}"', f'"{x.words}"', *dtype, *unit, *more], ")", 2 * INDENT)


def imports(text: str) -> tuple[str, ...]:
    """The imports of what source uses of the family's library."""
    used = set(_NAME.findall(_STRING.sub("", text)))
    lines = []
    for module, names in EXPORTS.items():
        listed = [name for name in names if name in used]
        if listed:
            lines.append(import_of(f"._runtime.{module}", listed))
    return tuple(lines)


def called(head: str, items: Sequence[str], tail: str) -> str:
    """Items between brackets, each on lines of its own."""
    body = "".join(f"{item},\n" for item in items)
    return f"{head}\n{textwrap.indent(body, ' ' * INDENT)}{tail}"


def entries(name: str, items: Sequence[str]) -> list[str]:
    """The keyword argument that has the items, if there are any: a single item on one line where it fits."""
    if not items:
        return []
    one = f"{name}=({items[0]},)"
    if len(items) == 1 and "\n" not in one and INDENT + len(one) < WIDTH:
        return [one]
    return [called(f"{name}=(", items, ")")]
