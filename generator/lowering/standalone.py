"""The host side of a kernel's file that stands alone: what the call of other files says, as statements of `gemm`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from generator.cost import analytic
from generator.lowering.call_table import DESCRIBED, CallTable
from generator.lowering.lines import INDENT, bracketed, collected, conditional
from generator.lowering.runtime_values import LaunchTable, called
from generator.plan.contract_call import Argument
from generator.plan.extents import Amount
from generator.plan.memory_needs import needs_of

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
class Standalone:
    """What `templates/standalone.j2` is given."""

    table: CallTable

    @property
    def imports(self) -> tuple[str, ...]:
        """The imports besides those that every kernel has."""
        line = "from triton.tools.tensor_descriptor import TensorDescriptor"
        return ("from triton import knobs", *[line] * ("_describe(" in self.body))

    @property
    def first_imports(self) -> tuple[str, ...]:
        """The imports of the standard library."""
        return (*["from functools import cache"] * self.limited, "from typing import Any")

    @property
    def extents(self) -> tuple[str, ...]:
        """The names of the extents of a result, and of the size that is summed over."""
        return tuple(dict.fromkeys(self.table.call.sizes[-3:]))

    @property
    def named_sizes(self) -> str:
        """Those as keyword arguments."""
        return ", ".join(f"{size}={size}" for size in self.extents)

    @property
    def tuned(self) -> bool:
        """Whether Triton's autotuner chooses the configuration."""
        return self.table.kernel.autotune

    @property
    def fits(self) -> list[tuple[str, str]]:
        """The conditions under which a configuration is not legal for the sizes, each with the reason, as source."""
        return [_misfit(*limit) for limit in self.table.fitting]

    @property
    def limited(self) -> bool:
        """Whether a device's shared memory may not hold all configurations: those of tiles, which need some."""
        return self.table.kernel.schedule.tiled

    @property
    def usual(self) -> str:
        """The kind of device whose memory needs are those of every kind that is not listed."""
        return next(iter(needs_of(self.table.kernel.kernel)))

    @property
    def steady(self) -> str:
        """The numbers of rows over which a configuration is chosen for any M; empty where M has a part in it."""
        return str(analytic.TYPICAL_M) if self.table.kernel.choose == "rows_alike" else ""

    @property
    def several_dtypes(self) -> bool:
        return any(isinstance(x.dtype, tuple) for x in self.table.operands)

    @property
    def programs(self) -> tuple[str, ...]:
        """The bytes of shared memory and of registers that a program needs, as expressions of `m`, `n`, `k`, `stages`.

        Empty where the grid has a program for each tile.
        """
        names = {"BLOCK_M": "m", "BLOCK_N": "n", "BLOCK_K": "k", "num_stages": "stages"}
        needed = self.table.program if self.table.kernel.schedule.walks else ()
        return tuple(re.sub("|".join(names), lambda x: names[x[0]], each) for each in needed)

    # The statements of `gemm`.

    @cached_property
    def body(self) -> str:
        """The statements."""
        checked = (*self._measured(), *self._checked(), *self._refused())
        return "\n".join([*checked, *self._chosen(), *self._allocated(), *self._launched(), self._returned])

    # What is checked: sizes, tensors, refusals.

    @property
    def _returned(self) -> str:
        """The statement with which `gemm` ends."""
        return f"return {', '.join(x.name for x in self.table.call.results)}"

    def _measured(self) -> Iterator[str]:
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

    def _checked(self) -> Iterator[str]:
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
        yield f"    {self._returned}"

    def _description(self, x: Argument) -> list[str]:
        """A name, its value, its shape and its type."""
        call = self.table.call
        extents = x.extents
        if call.scatter is not None and x in (call.out, call.out_scale):
            extents = ("S", *extents[1:])
        return [f'"{x.name}"', x.name, tuple_of(extents), x.torch_dtype]

    def _refused(self) -> Iterator[str]:
        """What the kernel cannot take, and the call that has nothing to compute."""
        for condition, reason in map(_refusal, self.table.limits):
            yield f"if {condition}:"
            yield "    " + bracketed("raise ValueError(", [reason], ")", 2 * INDENT).replace("\n", "\n    ")
        yield f"if {' or '.join(f'{size} == 0' for size in dict.fromkeys(self.table.call.sizes[:-1]))}:"
        yield from (f"    {x.name}.zero_()" for x in self.table.reductions)
        yield f"    {self._returned}"

    # What is launched.

    def _chosen(self) -> Iterator[str]:
        """The configuration, and those that an autotuner tries."""
        offered = "_device(a.device)[0]" if self.limited else "CONFIGS"
        given = "_row(config)"
        if self.table.cost_head:
            yield "_rows, _figures = _device(a.device)"
            offered = "_rows"
        if self.fits:
            offered = f"_legal({offered}, {self.named_sizes})"
            listed = ", ".join(f'"{size}": {size}' for size in self.extents)
            given = f"_row(config, {{{listed}}})"
        if self.tuned:
            # Triton's interpreter measures nothing.
            yield "tuned = config is None and a.is_cuda"
            yield f"_rows = {offered} if config is None else [{given}]"
            yield "row = _rows[0]"
            return
        choice = f"{offered}[0]"
        if self.steady:
            choice = f"_steady({offered}, N, K, _figures)"
        elif self.table.cost_head:
            choice = f"min({offered}, key=lambda row: cost(row, {', '.join(self.table.call.sizes)}, *_figures))"
        yield from conditional("row", choice, "config is None", given, INDENT)

    def _allocated(self) -> Iterator[str]:
        """The memory beside the results."""
        if self.programs and not self.tuned:
            yield "programs = _programs(row, a.device)"
        for _, name, words, dtype, *options in self.table.memory:
            extents = words.strip('"').split()
            shape, more = self._of_row(tuple_of(extents)), [f"dtype={dtype}", "device=a.device"]
            pitch = next((x.removeprefix("pitch=") for x in options if x.startswith("pitch=")), None)
            make = "zeros" if "cleared=True" in options else "empty"
            if pitch is not None:
                by_columns = "unit=0" in options
                lead = spelled(f"cdiv({extents[not by_columns]}, {pitch}) * {pitch}")
                make, more = "empty_strided", [f"(1, {lead})" if by_columns else f"({lead}, 1)", *more]
            elif self.tuned:
                # Enough for each configuration that is tried.
                shape = f"max({shape[1:-2]} for row in (_rows if tuned else [row]))"
            yield bracketed(f"{name[1:-1]} = torch.{make}(", [shape, *more], ")", INDENT)

    def _of_row(self, text: str) -> str:
        """An expression for the configuration `row`, which is one of several where an autotuner chooses."""
        return re.sub(r"\bprograms\b", "_programs(row, a.device)", text) if self.tuned else text

    def _launched(self) -> Iterator[str]:
        """The launches, and what is done before and after them."""
        passed = [entry for launch in self.table.launches for entry in launch.passed]
        index = next((value for _, value in passed if value.startswith("index_type(")), None)
        if index is not None:
            names = index.removeprefix("index_type(")[:-1].split(", ")
            yield bracketed("index = _index(", names, ")", INDENT)
        for name, value in passed:
            described = DESCRIBED.match(value)
            if described is not None:
                tensor, block = described[1], described[2].removesuffix(", turned=True")
                turned = ".mT" * (block != described[2])
                listed = [f'"{tensor}"', f"{tensor}{turned}", spelled(f"({block[2:]})")]
                yield bracketed(f"{name} = _describe(", listed, ")", INDENT)
        yield "with torch.cuda.device_of(a):"
        # Grids of two lengths have two types.
        declared = ["grid: tuple[Any, ...]"] * (len(self.table.launches) > 1)
        lines = [*declared, *["out.zero_()"] * self.table.adds]
        lines += [line for launch in self.table.launches for line in self._launch(launch)]
        for x in self.table.reductions:
            parts = f"{x.matrix.variable}{'.flatten(-2)[..., None]' * x.single}"
            lines.append(f"torch.{x.reduction}({parts}, -2, out={x.name})")
        yield from ("    " + line.replace("\n", "\n    ") for line in lines)

    def _launch(self, launch: LaunchTable) -> Iterator[str]:
        grid = self._of_row(spelled(launch.grid))
        given = [f"{name}={name if DESCRIBED.match(value) else spelled(value)}" for name, value in launch.passed]
        own = [*given, *["**row"] * launch.configured]
        # The name of a kernel may be long.
        sides = [x for x in grid[1:-1].partition(', row["SPLIT"]')[:2] if x]
        programs = collected("grid = (", [x.removeprefix(", ") for x in sides], ")", (2 + self.tuned) * INDENT)
        plain = [programs if len(sides) > 1 else f"grid = {grid}", called(f"{launch.kernel}[grid](", own, ")")]
        if self.tuned:
            yield "if tuned:"
            yield "    " + called(f"tuned_kernel[lambda row: {grid}](", given, ")").replace("\n", "\n    ")
            yield "else:"
            plain = ["    " + line.replace("\n", "\n    ") for line in plain]
        yield from plain

    @property
    def descriptors(self) -> tuple[tuple[str, str], ...]:
        """The parameters that are descriptors, each with its block, for an autotuner that changes it."""
        matches = ((name, DESCRIBED.match(value)) for name, value in self.table.launches[0].passed)
        blocks = ((name, x[2].removesuffix(", turned=True")[2:]) for name, x in matches if x is not None)
        return tuple((name, f"[{spelled(f'({block})')[1:-1]}]".replace("row[", "arguments[")) for name, block in blocks)


def _misfit(function: str, number: str, bound: str, why: str) -> tuple[str, str]:
    """The condition under which a configuration does not fit, and the text of the reason, as source."""
    value, limit = spelled(number), spelled(bound)
    if number.isidentifier():
        compared = ("%", "not a multiple of") if function == "multiple" else (">", "and one load holds at most")
        return (
            f"{value} {compared[0]} {limit}",
            f"f\"{number} is {{{number}}}, {compared[1]} {bound}, {{row['{bound}']}}\"",
        )
    return f"{value} > {limit}", f'"{why[1:-1]} at most {bound}"'


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
