"""The launcher's helpers, as far as facts are taken from them: what a call that returns has made sure of."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Collection

from generator.bounds.patterns import assigned, expression, matched, matches
from generator.bounds.plain_arithmetic import number_of
from generator.bounds.source import NotUnderstood, Source, refusals
from generator.bounds.terms import Condition, at_most, either, equal, poly, variable

#: B is how many matrices a batch has, G how many groups there are, T how many rows they have together, and R how many A
#: has: nothing is said of those that a launcher does not have.
SIZES = ("B", "G", "T", "R", "M", "N", "K")
#: The sizes of a launcher: of one product, of a batch, and of groups.
ONE, BATCH, GROUPS = ("M", "N", "K"), ("B", "M", "N", "K"), ("G", "T", "N", "K")
#: The same of groups along K.
GROUPS_OF_K = ("G", "M", "N", "T")

#: How they are taken from the operands; of a gate b has two columns for each of the result.
_TAKEN = {
    ONE: "M, K, N = *a.shape, b.shape[1]",
    BATCH: "B, M, K, N = *a.shape, b.shape[2]",
    GROUPS: "R, K, G, N = *a.shape, b.shape[0], b.shape[2]",
    GROUPS_OF_K: "G, M, T, N = len(offsets), *a.shape, b.shape[1]",
}
_ALL_TAKEN = tuple(taken + end for taken in _TAKEN.values() for end in ("", " // 2"))
#: What follows where a column of A holds several elements.
_PACKED = "K *= 2"
#: What they are taken from.
READ = {names: "a, b" for names in _TAKEN} | {GROUPS: "a, b, rows", GROUPS_OF_K: "a, b, offsets"}
#: The rows of the products: those of A, or as many as are named; and the variable that says whether they are.
_NAMED, NAMED = "T = R if rows is None else rows.shape[0]", "rows is given"
#: `unit` may be left out where no operand has a stride of 1.
_CHECKS = tuple(f"def _check(name, x, shape, dtype, device, {unit}):\n    *$checks" for unit in ("unit", "unit=None"))
_UNIT = (
    "x.shape[unit] > 1 and x.stride(unit) != 1",
    "unit is not None and x.shape[unit] > 1 and x.stride(unit) != 1",
)
_DESCRIBE = {
    ONE: """
