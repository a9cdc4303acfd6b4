"""The names that a kernel's file has for itself, which no operand of a spec's own may take."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import jinja2

from generator.vocabulary import SCHEDULE

_HERE = Path(__file__).resolve().parent
#: In a wheel the templates lie inside the package, in a checkout beside it.
TEMPLATES = next(folder for folder in (_HERE / "templates", _HERE.parent / "templates") if folder.is_dir())

#: Functions beside the kernel, whose names are their own.
_BESIDE = "math.j2"

_UNREAD = re.compile(r'"""[\s\S]*?"""|"[^"\n]*"|#.*')
_WORD = re.compile(r"[A-Za-z_]\w*")
#: Names that Python spells and no template has in one piece.
_SPELLED = frozenset(
    {
        *("c", "furthest", "meta", "number", "plan", "refusal"),
        *("gate", "acc_gate", "acc_up", "b_gate", "b_up", "in_b", "acc_left", "acc_right"),
        *(f"{part}_{dimension}" for part in ("in", "offs", "pid") for dimension in "mnk"),
    }
)
#: What the names are made of that stand for an operand: its pointer, its descriptor, its strides.
_MADE = re.compile(r"ld.*|stride_.*|.*_(ptrs?|desc|block|parts)|.*_on_device|x_\d+", re.A)


def of_kernels(path: Path) -> bool:
    """Whether a template's text stands in a kernel or launcher: of whole files the schedules', and parts of files."""
    name, whole, _ = path.name.partition(".py.j2")
    return name in (*SCHEDULE, "module") if whole else name != _BESIDE


@cache
def taken() -> frozenset[str]:
    """Every word of the Python text in the templates of kernels and launchers, builtins that they call among them."""
    found = set(_SPELLED)
    lexer = jinja2.Environment()
    for path in TEMPLATES.rglob("*.j2"):
        if not of_kernels(path):
            continue
        tokens = lexer.lex(path.read_text(encoding="utf-8"))
        python = " ".join(value for _, kind, value in tokens if kind == "data")
        found.update(_WORD.findall(_UNREAD.sub("", python)))
    return frozenset(found)


def is_taken(name: str) -> bool:
    """Whether a kernel or its launcher may use `name` for something of its own."""
    return name in taken() or _MADE.fullmatch(name) is not None
