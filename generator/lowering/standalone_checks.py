"""What a kernel's file that stands alone checks of a call, as statements of `gemm`: sizes, tensors, refusals."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from generator.lowering.lines import INDENT, bracketed
from generator.lowering.table_source import TableSource, TableValue, spelled


@dataclass(frozen=True)
class StandaloneChecks:
    """The statements that check a call, in the order in which `gemm` has them."""

    source: TableSource
    #: The sizes of the products, of which the last is summed over.
    sizes: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Their names, each once: of a symmetric result the extents of a result have one."""
        return tuple(dict.fromkeys(self.sizes))

    def measured(self) -> Iterator[str]:
        """The sizes, of the operands that have them."""
        known: set[str] = set()
        whole = self._whole()
        sized: list[str] = []
        for operand in self.source.all("operands"):
            if operand.kind == "Number":
                continue
            (shape,) = operand.arguments[1:2]
            assert isinstance(shape, ast.Tuple)
            sizes = {node.id for node in ast.walk(shape) if isinstance(node, ast.Name)} - {"ceil"}
            if "absent" in operand.options:
                size, other = ast.unparse(shape.elts[0]), ast.unparse(operand.options["absent"])
                if size == other:
                    # Nothing is measured by it.
                    continue
                named = f'_shape("{operand.name}", {operand.name}, 1)[0]'
                yield f"{size} = {other} if {operand.name} is None else {named}"
                known |= sizes
            elif operand.name == "b" or not sizes <= known:
                targets, derived = [], []
                for extent in shape.elts:
                    target, statement = _target(extent, known)
                    targets.append(target)
                    derived += statement
                    sized.append(target)
                yield (
                    f'{", ".join(targets)} = _shape("{operand.name}", {operand.name}, {len(targets)})'.replace(
                        "(, ", "("
                    )
                    if len(targets) > 1
                    else f'({targets[0]},) = _shape("{operand.name}", {operand.name}, 1)'
                )
                yield from derived
                known |= sizes
        for result in self.source.all("results"):
            if "named" in result.options:
                naming = ast.literal_eval(result.options["named"])
                yield f"if {naming} is not None and {result.name} is None:"
                yield f'    raise ValueError("{result.name} must be given: {naming} names its rows")'
                if "S" in sized:
                    continue
                own, *_ = result.arguments[1].elts  # type: ignore[attr-defined]
                rows = f'_shape("{result.name}", {result.name}, {len(result.arguments[1].elts)})[0]'  # type: ignore[attr-defined]
                yield f"S = {ast.unparse(own)} if {naming} is None else {rows}"
                sized.append("S")
        for name, together in whole.items():
            yield f"if {name} % {together}:"
            why = f"{together} elements are stored together, so it must be a multiple of {together}"
            yield f'    raise ValueError(f"{name} is {{{name}}}: {why}")'
        yield from self._agreed()
        names = dict.fromkeys(x for x in [*sized, *self.sizes] if x != "_")
        yield bracketed("_check_sizes(", [f"{name}={name}" for name in names], ")", INDENT)

    def _whole(self) -> dict[str, int]:
        """The sizes that are multiples of a number of elements, which operands or results store together."""
        whole: dict[str, int] = {}
        for x in (*self.source.all("operands"), *self.source.all("results")):
            extents = x.arguments[1].elts if x.kind != "Number" and isinstance(x.arguments[1], ast.Tuple) else []
            for extent in extents:
                if isinstance(extent, ast.BinOp) and isinstance(extent.op, ast.FloorDiv):
                    name, together = ast.unparse(extent.left), int(ast.unparse(extent.right))
                    whole[name] = max(together, whole.get(name, 1))
        return whole

    def _agreed(self) -> Iterator[str]:
        """The sizes that `b` has in common with `a`."""
        a, b = (each.arguments[1] for each in self.source.all("operands")[:2])
        of_a = {node.id for node in ast.walk(a) if isinstance(node, ast.Name)}
        assert isinstance(b, ast.Tuple)
        for dimension, extent in enumerate(b.elts):
            names = [node.id for node in ast.walk(extent) if isinstance(node, ast.Name)]
            if names and names[0] in of_a:
                packed = f", {spelled(extent.right)}" if isinstance(extent, ast.BinOp) else ""
                yield f'_check_equal("{names[0]}", {names[0]}, a, b, {dimension}{packed})'

    def checked(self) -> Iterator[str]:
        """What the contract says of each tensor."""
        for operand in self.source.all("operands"):
            if operand.kind == "Number":
                yield f'{operand.name} = _number("{operand.name}", {operand.name}, a.device)'
                continue
            check = bracketed("_check(", [*self._description(operand)], ")", INDENT)
            if "absent" in operand.options:
                yield f"if {operand.name} is not None:"
                yield "    " + check.replace("\n", "\n    ")
            else:
                yield check
        for result in self.source.all("results"):
            if "read" in result.options:
                yield f"if {result.name} is None:"
                why = "it is C, which is read, scaled by beta and added"
                yield f'    raise ValueError("{result.name} must be given: {why}")'
            described = [x for x in self._description(result) if x != "a.device"]
            unit = described.pop().removeprefix("unit=") if "unit" in result.options else "None"
            yield bracketed(f"{result.name} = _result(", [*described, unit, "a"], ")", INDENT)
        read = bracketed("{", [f'"{x.name}": {x.name}' for x in self.source.all("operands")], "}", 2 * INDENT)
        given = [f"{x.name}={x.name}" for x in self.source.all("results")]
        yield bracketed("if not _launchable(", [read, *given], "):", INDENT)
        yield f"    {self.source.returned}"

    def _description(self, x: TableValue) -> Iterator[str]:
        """A name, its value, its shape, its type, the device and the dimension of stride 1."""
        yield f'"{x.name}"'
        yield x.name
        shape = spelled(x.arguments[1])
        yield shape if "named" not in x.options else re.sub(r"^\(\w+", "(S", shape)
        yield spelled(x.arguments[2]) if len(x.arguments) > 2 else "None"
        yield "a.device"
        if "unit" in x.options:
            yield f"unit={spelled(x.options['unit'])}"

    def refused(self) -> Iterator[str]:
        """What the kernel cannot take, and the call that has nothing to compute."""
        for need in self.source.all("needs"):
            condition, reason = _refusal(need)
            yield f"if {condition}:"
            yield "    " + bracketed("raise ValueError(", [reason], ")", 2 * INDENT).replace("\n", "\n    ")
        yield f"if {' or '.join(f'{size} == 0' for size in self.names[:-1])}:"
        for reduction in self.source.all("reduced"):
            yield f"    {reduction.name}.zero_()"
        yield f"    {self.source.returned}"


