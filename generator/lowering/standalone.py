"""The host side of a kernel's file that stands alone: what the call of other files says, as statements of `gemm`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from generator.cost import analytic
from generator.lowering.call_table import DESCRIBED, CallTable
from generator.lowering.lines import INDENT, bracketed, collected, conditional
from generator.lowering.runtime_values import LaunchTable, called
from generator.lowering.standalone_checks import StandaloneChecks, spelled, tuple_of
from generator.plan.memory_needs import needs_of


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
        checks = StandaloneChecks(self.table)
        checked = (*checks.measured(), *checks.checked(), *checks.refused())
        return "\n".join([*checked, *self._chosen(), *self._allocated(), *self._launched(), checks.returned])

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
