"""Names that generated files use themselves, so that no user-defined operand may have them."""

from __future__ import annotations

import keyword
import re
from functools import cache
from pathlib import Path

import jinja2

from generator.files.package_data import shared
from generator.language.vocabulary import SCHEDULE

#: The folder of the templates of kernels and launchers.
TEMPLATES = shared("templates", "templates")

#: Functions next to the kernel and to `gemm`, whose local names cannot clash.
_BESIDE = ("math.j2", "standalone.j2")

_UNREAD = re.compile(r'"""[\s\S]*?"""|"[^"\n]*"|#.*')
_WORD = re.compile(r"[A-Za-z_]\w*")
#: What the blocks of a tile are called, of its columns and of its rows, and the halves of a gate.
_COLUMNS, _ROWS, _HALVES = ("left", "middle", "right"), ("top", "middle", "bottom"), ("gate", "up")
#: Names that Python code composes, so that no template contains them as a whole.
_SPELLED = frozenset(
    {
        *("c", "furthest", "map", "meta", "number", "plan", "refusal", "tuple", "x"),
        *("dtype", "isinstance", "needed", "parts"),
        # What `gemm` and the methods of its call have beside operands, and what launches take.
        *("config", "float", "gemm", "given", "grid", "kernel", "num_stages", "num_warps", "out", "results", "self"),
        # The same of a file that stands alone, and what its statements call.
        *("columns", "containers", "cost", "index", "max", "min", "programs", "row", "rows", "scatter"),
        *("tuned", "tuned_kernel", "gemm_kernel", "sum_kernel", "decode_kernel"),
        *("Any", "Config", "Row", "CONFIGS", "SCALES", "TOO_LARGE", "Tensor", "TensorDescriptor", "ValueError"),
        # What the functions of a call may call.
        *("absent", "approximate", "as_bytes", "at_most", "capability", "cdiv", "cheapest", "described", "first"),
        *("index_type", "least", "multiple", "needs_of", "next_power", "older", "on_device"),
        *("stride", "undescribed", "unrepeatable"),
        # Memory that is allocated for a call, which launches name as they name operands.
        *("counters", "decoded", "sums", "work"),
        *("gate", "acc_gate", "acc_up", "b_gate", "b_up", "in_b", "in_s"),
        *("middle_row", "bottom_row", "middle_column", "right"),
        *(f"{x}_{block}" for x in ("acc", "in", "offs") for block in (*_COLUMNS, *_ROWS)),
        *(f"{x}_{block}" for x in ("b", "b_scale", "b_zero", "in_b", "offs_b") for block in _COLUMNS),
        *(f"{x}_{block}" for x in ("a", "a_scale", "a_sum", "in_a", "offs_a") for block in _ROWS),
        *(f"{x}_{half}_{block}" for x in ("acc", "b") for half in _HALVES for block in (*_COLUMNS, *_ROWS)),
        *(f"{x}_{half}_{block}" for x in ("b_scale", "b_zero") for half in _HALVES for block in _COLUMNS),
        *(f"{x}_{half}" for x in ("b_scale", "b_zero") for half in ("gate", "up")),
        *("a_sum", "product", "in_blocks", "in_bytes"),
        *(f"{tile}_{half}" for tile in ("b", "b_gate", "b_up") for half in ("lower", "upper", "sign")),
        *(f"b_{block}_sign" for block in _COLUMNS),
        *(f"b_{half}_{block}_sign" for half in _HALVES for block in _COLUMNS),
    }
)
#: Names that are derived from an operand: its pointer, its descriptor, its strides.
_MADE = re.compile(r"ld.*|stride_.*|.*_(ptrs?|desc|block|parts|next)|.*_on_device|x_\d+", re.A)


def of_kernels(path: Path) -> bool:
    """Whether a template is part of a kernel's file: a schedule's template, or macros."""
    # Whole files are modules and the stub of a family.
    name, whole, _ = path.name.partition(".py")
    return name in (*SCHEDULE, "module") if whole else name not in _BESIDE


@cache
def taken() -> frozenset[str]:
    """Every word of the Python text in the templates of kernels and launchers, including builtins."""
    words = set(_SPELLED)
    lexer = jinja2.Environment()
    for path in TEMPLATES.rglob("*.j2"):
        if not of_kernels(path):
            continue
        tokens = lexer.lex(path.read_text(encoding="utf-8"))
        python = " ".join(value for _, kind, value in tokens if kind == "data")
        words.update(_WORD.findall(_UNREAD.sub("", python)))
    return frozenset(words)


def is_taken(name: str) -> bool:
    """Whether a kernel or its launcher may use `name` itself."""
    return keyword.iskeyword(name) or name in taken() or _MADE.fullmatch(name) is not None
