"""What a kernel's file that stands alone checks of a call, as statements of `gemm`: sizes, tensors, refusals."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from generator.lowering.call_table import CallTable
from generator.lowering.lines import INDENT, bracketed
from generator.plan.contract_call import Argument
from generator.plan.extents import Amount

#: What stands in `gemm` for what the functions of a call name.
_SPELLED = (
    (r"cdiv\(M, 2 \* BLOCK_N\) \* \(BLOCK_N // (\w+)\) \* \(.* \+ 1\)", r"_triangle(M, \1, BLOCK_N)"),
    (r"\b(BLOCK_[MNK]|GROUP_[MN]|LEFT_N|MIDDLE_[MN]|TOP_M|SPLIT)\b", r'row["\1"]'),
    (r"\bPROGRAMS\b", "programs"),
    (r"\bcdiv\(", "triton.cdiv("),
    (r"\bleast\(", "min("),
    (r"\bnext_power\((\w+), (\w+)\)", r"max(\2, triton.next_power_of_2(\1))"),
    (r"\bas_bytes\((\w+)\)", r"\1.view(torch.uint8)"),
    (r"\bon_device\((\w+)\)", r"isinstance(\1, Tensor)"),
    (r"\bapproximate\(a\)", "_approximates(a.device)"),
    (r"\bindex_type\(.*\)", "index"),
    (r" \*\* ", "**"),
)


def spelled(expression: str) -> str:
    """An expression of a call's functions or shapes as `gemm` has it."""
    text = ast.unparse(ast.parse(expression, mode="eval"))
    for name, meant in _SPELLED:
        text = re.sub(name, meant, text)
    return text


def tuple_of(expressions: Iterable[str]) -> str:
    """A tuple of expressions as `gemm` has it."""
    return spelled(f"({''.join(f'{x}, ' for x in expressions)})")


@dataclass(frozen=True)
class StandaloneChecks:
    """The statements that check a call, in the order in which `gemm` has them."""

    table: CallTable

    @property
    def returned(self) -> str:
        """The statement with which `gemm` ends."""
        return f"return {', '.join(x.name for x in self.table.call.results)}"

    def measured(self) -> Iterator[str]:
        """The sizes, of the operands that have them."""
        call, known, sized = self.table.call, set[str](), dict[str, None]()
        for x in self.table.operands:
            sizes = _sizes_of(x)
            if x is call.rows:
                yield f'T = {call.a.extents[0]} if rows is None else _shape("rows", rows, 1)[0]'
            elif x is not call.scatter and not x.number and (x is call.b or not sizes <= known):
                targets, derived = zip(*(_target(extent, known) for extent in x.dimensions))
                many = f"{', '.join(targets)}" if len(targets) > 1 else f"({targets[0]},)"
                yield f'{many} = _shape("{x.name}", {x.name}, {len(targets)})'
                yield from (line for lines in derived for line in lines)
                sized |= dict.fromkeys(targets)
            else:
                continue
            known |= sizes
        for x in call.results if call.scatter is not None else ():
            if x in (call.out, call.out_scale):
                yield f"if scatter is not None and {x.name} is None:"
                yield f'    raise ValueError("{x.name} must be given: scatter names its rows")'
            if x is call.out:
                rows = f'_shape("out", out, {len(x.dimensions)})[0]'
                yield f"S = {x.extents[0]} if scatter is None else {rows}"
                sized["S"] = None
        for name, together in self._whole.items():
            yield f"if {name} % {together}:"
            why = f"{together} elements are stored together, so it must be a multiple of {together}"
            yield f'    raise ValueError(f"{name} is {{{name}}}: {why}")'
        # The sizes that `b` has in common with `a`.
        for dimension, extent in enumerate(call.b.dimensions):
            name = next(iter(_names(extent)), "")
            if name in _sizes_of(call.a):
                packed = f", {extent.sides[1]}" if isinstance(extent, Amount) and extent.sides else ""
                yield f'_check_equal("{name}", {name}, a, b, {dimension}{packed})'
        names = dict.fromkeys(x for x in (*sized, *call.sizes) if x != "_")
        yield bracketed("_check_sizes(", [f"{name}={name}" for name in names], ")", INDENT)

    @property
    def _whole(self) -> dict[str, int]:
        """The sizes that are multiples of a number of elements, which operands or results store together."""
        whole: dict[str, int] = {}
        for x in (*self.table.operands, *self.table.call.results):
            for extent in x.dimensions:
                if isinstance(extent, Amount) and extent.symbol == "//":
                    name, together = map(str, extent.sides)
                    whole[name] = max(int(together), whole.get(name, 1))
        return whole

    def checked(self) -> Iterator[str]:
        """What the contract says of each tensor."""
        call = self.table.call
        for x in self.table.operands:
            if x.number:
                yield f'{x.name} = _number("{x.name}", {x.name}, a.device)'
                continue
            if x.shared:
                yield f"if isinstance({x.name}, Tensor) and {x.name}.dim() == {len(x.extents) - 1}:"
                yield f"    {x.name} = {x.name}.expand({x.extents[0]}, {', '.join(['-1'] * (len(x.extents) - 1))})"
            unit = [f"unit={x.unit}"] * (x.unit is not None)
            # A mask is read as bytes.
            front = "_check(" if x.dtype is not None else f"{x.name} = _check("
            check = bracketed(front, [*self._description(x), "a.device", *unit], ")", INDENT)
            if x in call.optional:
                yield f"if {x.name} is not None:"
                check = "    " + check.replace("\n", "\n    ")
            yield check
        for x in call.results:
            if x is call.out and call.reads_out:
                yield "if out is None:"
                yield '    raise ValueError("out must be given: it is C, which is read, scaled by beta and added")'
            yield bracketed(f"{x.name} = _result(", [*self._description(x), str(x.unit), "a"], ")", INDENT)
        read = bracketed("{", [f'"{x.name}": {x.name}' for x in self.table.operands], "}", 2 * INDENT)
        yield bracketed("if not _launchable(", [read, *(f"{x.name}={x.name}" for x in call.results)], "):", INDENT)
        yield f"    {self.returned}"

    def _description(self, x: Argument) -> list[str]:
        """A name, its value, its shape and its type."""
        call = self.table.call
        extents = x.extents
        if call.scatter is not None and x in (call.out, call.out_scale):
            extents = ("S", *extents[1:])
        return [f'"{x.name}"', x.name, tuple_of(extents), x.torch_dtype]

    def refused(self) -> Iterator[str]:
        """What the kernel cannot take, and the call that has nothing to compute."""
        for condition, reason in map(_refusal, self.table.limits):
            yield f"if {condition}:"
            yield "    " + bracketed("raise ValueError(", [reason], ")", 2 * INDENT).replace("\n", "\n    ")
        yield f"if {' or '.join(f'{size} == 0' for size in dict.fromkeys(self.table.call.sizes[:-1]))}:"
        yield from (f"    {x.name}.zero_()" for x in self.table.reductions)
        yield f"    {self.returned}"


