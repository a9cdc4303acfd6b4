"""Values of `generator.runtime` as the tables of calls have them, as source, and the imports of what a table uses."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from generator.lowering.lines import INDENT, WIDTH, bracketed, collected, import_of
from generator.lowering.operands import Slot
from generator.plan.contract_call import Argument

#: What tables use of each module of `generator.runtime`.
EXPORTS: Mapping[str, tuple[str, ...]] = {
    "arguments": ("Approximate", "Bytes", "Index", "Stride"),
    "call": ("Call", "Config", "Launch", "Table"),
    "call_tensors": ("SCALES", "Operand", "Result"),
    "choice": ("Cheapest", "LeastSlowdown"),
    "descriptors": ("Described",),
    "extents": (
        *("BLOCK_K", "BLOCK_M", "BLOCK_N", "LEFT_N", "MIDDLE_M", "MIDDLE_N", "PROGRAMS", "SPLIT", "STAGES", "TOP_M"),
        *("B", "G", "K", "M", "N", "R", "S", "T"),
        *("ceil", "least", "power"),
    ),
    "gradient_calls": ("Contiguous", "Gradient", "GradientCall", "Groups", "Total"),
    "limits": ("Absent", "AtMost", "Capability", "Limited", "Multiple", "NotDeterministic", "Older"),
    "memory": ("Memory", "Reduction", "Workspace"),
    "occupancy": ("Occupancy",),
    "scalars": ("Number", "OnDevice"),
    "tuner": ("Tuner",),
}


@dataclass(frozen=True)
class LaunchTable:
    """A launch as source: its kernel, its grid, and what is passed for each parameter."""

    kernel: str
    grid: str
    slots: tuple[Slot, ...]
    constants: tuple[tuple[str, str], ...]
    configured: bool

    @property
    def text(self) -> str:
        """The launch as source."""
        tensors = [(slot.parameter, slot.value) for slot in self.slots if slot.owner is not None]
        numbers = [(slot.parameter, slot.value) for slot in self.slots if slot.owner is None]
        lines = [self.kernel, f"grid={self.grid}"]
        for name, entries in (("tensors", tensors), ("numbers", numbers), ("constants", self.constants)):
            if entries:
                lines.append(collected(f"{name}={{", [f'"{x}": {value}' for x, value in entries], "}", 3 * INDENT))
        return called("Launch(", [*lines, *([] if self.configured else ["configured=False"])], ")")


def index(names: Iterable[str]) -> tuple[str, str]:
    """The constant that says how wide the offsets of tensors are, by its name."""
    listed = [f'"{name}"' for name in dict.fromkeys(names)]
    entry = bracketed('"INDEX": Index(', listed, "),", 4 * INDENT)
    return "INDEX", entry.removeprefix('"INDEX": ').removesuffix(",")


def argument(x: Argument, absent: str = "") -> str:
    """An operand of a call as its table has it; one that may be left out has the size `absent` then."""
    if x.number:
        return f'Number("{x.name}")'
    named = [f"unit={x.unit}"] * (x.unit is not None) + [f"absent={absent}"] * bool(absent)
    kind = x.torch_dtype
    return bracketed("Operand(", [f'"{x.name}"', x.shape, *([kind] if kind != "None" else []), *named], ")", 2 * INDENT)


def imports(text: str) -> tuple[str, ...]:
    """The imports of what source uses of the family's library."""
    used = set(_NAME.findall(_STRING.sub("", text)))
    found = []
    for module, names in EXPORTS.items():
        listed = [name for name in names if name in used]
        if listed:
            found.append(import_of(f"._runtime.{module}", listed))
    return tuple(found)


#: The names in source but for those of keywords, and the strings in it.
_NAME, _STRING = re.compile(r"\b[A-Za-z_]+\b(?!=)"), re.compile(r'"[^"]*"')


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
