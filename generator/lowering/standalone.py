"""The host side of a kernel's file that stands alone: what its call's table says, as statements of `gemm`.

The table is the one that other files have (`call_table`): its source is read here, so that both say the same.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from generator.lowering.call_table import CallTable
from generator.lowering.lines import INDENT, bracketed, collected, conditional
from generator.plan.memory_needs import needs_of

#: What a name of the table is in `gemm`, where it is not the same.
_NAMES = {"STAGES": 'row["num_stages"]', "PROGRAMS": "programs"}
_OF_ROW = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "LEFT_N", "MIDDLE_N", "TOP_M", "MIDDLE_M", "SPLIT")


class _Spelled(ast.NodeTransformer):
    """Expressions of the table as those of `gemm`."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in _OF_ROW:
            return ast.parse(f'row["{node.id}"]', mode="eval").body
        return ast.parse(_NAMES[node.id], mode="eval").body if node.id in _NAMES else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name, listed = getattr(node.func, "id", ""), [ast.unparse(x) for x in node.args]
        if name == "ceil":
            return ast.parse(f"triton.cdiv({', '.join(listed)})", mode="eval").body
        if name == "least":
            return ast.parse(f"min({', '.join(listed)})", mode="eval").body
        if name == "power":
            return ast.parse(f"max({listed[1]}, triton.next_power_of_2({listed[0]}))", mode="eval").body
        return node


