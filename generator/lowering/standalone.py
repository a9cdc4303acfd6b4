"""The host side of a kernel's file that stands alone: what its call's table says, as statements of `gemm`.

The table is the one that other files have (`call_table`): its source is read, so that both say the same.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from generator.lowering.call_table import CallTable
from generator.lowering.lines import INDENT, bracketed, collected, conditional
from generator.lowering.standalone_checks import StandaloneChecks
from generator.lowering.table_source import TableSource, TableValue, entries_of, kind_of, spelled, value_of
from generator.plan.memory_needs import needs_of


class _Counted(ast.NodeTransformer):
    """The number of tiles of a symmetric result as a call of the function that counts them."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        # [B *] ceil(M, 2 * BLOCK_N) * (BLOCK_N // BLOCK_M) * (ceil(M, BLOCK_N) // 2 * 2 + 1)
        before = node.left
        assert isinstance(before, ast.BinOp) and isinstance(before.right, ast.BinOp)
        call = f"_triangle(M, {ast.unparse(before.right.right)}, BLOCK_N)"
        count = ast.unparse(before.left.left) if isinstance(before.left, ast.BinOp) else ""
        return ast.parse(f"{count} * {call}" if count else call, mode="eval").body


@dataclass(frozen=True)
class Standalone:
    """What `templates/standalone.j2` is given."""

    table: CallTable

    @cached_property
    def source(self) -> TableSource:
        """The table, read back from its source."""
        return TableSource(self.table.text)

    @cached_property
    def checks(self) -> StandaloneChecks:
        """The statements that check a call."""
        return StandaloneChecks(self.source, self.sizes)

    @property
    def head(self) -> str:
        """The head of `gemm`."""
        return self.table.head

    @property
    def imports(self) -> tuple[str, ...]:
        """The imports besides those that every kernel has."""
        line = "from triton.tools.tensor_descriptor import TensorDescriptor"
        return ("from triton import knobs", *[line] * ("Described" in self.uses))

    @property
    def first_imports(self) -> tuple[str, ...]:
        """The imports of the standard library."""
        return (*["from functools import cache"] * self.limited, "from typing import Any")

    @property
    def docstring(self) -> str:
        return self.table.docstring

    @property
    def cost_head(self) -> str:
        return self.table.cost_head

    @property
    def cost(self) -> tuple[str, ...]:
        return self.table.cost

    @property
    def sizes(self) -> tuple[str, ...]:
        """The sizes of the products, of which the last is summed over."""
        return self.table.call.sizes

    @property
    def square(self) -> bool:
        """Whether the result is symmetric, whose grid is counted by a function."""
        return self.table.call.square

    @property
    def named_sizes(self) -> str:
        """The extents of a result, and the size that is summed over, as keyword arguments."""
        return ", ".join(f"{size}={size}" for size in self.extents)

    @property
    def extents(self) -> tuple[str, ...]:
        """The names of the extents of a result, and of the size that is summed over."""
        return tuple(dict.fromkeys(self.sizes[-3:]))

    @property
    def tuned(self) -> bool:
        """Whether Triton's autotuner chooses the configuration."""
        return "tuner" in self.source.call.options

    @property
    def fits(self) -> list[tuple[str, str]]:
        """The conditions under which a configuration is not legal for the sizes, each with the reason, as source."""
        table = value_of(self.source.call.arguments[0])
        listed = table.options.get("fits")
        found = []
        for each in [value_of(x) for x in listed.elts] if isinstance(listed, ast.Tuple) else []:
            left, right = map(spelled, each.arguments[:2])
            name, shown = ast.unparse(each.arguments[1]), right.replace('"', "'")
            limit = f"{name}, {{{shown}}}" if shown != name else name
            if each.kind == "Multiple":
                found.append((f"{left} % {right}", f'f"{left} is {{{left}}}, not a multiple of {limit}"'))
            else:
                why = ast.literal_eval(each.arguments[2])
                found.append((f"{left} > {right}", f'f"{left} is {{{left}}}, and {why} at most {limit}"'))
        return found

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
        choose = self.source.call.options.get("choose")
        found = value_of(choose) if choose is not None else None
        return spelled(found.arguments[1]) if found is not None and found.kind == "LeastSlowdown" else ""

    @property
    def scaled(self) -> bool:
        """Whether an operand has one of the types of scales."""
        return any("SCALES" in ast.unparse(x) for each in self.source.all("operands") for x in each.arguments)

    @property
    def several_dtypes(self) -> bool:
        return any(isinstance(x, ast.Tuple) for each in self.source.all("operands") for x in each.arguments[2:])

    @cached_property
    def uses(self) -> frozenset[str]:
        """The classes of the table's values, and what the text of `gemm` calls."""
        names = {node.id for node in ast.walk(ast.parse(self.table.text)) if isinstance(node, ast.Name)}
        return frozenset(names)

    @property
    def programs(self) -> tuple[str, str] | None:
        """The bytes of shared memory and of registers that a program needs, as expressions of `row`."""
        given = self.source.call.options.get("programs")
        if given is None:
            return None
        options = value_of(given).options
        found = []
        for key in ("shared", "registers"):
            text = spelled(options[key])
            for name, short in (("BLOCK_M", "m"), ("BLOCK_N", "n"), ("BLOCK_K", "k"), ("num_stages", "stages")):
                text = text.replace(f'row["{name}"]', short)
            found.append(text)
        return found[0], found[1]

    # The statements of `gemm`.

    @cached_property
    def body(self) -> str:
        """The statements."""
        return "\n".join(
            [
                *self.checks.measured(),
                *self.checks.checked(),
                *self.checks.refused(),
                *self._chosen(),
                *self._allocated(),
                *self._launched(),
            ]
        )

    def _chosen(self) -> Iterator[str]:
        """The configuration, and those that an autotuner tries."""
        offered = "_device(a.device)[0]" if self.limited else "CONFIGS"
        sizes = self.named_sizes
        if self.cost_head:
            yield "_rows, _figures = _device(a.device)"
            offered = "_rows"
        if self.fits:
            offered = f"_legal({offered}, {sizes})"
        given = "_row(config)"
        if self.fits:
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
        elif self.cost_head:
            choice = f"min({offered}, key=lambda row: cost(row, {', '.join(self.sizes)}, *_figures))"
        yield from conditional("row", choice, "config is None", given, INDENT)

    def _allocated(self) -> Iterator[str]:
        """The memory beside the results."""
        if self.programs is not None and not self.tuned:
            yield "programs = _programs(row, a.device)"
        for each in self.source.all("memory"):
            shape, kind = self._of_row(each.arguments[1]), spelled(each.arguments[2])
            if "pitch" in each.options:
                rows, columns = (spelled(x) for x in each.arguments[1].elts)  # type: ignore[attr-defined]
                pitch, first = spelled(each.options["pitch"]), spelled(each.options["unit"]) == "0"
                lead = f"triton.cdiv({rows if first else columns}, {pitch}) * {pitch}"
                strides = f"(1, {lead})" if first else f"({lead}, 1)"
                listed = [shape, strides, f"dtype={kind}", "device=a.device"]
                yield bracketed(f"{each.name} = torch.empty_strided(", listed, ")", INDENT)
                continue
            if self.tuned:
                # Enough for each configuration that is tried.
                (size,) = each.arguments[1].elts  # type: ignore[attr-defined]
                shape = f"max({self._of_row(size)} for row in (_rows if tuned else [row]))"
            make = "zeros" if "cleared" in each.options else "empty"
            yield bracketed(f"{each.name} = torch.{make}(", [shape, f"dtype={kind}", "device=a.device"], ")", INDENT)

    def _of_row(self, x: ast.expr) -> str:
        """An expression for the configuration `row`, which is one of several where an autotuner chooses."""
        return re.sub(r"\bprograms\b", "_programs(row, a.device)", spelled(x)) if self.tuned else spelled(x)

    def _launched(self) -> Iterator[str]:
        """The launches, and what is done before and after them."""
        lines: list[str] = []
        cleared = self.source.call.options.get("cleared")
        lines += [f"{x}.zero_()" for x in (ast.literal_eval(cleared) if cleared is not None else ())]
        launches = self.source.all("launches")
        indices = {ast.unparse(x): x for each in launches for x in _constants(each).values() if kind_of(x) == "Index"}
        for node in indices.values():
            names = [str(ast.literal_eval(x)) for x in value_of(node).arguments]
            yield bracketed("index = _index(", names, ")", INDENT)
            break
        for launch in launches:
            described = [
                (name, value_of(x)) for name, x in entries_of(launch.options["tensors"]) if kind_of(x) == "Described"
            ]
            for name, x in described:
                turned = ".mT" if "turned" in x.options else ""
                listed = [f'"{x.name}"', f"{x.name}{turned}", spelled(x.arguments[1])]
                yield bracketed(f"{name} = _describe(", listed, ")", INDENT)
            lines += self._launch(launch)
        for each in self.source.all("reduced"):
            name, parts, how = (str(ast.literal_eval(x)) for x in each.arguments)
            lines.append(f"torch.{how}({parts}, -2, out={name})")
        yield "with torch.cuda.device_of(a):"
        yield from ("    " + line.replace("\n", "\n    ") for line in lines)
        yield self.source.returned

    def _launch(self, launch: TableValue) -> Iterator[str]:
        kernel = ast.unparse(launch.arguments[0])
        grid = self._of_row(_Counted().visit(launch.options["grid"]) if self.square else launch.options["grid"])
        tensors = entries_of(launch.options["tensors"])
        given = [f"{name}={name if kind_of(x) == 'Described' else _passed(x)}" for name, x in tensors]
        given += [f"{name}={_passed(x)}" for name, x in entries_of(launch.options["numbers"])]
        given += [f"{name}={_passed(x)}" for name, x in _constants(launch).items()]
        configured = "configured" not in launch.options
        if self.tuned:
            yield "if tuned:"
            tuned = collected("tuned_kernel[lambda row: " + grid + "](", given, ")", 3 * INDENT)
            yield "    " + tuned.replace("\n", "\n    ")
            yield "else:"
            plain = collected(f"{kernel}[{grid}](", [*given, "**row"], ")", 3 * INDENT)
            yield "    " + plain.replace("\n", "\n    ")
            return
        yield collected(f"{kernel}[{grid}](", [*given, *["**row"] * configured], ")", 2 * INDENT)

    @property
    def descriptors(self) -> tuple[tuple[str, str], ...]:
        """The parameters that are descriptors, each with its block, for an autotuner that changes it."""
        (launch,) = self.source.all("launches")[:1]
        found = []
        for name, x in entries_of(launch.options["tensors"]):
            if kind_of(x) == "Described":
                block = value_of(x).arguments[1]
                found.append((name, spelled(block).replace('row["', 'arguments["').replace("(", "[", 1)[:-1] + "]"))
        return tuple(found)

    @property
    def reset(self) -> str:
        """What an autotuner sets to zero before each trial, as source."""
        arguments = value_of(self.source.call.options["tuner"]).arguments
        return ", ".join(map(spelled, arguments))


def _passed(x: ast.expr) -> str:
    """What a kernel is passed for a parameter, as an expression of `gemm`."""
    if isinstance(x, ast.Constant) and isinstance(x.value, str):
        return x.value
    kind = kind_of(x)
    if kind == "Stride":
        return f"{value_of(x).name}.stride({spelled(value_of(x).arguments[1])})"
    if kind == "Bytes":
        return f"{value_of(x).name}.view(torch.uint8)"
    if kind == "Index":
        return "index"
    if kind == "OnDevice":
        return f"isinstance({value_of(x).name}, Tensor)"
    if kind == "Approximate":
        return "_approximates(a.device)"
    return spelled(x)


def _constants(launch: TableValue) -> dict[str, ast.expr]:
    given = launch.options.get("constants")
    return dict(entries_of(given)) if given is not None else {}