def _describe(x, block):
    rows, columns = x.shape
    stride = x.stride(0) if rows > 1 else -(-columns // 16) * 16
    return TensorDescriptor(x, [rows, columns], [stride, 1], list(block))
""",
    GROUPS: """
def _describe(x, block):
    *count, rows, columns = x.shape
    stride = x.stride(-2) if rows > 1 else -(-columns // 16) * 16
    apart = [x.stride(0) if many > 1 else rows * stride for many in count]
    return TensorDescriptor(x, [*count, rows, columns], [*apart, stride, 1], list(block))
""",
    BATCH: """
def _describe(x, block):
    count, rows, columns = x.shape
    stride = x.stride(1) if rows > 1 else -(-columns // 16) * 16
    apart = x.stride(0) if count > 1 else rows * stride
    return TensorDescriptor(x, [count, rows, columns], [apart, stride, 1], list(block))
""",
}
_PROGRAMS = ("3", "properties.multi_processor_count * max(1, resident)")
_TILES = "triton.cdiv(M, row['BLOCK_M']) * triton.cdiv(N, row['BLOCK_N'])"
#: The number of tiles of which `_workspace` has a counter each.
TILES = expression(_TILES)
_WORKSPACES = tuple(f"_workspace(M, N, {rows}, a.device)" for rows in ("[row]", "[row] if row else CONFIGS"))
_WORKSPACE = f"""
def _workspace(M, N, rows, device):
    tiles = [{_TILES} for row in rows]
    sums = $sums
    work = torch.empty(max(sums), dtype=$dtype, device=device)
    return work, torch.zeros(max(tiles), dtype=torch.int32, device=device)
"""
#: The room for two sums of every program that deals in steps, by how many columns a sum has for each of the result's.
_SUMS = {
    columns: f"[{2 * columns} * _programs(row, device) * row['BLOCK_M'] * row['BLOCK_N'] for row in rows]"
    for columns in (1, 2)
}
_EXTENT = """
def _extent(x):
    return sum((size - 1) * stride for size, stride in zip(x.shape, x.stride())) + 1
"""
_SCALAR = """
def _scalar(name, x, device):
    if not isinstance(x, torch.Tensor):
        return float(x)
    *$checks
    return x if x.device == device or not _launchable(**{name: x}) else float(x)
"""


def sizes(source: Source, names: tuple[str, ...]) -> list[Condition]:
    """What `_sizes` makes sure of the sizes: that they are extents, so not negative, and not above its limit."""
    function = source.function("_sizes")
    found = matched(function, f"def _sizes({READ[names]}):\n    *$body\n    return {', '.join(names)}")
    body = found["body"] if found is not None else []
    known = [
        (at, columns) for columns, end in ((1, ""), (2, " // 2")) for at in body if matches(at, _TAKEN[names] + end)
    ]
    named = [at for at in body if matches(at, _NAMED)] if names == GROUPS else []
    packed = [at for before, at in itertools.pairwise(body) if matches(at, _PACKED) and matches(before, *_ALL_TAKEN)]
    body = [at for at in body if at not in (*named, *packed)]
    if names == GROUPS and len(named) != 1:
        raise NotUnderstood(function.lineno, "_sizes")
    if len(known) != 1 or assigned(at for at in body if at is not known[0][0]) & {"a", "b", *names}:
        raise NotUnderstood(function.lineno, "_sizes")
    taken, columns = known[0]
    names = (*names, "R") if names == GROUPS else names
    facts = [at_most(0, variable(name)) for name in names]
    if named:
        facts.append(either([equal(variable(NAMED), 1), equal(variable("T"), variable("R"))]))
    largest = [f"{columns} * {name}" if name == "N" and columns > 1 else name for name in names]
    for test in refusals(body[body.index(taken) + 1 :], names):
        limited = matched(test, f"any(isinstance(size, int) and size > $limit for size in ({', '.join(largest)}))")
        if limited is not None:
            limit = number_of(limited["limit"], {}, {})
            facts += [at_most(variable(name) * (columns if name == "N" else 1), limit) for name in names]
    return facts


def programs(source: Source) -> None:
    """Raise unless `_programs` returns at least 1."""
    function = source.function("_programs")
    returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    last = isinstance(function.body[-1], ast.Return)
    if not last or not all(value is not None and matches(value, *_PROGRAMS) for value in returned):
        raise NotUnderstood(function.lineno, "_programs, which says how many programs walk the tiles")


def workspace(source: Source, made: ast.expr) -> int:
    """How many columns a partial sum may have for each of the result's.

    Raises unless `_workspace` makes room for the sums that there can be, and a zero for every tile.
    """
    found = matched(source.function("_workspace"), _WORKSPACE) or {}
    for columns, sums in _SUMS.items():
        if found and matches(made, *_WORKSPACES) and matches(found["sums"], sums):
            return columns
    raise NotUnderstood(made.lineno, "_workspace, which makes room for partial sums")


def check(source: Source, unit: int | None) -> None:
    """Raise unless `_check` refuses another shape, and another stride than 1 along the dimension `unit`."""
    function = source.function("_check")
    found = matched(function, *_CHECKS)
    refused = refusals(found["checks"], ("x", "shape", "unit")) if found is not None else []
    if not any(matches(test, "x.shape != shape") for test in refused):
        raise NotUnderstood(function.lineno, "_check does not compare the shape")
    if unit is not None and not any(matches(test, *_UNIT) for test in refused):
        raise NotUnderstood(function.lineno, "_check does not compare the stride along `unit`")


def scalar(source: Source) -> None:
    """Raise unless `_scalar` returns a number, or a tensor of one element."""
    function = source.function("_scalar")
    found = matched(function, _SCALAR)
    if found is None or not any(matches(test, "x.numel() != 1") for test in refusals(found["checks"], ("x",))):
        raise NotUnderstood(function.lineno, "_scalar")


def describe(source: Source, names: tuple[str, ...]) -> None:
    """Raise unless `_describe` makes a descriptor of an operand's own shape and strides, the last of them 1."""
    function = source.function("_describe")
    if not matches(function, _DESCRIBE[GROUPS if names == GROUPS_OF_K else names]):
        raise NotUnderstood(function.lineno, "_describe")


def indexed(
    source: Source, index: ast.expr, operands: Collection[str], furthest: ast.expr | None = None
) -> frozenset[str]:
    """The operands of which INDEX has 64 bits if one spans over 2**31 elements; raises `NotUnderstood`.

    `furthest` is the largest of these spans, where it has a name.
    """
    if matches(index, "tl.int32"):
        return frozenset()
    found = matched(index, "tl.int64 if $longest > $limit else tl.int32")
    if found is not None and number_of(found["limit"], {}, {}) == poly(2**31):
        longest = furthest if furthest is not None and matches(found["longest"], "furthest") else found["longest"]
        several = matched(longest, "max(*$extents)")
        extents = several["extents"] if several is not None else [longest]
        spans = [name for extent in extents for name in operands if matches(extent, f"_extent({name})")]
        if len(spans) == len(extents) and matches(source.function("_extent"), _EXTENT):
            return frozenset(spans)
    raise NotUnderstood(index.lineno, f"INDEX as {ast.unparse(index)}")
