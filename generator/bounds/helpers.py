"""The launcher's helpers, as far as facts are taken from them: what a call that returns has made sure of."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from generator.bounds.arithmetic import number_of
from generator.bounds.source import NotUnderstood, Source, refusals, statements, texts
from generator.bounds.terms import Condition, at_most, poly, variable

#: B is how many matrices a batch has; where there is none, nothing is said of it.
SIZES = ("B", "M", "N", "K")

_UNIT = "x.shape[unit] > 1 and x.stride(unit) != 1"
_UNIT_OR_NONE = "unit is not None and x.shape[unit] > 1 and (x.stride(unit) != 1)"
_DESCRIBE = [
    "rows, columns = x.shape",
    "stride = x.stride(0) if rows > 1 else -(-columns // 16) * 16",
    "return TensorDescriptor(x, [rows, columns], [stride, 1], list(block))",
]
_DESCRIBE_BATCH = [
    "count, rows, columns = x.shape",
    "stride = x.stride(1) if rows > 1 else -(-columns // 16) * 16",
    "apart = x.stride(0) if count > 1 else rows * stride",
    "return TensorDescriptor(x, [count, rows, columns], [apart, stride, 1], list(block))",
]
_PROGRAMS = {"3", "properties.multi_processor_count * max(1, resident)"}
_TILES = "triton.cdiv(M, row['BLOCK_M']) * triton.cdiv(N, row['BLOCK_N'])"
#: The number of tiles of which `_workspace` has a counter each.
TILES = ast.parse(_TILES, mode="eval").body
_WORKSPACE = [
    f"tiles = [{_TILES} for row in rows]",
    "return (work, torch.zeros(max(tiles), dtype=torch.int32, device=device))",
]
_ROOM = re.compile(r"work = torch\.empty\(max\(sums\), dtype=torch\.\w+, device=device\)")
#: The room for a sum of every program of every tile, and for two of every program that deals in steps.
_SUMS = {
    False: "sums = [{}count * row['SPLIT'] * row['BLOCK_M'] * row['BLOCK_N'] for count, row in zip(tiles, rows)]",
    True: "sums = [{} * _programs(row, device) * row['BLOCK_M'] * row['BLOCK_N'] for row in rows]",
}
#: The first factor, by how many columns a sum has for each of the result's.
_FACTORS = {False: {1: "", 2: "2 * "}, True: {1: "2", 2: "4"}}
_ROWS = ("[row]", "[row] if row else CONFIGS")
_EXTENT = ["return sum(((size - 1) * stride for size, stride in zip(x.shape, x.stride()))) + 1"]
_NO_TENSOR = "if not isinstance(x, torch.Tensor):\n    return float(x)"
_TENSOR_OR_NUMBER = "return x if x.device == device else float(x)"


def sizes(source: Source, batched: bool) -> list[Condition]:
    """What `_sizes` makes sure of the sizes: that they are extents, so not negative, and not above its limit."""
    function = source.function("_sizes")
    lines = texts(function.body)
    names = SIZES[not batched :]
    taken = "B, M, K, N = (*a.shape, b.shape[2]{})" if batched else "M, K, N = (*a.shape, b.shape[1]{})"
    # Of a gate b has two columns for each of the result.
    columns = 2 if taken.format(" // 2") in lines else 1
    largest = [f"{columns} * {name}" if name == "N" and columns > 1 else name for name in names]
    if taken.format(" // 2" if columns > 1 else "") not in lines or lines[-1] != f"return ({', '.join(names)})":
        raise NotUnderstood(function.lineno, "_sizes")
    facts = [at_most(0, variable(name)) for name in names]
    for test in refusals(function.body).values():
        match test:
            case ast.Compare(most, [ast.Gt()], [limit]) if ast.unparse(most) == f"max({', '.join(largest)})":
                times = {"N": columns}
                facts += [at_most(variable(name) * times.get(name, 1), number_of(limit, {}, {})) for name in names]
    return facts


def programs(source: Source) -> None:
    """Raise unless `_programs` returns at least 1."""
    function = source.function("_programs")
    returned = {ast.unparse(node.value) for node in ast.walk(function) if isinstance(node, ast.Return) and node.value}
    if returned != _PROGRAMS:
        raise NotUnderstood(function.lineno, "_programs, which says how many programs walk the tiles")


def workspace(source: Source, made: ast.expr, *, deals: bool) -> int:
    """How many columns a partial sum may have for each of the result's.

    Raises unless `_workspace` makes room for the sums that there can be, and a zero for every tile.
    """
    called = ast.unparse(made) in (f"_workspace(M, N, {rows}, a.device)" for rows in _ROWS)
    tiles, sums, room, last = (*texts(source.function("_workspace").body), *[""] * 4)[:4]
    known = {_SUMS[deals].format(factor): columns for columns, factor in _FACTORS[deals].items()}
    if not called or [tiles, last] != _WORKSPACE or sums not in known or not _ROOM.fullmatch(room):
        raise NotUnderstood(made.lineno, "_workspace, which makes room for partial sums")
    return known[sums]


def check(source: Source, unit: int | None) -> None:
    """Raise unless `_check` refuses another shape, and another stride than 1 along the dimension `unit`."""
    function = source.function("_check")
    refused = refusals(function.body)
    if "x.shape != shape" not in refused:
        raise NotUnderstood(function.lineno, "_check does not compare the shape")
    if unit is not None and _UNIT not in refused and _UNIT_OR_NONE not in refused:
        raise NotUnderstood(function.lineno, "_check does not compare the stride along `unit`")


def scalar(source: Source) -> None:
    """Raise unless `_scalar` returns a number, or a tensor of one element."""
    first, *rest = statements(source.function("_scalar").body)
    known = ast.unparse(first) == _NO_TENSOR and ast.unparse(rest[-1]) == _TENSOR_OR_NUMBER
    if not known or "x.numel() != 1" not in refusals(rest):
        raise NotUnderstood(first.lineno, "_scalar")


def describe(source: Source, batched: bool) -> None:
    """Raise unless `_describe` makes a descriptor of an operand's own shape and strides, the last of them 1."""
    function = source.function("_describe")
    if texts(function.body) != (_DESCRIBE_BATCH if batched else _DESCRIBE):
        raise NotUnderstood(function.lineno, "_describe")


def indexed(
    source: Source, index: ast.expr, operands: Iterable[str], furthest: ast.expr | None = None
) -> frozenset[str]:
    """The operands of which INDEX has 64 bits if one spans over 2**31 elements; raises `NotUnderstood`.

    `furthest` is the largest of these spans, where it has a name.
    """
    match index:
        case ast.Attribute(ast.Name("tl"), "int32"):
            return frozenset()
        case ast.IfExp(ast.Compare(longest, [ast.Gt()], [limit]), wide, narrow):
            if furthest is not None and ast.unparse(longest) == "furthest":
                longest = furthest
            match longest:
                case ast.Call(ast.Name("max"), extents, []):
                    pass
                case extent:
                    extents = [extent]
            spans = {f"_extent({name})": name for name in operands}
            widths = (ast.unparse(wide), ast.unparse(narrow))
            known = all(ast.unparse(extent) in spans for extent in extents) and widths == ("tl.int64", "tl.int32")
            if known and number_of(limit, {}, {}) == poly(2**31) and texts(source.function("_extent").body) == _EXTENT:
                return frozenset(spans[ast.unparse(extent)] for extent in extents)
    raise NotUnderstood(index.lineno, f"INDEX as {ast.unparse(index)}")