def _names(extent: Amount | int) -> frozenset[str]:
    return extent.names if isinstance(extent, Amount) else frozenset()


def _sizes_of(x: Argument) -> set[str]:
    """The sizes in the shape of an operand."""
    return {name for extent in x.dimensions for name in _names(extent)}


def _target(extent: Amount | int, known: set[str]) -> tuple[str, list[str]]:
    """The name for an extent of a tensor, `_` if it is known, and the statements that make a size of it."""
    if _names(extent) <= known:
        return "_", []
    if not isinstance(extent, Amount) or not extent.sides:
        return str(extent), []
    first, second = extent.sides
    if extent.symbol == "*":
        many, size = first, second
        error = f'raise ValueError(f"b has {{columns}} columns: the number must be even, {many} for one of the result")'
        return "columns", [f"if columns % {many}:", f"    {error}", f"{size} = columns // {many}"]
    return "containers", [f"{first} = {second} * containers"]


def _refusal(limit: tuple[str, ...]) -> tuple[str, str]:
    """The condition under which a call is refused, and the text of the error, as source."""
    match limit:
        case "older", version, what:
            numbers = 'tuple(map(int, triton.__version__.split(".")[:2]))'
            return f"{numbers} >= {version}", f'{what[:-1]} need Triton older than {version[1:-1].replace(", ", ".")}"'
        case "capability", _, why, able, *inverted:
            option, value = able.split("=")
            compared = "[0] not in" if option == "majors" else " >=" if inverted else " <"
            return f"a.is_cuda and _capability(a.device){compared} {value}", why
        case "absent", name, why:
            return f"{name} is not None", why
        case "unrepeatable", schedule:
            why = f"results of {schedule[1:-1]} do not repeat, and torch.use_deterministic_algorithms(True) holds"
            return "torch.are_deterministic_algorithms_enabled()", f'"{why}"'
        case "multiple", name, step, why:
            why = why[1:-1].removeprefix(f"{name}: ")
            return f"{name} % {step}", f'f"{name} is {{{name}}}, and {why} multiples of {step}"'
        case _, number, most, why:
            value, text = spelled(number), number.replace("cdiv(", "ceil(")
            return f"{value} > {most}", f'f"{text} is {{{value}}}, and {why[1:-1]} at most {{{most}}}"'
    raise AssertionError(limit)
