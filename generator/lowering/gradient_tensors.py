"""What the kernel that runs a contract's chain backwards reads and writes, and the table of its call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from generator.epilogue.chain import EpilogueOperand
from generator.epilogue.gated_units import CONCATENATED, PLACES
from generator.epilogue.operations import BOTH, COLUMNS, ELEMENT, HALVES, MATRIX, ROWS, SCALAR
from generator.language.elements import ELEMENTS
from generator.language.model import Variant
from generator.lowering.lines import bracketed, tuple_of
from generator.lowering.operands import Matrix, Slot, Vector, parameters, stride_slots, wide_strides
from generator.lowering.runtime_values import LaunchTable, argument, called, entries, imports, index
from generator.plan.contract_call import Argument, ContractCall, call
from generator.plan.gradients import ContractGradient

#: The stride of a tensor.
_STRIDE = re.compile(r"(\w+)\.stride\((\d)\)")
#: The type of the parts of sums.
_PARTS = "torch.float32"


@dataclass(frozen=True)
class GradientTensors:
    """The tensors of a gradient's kernel: gradients and operands that it reads, and gradients that it makes."""

    v: Variant
    gradient: ContractGradient

    @property
    def call(self) -> ContractCall:
        """The call of the contract."""
        return call(self.v)

    @property
    def grouped(self) -> bool:
        """Whether rows are in groups, so that the last rows may be in none."""
        return bool(self.v.products.divided)

    @property
    def number(self) -> str:
        """The kernel's name for the number of a matrix of a batch; empty where there is one."""
        return "" if self.grouped else self.v.products.number

    @property
    def places(self) -> Mapping[str, str]:
        """The columns of the gate's and the other value of a gate, for a column `{}` of the result."""
        return PLACES[self.v.epilogue.order or CONCATENATED]

    @property
    def results(self) -> tuple[tuple[Argument, str], ...]:
        """The results whose gradients come in, each with its shape; a maximum has none."""
        shapes = {output.name: output.shape for output in self.v.epilogue.outputs}
        differentiable = (x for x in self.call.results if x.name not in self.gradient.constant)
        return tuple((x, shapes.get(x.name, MATRIX)) for x in differentiable)

    @property
    def marked(self) -> bool:
        """Whether a loss may use other results alone: the gradient of C is then None, of which a call has the sizes."""
        return len(self.results) > 1

    @property
    def operands(self) -> tuple[tuple[EpilogueOperand, Argument], ...]:
        """What the chain reads."""
        return tuple(zip(self.v.epilogue.operands, self.call.operands, strict=True))

    @property
    def sum(self) -> Argument:
        """The sum of products."""
        *front, columns = self.call.out.dimensions
        return replace(self.call.out, name="sum", dimensions=(*front, 2 * columns if self.call.gated else columns))

    @property
    def reads_sum(self) -> bool:
        return self.gradient.sum is not None

    # As the kernel addresses them.

    def of_groups(self, operand: EpilogueOperand) -> bool:
        """Whether each group has such an operand of its own, in whose gradient its rows are added up."""
        return self.grouped and operand.shape in (COLUMNS, HALVES)

    @property
    def by_group(self) -> bool:
        """Whether the kernel reads the number of each row's group, because groups have operands of their own."""
        return any(self.of_groups(x) for x in self.v.epilogue.operands)

    def incoming(self, name: str, shape: str, place: str = "{}", loaded: str = "") -> Matrix | Vector:
        """The gradient of a result of this shape, or the sum, or one half of it."""
        if shape in (MATRIX, BOTH):
            return Matrix(name, name, "M", "N", "strided", self.number, place=place, loaded=loaded)
        return Vector(name, shape, product=self.number)

    def operand(self, operand: EpilogueOperand, place: str = "{}", loaded: str = "") -> Matrix | Vector:
        """An operand of the chain, or one half of it."""
        if operand.shape == MATRIX:
            return self.incoming(operand.name, MATRIX)
        if self.of_groups(operand):
            return Matrix(operand.name, operand.name, "G", "N", "row", place=place, loaded=loaded, line="group")
        number = "" if operand.shape in (SCALAR, ELEMENT) else self.number
        return Vector(operand.name, operand.shape, place, product=number, loaded=loaded)

    def outgoing(self, operand: EpilogueOperand, place: str = "{}") -> Matrix:
        """What the kernel stores for the gradient of an operand: the gradient, or parts that are added."""
        name = f"d_{operand.name}"
        if operand.shape == MATRIX:
            return Matrix(name, name, "M", "N", "strided", self.number)
        parts = name if self.of_groups(operand) else f"{name}_parts"
        return Matrix(name, parts, "tiles", "N", "row", self.number, place=place)

    def outgoing_sum(self, place: str = "{}") -> Matrix:
        """The gradient of the sum, or one half of it."""
        return Matrix("d_sum", "d_sum", "M", "N", "row", self.number, place=place)

    @cached_property
    def tensors(self) -> tuple[Matrix | Vector, ...]:
        """All of them, in the order of the kernel's parameters."""
        read = [self.incoming(f"grad_{x.name}", shape) for x, shape in self.results]
        read += [self.incoming("sum", MATRIX)] * self.reads_sum
        operands = [operand for operand, _ in self.operands]
        return (*read, *map(self.operand, operands), self.outgoing_sum(), *map(self.outgoing, operands))

    @property
    def wide_strides(self) -> tuple[str, ...]:
        """The statements that make strides as wide as offsets may be."""
        return wide_strides(self.tensors)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The kernel's parameters in order."""
        return parameters(self._slots, [*(name for name, _ in self._constants), "BLOCK_M", "BLOCK_N"])

    # The call.

    @cached_property
    def text(self) -> str:
        """The statement that assigns the table of the call."""
        *front, rows, _ = self.call.out.extents
        tiles = (f"cdiv({rows}, BLOCK_M)", f"cdiv({self.call.named('N')}, BLOCK_N)")
        grid = f"({' * '.join((*front, *tiles))},)"
        launch = LaunchTable("gradient_kernel", grid, self._slots, self._constants, True)
        results = [_made("sum", self.sum.words, f"torch.{ELEMENTS[self.v.dtype.a].torch}")]
        memory, totals = [], []
        for operand, x in self.operands:
            grouped = self.of_groups(operand)
            # For groups, what each row adds to the gradient of its own.
            words = f"{rows} {x.words.split()[-1]}" if grouped else x.words
            results.append(_made(x.name, words, _PARTS * (x.number or grouped)))
            if operand.shape == MATRIX or grouped:
                continue
            columns = x.extents[-1] if operand.shape in (COLUMNS, HALVES) else tiles[1]
            shape = (*front, *((tiles[1], rows) if operand.shape == ROWS else (tiles[0], columns)))
            words = " ".join(each.replace(" ", "") for each in shape)
            memory.append(_made(x.name, words, _PARTS, "_parts"))
            totals.append(f'Total("d_{x.name}", "d_{x.name}_parts")')
        items = ['[{"BLOCK_M": 64, "BLOCK_N": 64}]']
        items += [*entries("operands", self._read), *entries("results", results), *entries("launches", [launch.text])]
        items += [*entries("memory", memory), *entries("reduced", totals)]
        sizes = [f'"{x}"' for x in (*front, rows, *[self.call.named("N")] * 2)]
        return called("CALL = Call(", [*items, tuple_of(sizes, head="sized=")], ")")

    @property
    def imports(self) -> tuple[str, ...]:
        """The imports of what the table uses of the family's library."""
        return imports(self.text)

    @property
    def _read(self) -> list[str]:
        """The operands of the call: the gradient of the result gives the sizes, and the others may be left out."""
        incoming = [replace(x, name=f"grad_{x.name}", dtype=None) for x, _ in self.results]
        read = [*incoming, *filter(None, [self.call.offsets]), *[self.sum] * self.reads_sum, *self.call.operands]
        # Matrices are read through both strides.
        more = {x.name: [f'absent="{x.extents[0]}"'] for x in incoming[1:]}
        lines = [argument(replace(x, layout=x.layout and "strided"), *more.get(x.name, ())) for x in read]
        return lines + [f'Operand("group", "{self.call.out.extents[-2]}", torch.int64, unit=0)'] * self.by_group

    @property
    def _slots(self) -> tuple[Slot, ...]:
        """The kernel's parameters that are no constants, in order."""
        slots = [x.slot for x in self.tensors]
        if self.marked:
            slots[0] = Slot("grad_out_ptr", 'None if "no out" in needed else grad_out')
        if self.grouped:
            slots.append(Slot("group_ptr", "group") if self.by_group else Slot("offsets_ptr", "offsets"))
        slots += [
            Slot("M", self.call.out.extents[-2]),
            Slot("N", self.call.named("N")),
            *[Slot("G", "G")] * self.grouped,
        ]
        # Gradients that are not needed, and those of outputs that are not used, are None.
        strides = (Slot(x.parameter, _STRIDE.sub(r"stride(\1, \2)", x.value)) for x in stride_slots(self.tensors))
        return (*slots, *strides)

    @property
    def _constants(self) -> tuple[tuple[str, str], ...]:
        """The constants of a launch beside the sizes of a tile."""
        numbers = [x for x in self.tensors if isinstance(x, Vector) and x.shape == SCALAR]
        flags = ((x.flag, f"on_device({x.name})") for x in numbers)
        groups = [("GROUPS", "next_power(G, 32)")] * (self.grouped and not self.by_group)
        return (*groups, index(x.variable for x in self.tensors if x.strides), *flags)


def _made(of: str, shape: str, kind: str, more: str = "") -> str:
    """A gradient, or the parts of it, as the table has it; without a type `kind` it has that of the operand."""
    return bracketed("Gradient(", [f'"d_{of}{more}"', f'"{shape}"', *[kind] * bool(kind), f'of="{of}"'], ")", 8)
