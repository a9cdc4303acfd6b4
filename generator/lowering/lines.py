"""Text broken into the lines of a rendered file."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

#: Columns of a line, and of each level of indentation.
WIDTH = 120
INDENT = 4
#: Columns of an import: those of ruff's defaults, by which it sorts imports in somebody else's repository.
IMPORT_WIDTH = 88


@cache
def paragraph(text: str, depth: int = 4, hang: str = "") -> str:
    """Prose wrapped to what `depth` columns leave of a line, later lines behind `hang`; a long word keeps its line."""
    return textwrap.fill(text, WIDTH - depth, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False)


def dense(text: str) -> str:
    """The lines of a text that are not blank: what a template leaves empty leaves no line."""
    return "\n".join(line for line in text.split("\n") if line.strip())


def bracketed(head: str, items: Sequence[str], tail: str, depth: int = 0, joint: str = ", ") -> str:
    """Items between brackets as a formatter breaks them, where statements begin in column `depth`.

    On one line, on a line of their own, or each on one, where a comma that joins them stands behind the last too.
    """
    one = joint.join(items)
    if depth + len(head + one + tail) <= WIDTH:
        return head + one + tail
    if depth + 4 + len(one) <= WIDTH:
        return f"{head}\n    {one}\n{tail}"
    return "\n".join([head, *(f"    {item}{joint.rstrip()}" for item in items), tail])


def collected(head: str, items: Sequence[str], tail: str, depth: int = 0) -> str:
    """The items of a dictionary or list as a formatter breaks them: on one line, or each on one, with a comma."""
    one = f"{head}{', '.join(items)}{tail}"
    # What follows is a comma at most.
    if depth + len(one) < WIDTH:
        return one
    return "\n".join([head, *(textwrap.indent(f"{item},", " " * INDENT) for item in items), tail])


def import_of(module: str, names: Sequence[str]) -> str:
    """The import of names, each on a line of its own if they are too many for one."""
    one = f"from {module} import {', '.join(names)}"
    each = [f"from {module} import (", *(f"    {name}," for name in names), ")"]
    return one if len(one) <= IMPORT_WIDTH else "\n".join(each)


def tuple_of(items: Sequence[str], depth: int = 0, head: str = "") -> str:
    """The items of a tuple behind `head`, broken as those of `collected`; that of one has a comma on one line too."""
    tail = ",)" if len(items) == 1 else ")"
    return collected(f"{head}(", items, tail, depth).replace("\n,)", "\n)")


def needed_entries(needs: Mapping[str, Sequence[int | None]], depth: int) -> tuple[str, ...]:
    """The shared memory that configurations need, by kind of device, as the entries of a dictionary."""
    return tuple(tuple_of([str(each) for each in own], depth, f'"{kind}": ') for kind, own in needs.items())


def conditional(name: str, chosen: str, condition: str, otherwise: str, depth: int) -> Iterator[str]:
    """An assignment of one of two values, on one line if that holds it."""
    one = f"{name} = {chosen} if {condition} else {otherwise}"
    if depth + len(one) <= WIDTH:
        yield one
    else:
        yield from (f"if {condition}:", f"    {name} = {chosen}", "else:", f"    {name} = {otherwise}")