def _target(extent: ast.expr, known: set[str]) -> tuple[str, list[str]]:
    """The name for an extent of a tensor, `_` if it is known, and the statement that makes a size of it."""
    sizes = {node.id for node in ast.walk(extent) if isinstance(node, ast.Name)}
    if sizes <= known or isinstance(extent, ast.Constant):
        return "_", []
    if isinstance(extent, ast.Name):
        return extent.id, []
    assert isinstance(extent, ast.BinOp)
    if isinstance(extent.op, ast.Mult):
        size, many = ast.unparse(extent.right), ast.unparse(extent.left)
        error = f'raise ValueError(f"b has {{columns}} columns: the number must be even, {many} for one of the result")'
        return "columns", [f"if columns % {many}:", f"    {error}", f"{size} = columns // {many}"]
    return "containers", [f"{ast.unparse(extent.left)} = {ast.unparse(extent.right)} * containers"]


def _refusal(need: TableValue) -> tuple[str, str]:
    """The condition under which a call is refused, and the text of the error, as source."""
    options = need.options
    if need.kind == "Older":
        version = ".".join(str(x) for x in ast.literal_eval(need.arguments[0]))
        newer = f'tuple(map(int, triton.__version__.split(".")[:2])) >= {spelled(need.arguments[0])}'
        return newer, f'"{ast.literal_eval(need.arguments[1])} need Triton older than {version}"'
    if need.kind == "Capability":
        least = spelled(options["least"]) if "least" in options else ""
        condition = f"_capability(a.device) {'>=' if 'inverted' in options else '<'} {least}"
        if "majors" in options:
            condition = f"_capability(a.device)[0] not in {spelled(options['majors'])}"
        return f"a.is_cuda and {condition}", f'"{need.name}"'
    if need.kind == "Absent":
        return f"{need.name} is not None", spelled(need.arguments[1])
    if need.kind == "NotDeterministic":
        reason = f"results of {need.name} do not repeat, and torch.use_deterministic_algorithms(True) holds"
        return "torch.are_deterministic_algorithms_enabled()", f'"{reason}"'
    value, limit = spelled(need.arguments[0]), spelled(need.arguments[1])
    why, text = ast.literal_eval(need.arguments[2]), ast.unparse(need.arguments[0])
    if need.kind == "Multiple":
        return f"{value} % {limit}", f'f"{text} is {{{value}}}, and {why} multiples of {limit}"'
    assert need.kind == "AtMost", need.kind
    return f"{value} > {limit}", f'f"{text} is {{{value}}}, and {why} at most {{{limit}}}"'