class _Counted(ast.NodeTransformer):
    """The number of tiles of a symmetric result as a call of the function that counts them."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        # [B *] ceil(M, 2 * BLOCK_N) * (BLOCK_N // BLOCK_M) * (ceil(M, BLOCK_N) // 2 * 2 + 1)
        before = node.left
        assert isinstance(before, ast.BinOp) and isinstance(before.right, ast.BinOp)
        call = f"_triangle(M, {ast.unparse(before.right.right)}, BLOCK_N)"
        count = ast.unparse(before.left.left) if isinstance(before.left, ast.BinOp) else ""
        return ast.parse(f"{count} * {call}" if count else call, mode="eval").body


def _spelled(node: ast.expr) -> str:
    return (
        ast.unparse(_Spelled().visit(ast.parse(ast.unparse(node), mode="eval").body))
        .replace("'", '"')
        .replace(" ** ", "**")
    )


@dataclass(frozen=True)
class _Value:
    """A value of the table: its class, its arguments, and those that have keywords."""

    kind: str
    arguments: tuple[ast.expr, ...]
    options: dict[str, ast.expr]

    @property
    def name(self) -> str:
        """The name that it begins with."""
        found: str = ast.literal_eval(self.arguments[0])
        return found


def _value(node: ast.expr) -> _Value:
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name), ast.unparse(node)
    return _Value(node.func.id, tuple(node.args), {str(x.arg): x.value for x in node.keywords})


@dataclass(frozen=True)
class Standalone:
    """What `templates/standalone.j2` is given."""

    table: CallTable

    @cached_property
    def _call(self) -> _Value:
        (statement,) = ast.parse(self.table.text).body
        assert isinstance(statement, ast.Assign)
        return _value(statement.value)

    def _all(self, key: str) -> list[_Value]:
        listed = self._call.options.get(key)
        return [_value(x) for x in listed.elts] if isinstance(listed, ast.Tuple) else []

    @property
    def head(self) -> str:
        """The head of `gemm`."""
        return self.table.head

    @property
    def imports(self) -> tuple[str, ...]:
        """The imports of what only some calls need."""
        line = "from triton.tools.tensor_descriptor import TensorDescriptor"
        return (line,) if "Described" in self.uses else ()

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
    def names(self) -> tuple[str, ...]:
        """Their names, each once: of a symmetric result the extents of a result have one."""
        return tuple(dict.fromkeys(self.sizes))

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
        return "tuner" in self._call.options

    @property
    def fits(self) -> list[tuple[str, str]]:
        """The conditions under which a configuration is not legal for the sizes, each with the reason, as source."""
        table = _value(self._call.arguments[0])
        listed = table.options.get("fits")
        found = []
        for each in [_value(x) for x in listed.elts] if isinstance(listed, ast.Tuple) else []:
            left, right = map(_spelled, each.arguments[:2])
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
        choose = self._call.options.get("choose")
        found = _value(choose) if choose is not None else None
        return _spelled(found.arguments[1]) if found is not None and found.kind == "LeastSlowdown" else ""

    @property
    def scaled(self) -> bool:
        """Whether an operand has one of the types of scales."""
        return any("SCALES" in ast.unparse(x) for each in self._all("operands") for x in each.arguments)

    @property
    def several_dtypes(self) -> bool:
        return any(isinstance(x, ast.Tuple) for each in self._all("operands") for x in each.arguments[2:])

    @cached_property
    def uses(self) -> frozenset[str]:
        """The classes of the table's values, and what the text of `gemm` calls."""
        names = {node.id for node in ast.walk(ast.parse(self.table.text)) if isinstance(node, ast.Name)}
        return frozenset(names)

    @property
    def programs(self) -> tuple[str, str] | None:
        """The bytes of shared memory and of registers that a program needs, as expressions of `row`."""
        given = self._call.options.get("programs")
        if given is None:
            return None
        options = _value(given).options
        found = []
        for key in ("shared", "registers"):
            text = _spelled(options[key])
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
                *self._measured(),
                *self._checked(),
                *self._refused(),
                *self._chosen(),
                *self._allocated(),
                *self._launched(),
            ]
        )

    def _returned(self) -> str:
        return f"return {', '.join(x.name for x in self._all('results'))}"

    def _measured(self) -> Iterator[str]:
        """The sizes, of the operands that have them."""
        known: set[str] = set()
        whole = self._whole()
        sized: list[str] = []
        for operand in self._all("operands"):
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
        for result in self._all("results"):
            if "named" in result.options:
                naming = ast.literal_eval(result.options["named"])
                yield f"if {naming} is not None and {result.name} is None:"
                yield f'    raise ValueError("{result.name} must be given: {naming} names its rows")'
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
        for x in (*self._all("operands"), *self._all("results")):
            extents = x.arguments[1].elts if x.kind != "Number" and isinstance(x.arguments[1], ast.Tuple) else []
            for extent in extents:
                if isinstance(extent, ast.BinOp) and isinstance(extent.op, ast.FloorDiv):
                    name, together = ast.unparse(extent.left), int(ast.unparse(extent.right))
                    whole[name] = max(together, whole.get(name, 1))
        return whole

    def _agreed(self) -> Iterator[str]:
        """The sizes that `b` has in common with `a`."""
        a, b = (each.arguments[1] for each in self._all("operands")[:2])
        of_a = {node.id for node in ast.walk(a) if isinstance(node, ast.Name)}
        assert isinstance(b, ast.Tuple)
        for dimension, extent in enumerate(b.elts):
            names = [node.id for node in ast.walk(extent) if isinstance(node, ast.Name)]
            if names and names[0] in of_a:
                packed = f", {_spelled(extent.right)}" if isinstance(extent, ast.BinOp) else ""
                yield f'_check_equal("{names[0]}", {names[0]}, a, b, {dimension}{packed})'

    def _checked(self) -> Iterator[str]:
        """What the contract says of each tensor."""
        for operand in self._all("operands"):
            if operand.kind == "Number":
                yield f'{operand.name} = _number("{operand.name}", {operand.name}, a.device)'
                continue
            check = bracketed("_check(", [*self._description(operand)], ")", INDENT)
            if "absent" in operand.options:
                yield f"if {operand.name} is not None:"
                yield "    " + check.replace("\n", "\n    ")
            else:
                yield check
        for result in self._all("results"):
            if "read" in result.options:
                yield f"if {result.name} is None:"
                why = "it is C, which is read, scaled by beta and added"
                yield f'    raise ValueError("{result.name} must be given: {why}")'
            described = [x for x in self._description(result) if x != "a.device"]
            unit = described.pop().removeprefix("unit=") if "unit" in result.options else "None"
            yield bracketed(f"{result.name} = _result(", [*described, unit, "a"], ")", INDENT)
        read = bracketed("{", [f'"{x.name}": {x.name}' for x in self._all("operands")], "}", 2 * INDENT)
        given = [f"{x.name}={x.name}" for x in self._all("results")]
        yield bracketed("if not _launchable(", [read, *given], "):", INDENT)
        yield f"    {self._returned()}"

    def _description(self, x: _Value) -> Iterator[str]:
        """A name, its value, its shape, its type, the device and the dimension of stride 1."""
        yield f'"{x.name}"'
        yield x.name
        shape = _spelled(x.arguments[1])
        yield shape if "named" not in x.options else re.sub(r"^\(\w+", "(S", shape)
        yield _spelled(x.arguments[2]) if len(x.arguments) > 2 else "None"
        yield "a.device"
        if "unit" in x.options:
            yield f"unit={_spelled(x.options['unit'])}"

    def _refused(self) -> Iterator[str]:
        """What the kernel cannot take, and the call that has nothing to compute."""
        for need in self._all("needs"):
            condition, reason = _refusal(need)
            yield f"if {condition}:"
            yield "    " + bracketed("raise ValueError(", [reason], ")", 2 * INDENT).replace("\n", "\n    ")
        yield f"if {' or '.join(f'{size} == 0' for size in self.names[:-1])}:"
        for reduction in self._all("reduced"):
            yield f"    {reduction.name}.zero_()"
        yield f"    {self._returned()}"

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
        for each in self._all("memory"):
            shape, kind = self._of_row(each.arguments[1]), _spelled(each.arguments[2])
            if "pitch" in each.options:
                rows, columns = (_spelled(x) for x in each.arguments[1].elts)  # type: ignore[attr-defined]
                pitch, first = _spelled(each.options["pitch"]), _spelled(each.options["unit"]) == "0"
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
        return re.sub(r"\bprograms\b", "_programs(row, a.device)", _spelled(x)) if self.tuned else _spelled(x)

    def _launched(self) -> Iterator[str]:
        """The launches, and what is done before and after them."""
        lines: list[str] = []
        cleared = self._call.options.get("cleared")
        lines += [f"{x}.zero_()" for x in (ast.literal_eval(cleared) if cleared is not None else ())]
        launches = self._all("launches")
        indices = {ast.unparse(x): x for each in launches for x in _constants(each).values() if _kind(x) == "Index"}
        for node in indices.values():
            names = [str(ast.literal_eval(x)) for x in _value(node).arguments]
            yield bracketed("index = _index(", names, ")", INDENT)
            break
        for launch in launches:
            described = [
                (name, _value(x)) for name, x in _entries(launch.options["tensors"]) if _kind(x) == "Described"
            ]
            for name, x in described:
                turned = ".mT" if "turned" in x.options else ""
                listed = [f'"{x.name}"', f"{x.name}{turned}", _spelled(x.arguments[1])]
                yield bracketed(f"{name} = _describe(", listed, ")", INDENT)
            lines += self._launch(launch)
        for each in self._all("reduced"):
            name, parts, how = (str(ast.literal_eval(x)) for x in each.arguments)
            lines.append(f"torch.{how}({parts}, -2, out={name})")
        yield "with torch.cuda.device_of(a):"
        yield from ("    " + line.replace("\n", "\n    ") for line in lines)
        yield self._returned()

    def _launch(self, launch: _Value) -> Iterator[str]:
        kernel = ast.unparse(launch.arguments[0])
        grid = self._of_row(_Counted().visit(launch.options["grid"]) if self.square else launch.options["grid"])
        tensors = _entries(launch.options["tensors"])
        given = [f"{name}={name if _kind(x) == 'Described' else _passed(x)}" for name, x in tensors]
        given += [f"{name}={_passed(x)}" for name, x in _entries(launch.options["numbers"])]
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
        (launch,) = self._all("launches")[:1]
        found = []
        for name, x in _entries(launch.options["tensors"]):
            if _kind(x) == "Described":
                block = _value(x).arguments[1]
                found.append((name, _spelled(block).replace('row["', 'arguments["').replace("(", "[", 1)[:-1] + "]"))
        return tuple(found)

    @property
    def reset(self) -> str:
        """What an autotuner sets to zero before each trial, as source."""
        arguments = _value(self._call.options["tuner"]).arguments
        return ", ".join(map(_spelled, arguments))


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


def _refusal(need: _Value) -> tuple[str, str]:
    """The condition under which a call is refused, and the text of the error, as source."""
    options = need.options
    if need.kind == "Older":
        version = ".".join(str(x) for x in ast.literal_eval(need.arguments[0]))
        newer = f'tuple(map(int, triton.__version__.split(".")[:2])) >= {_spelled(need.arguments[0])}'
        return newer, f'"{ast.literal_eval(need.arguments[1])} need Triton older than {version}"'
    if need.kind == "Capability":
        least = _spelled(options["least"]) if "least" in options else ""
        condition = f"_capability(a.device) {'>=' if 'inverted' in options else '<'} {least}"
        if "majors" in options:
            condition = f"_capability(a.device)[0] not in {_spelled(options['majors'])}"
        return f"a.is_cuda and {condition}", f'"{need.name}"'
    if need.kind == "Absent":
        return f"{need.name} is not None", _spelled(need.arguments[1])
    if need.kind == "NotDeterministic":
        reason = f"results of {need.name} do not repeat, and torch.use_deterministic_algorithms(True) holds"
        return "torch.are_deterministic_algorithms_enabled()", f'"{reason}"'
    value, limit = _spelled(need.arguments[0]), _spelled(need.arguments[1])
    why, text = ast.literal_eval(need.arguments[2]), ast.unparse(need.arguments[0])
    if need.kind == "Multiple":
        return f"{value} % {limit}", f'f"{text} is {{{value}}}, and {why} multiples of {limit}"'
    assert need.kind == "AtMost", need.kind
    return f"{value} > {limit}", f'f"{text} is {{{value}}}, and {why} at most {{{limit}}}"'


def _passed(x: ast.expr) -> str:
    """What a kernel is passed for a parameter, as an expression of `gemm`."""
    if isinstance(x, ast.Constant) and isinstance(x.value, str):
        return x.value
    kind = _kind(x)
    if kind == "Stride":
        return f"{_value(x).name}.stride({_spelled(_value(x).arguments[1])})"
    if kind == "Bytes":
        return f"{_value(x).name}.view(torch.uint8)"
    if kind == "Index":
        return "index"
    if kind == "OnDevice":
        return f"isinstance({_value(x).name}, Tensor)"
    if kind == "Approximate":
        return "_approximates(a.device)"
    return _spelled(x)


def _kind(x: ast.expr) -> str:
    return x.func.id if isinstance(x, ast.Call) and isinstance(x.func, ast.Name) else ""


def _entries(x: ast.expr) -> Sequence[tuple[str, ast.expr]]:
    assert isinstance(x, ast.Dict)
    return [(str(ast.literal_eval(key)), value) for key, value in zip(x.keys, x.values) if key is not None]


def _constants(launch: _Value) -> dict[str, ast.expr]:
    given = launch.options.get("constants")
    return dict(_entries(given)) if given is not None else {}
