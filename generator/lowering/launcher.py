"""The host side of a kernel's file as its template reads it: a value, equal for kernels whose launchers are alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from generator.language.vocabulary import ELEMENTS, INTERPRETED
from generator.lowering import docstrings
from generator.lowering.lines import WIDTH, bracketed, collected, paragraph
from generator.lowering.operands import Argument, Matrix, Slot, Vector
from generator.lowering.outputs import OutputView
from generator.lowering.view import View
from generator.plan import memory

#: Where a statement of the launcher begins.
_INSIDE = 4


@dataclass(frozen=True)
class Launcher:
    """What `templates/launcher.j2`, `helpers.j2` and `select.j2` are given."""

    formula: str
    a: Matrix
    b: Matrix
    c: Matrix
    operands: tuple[Argument, ...]
    #: The operands to check beside `out`: matrices and vectors.
    checked: tuple[Matrix | Vector, ...]
    scalars: tuple[Vector, ...]
    #: What the launch passes to the kernel's parameters, in their order, and which constants.
    passed: tuple[Slot, ...]
    constants: tuple[tuple[str, str], ...]
    grid: str
    #: The descriptors of B, each with the table's columns whose difference is the columns of its block.
    b_blocks: tuple[tuple[str, tuple[str, ...]], ...]
    #: The matrices beside A and B that have descriptors.
    described: tuple[Matrix, ...]
    #: The largest extent of the matrices whose offsets are computed; None where none is.
    furthest: str | None
    #: The dimensions that must be multiples of the tile.
    divided: tuple[str, ...]
    #: Whether a tile must hold all of K.
    bounded_k: bool
    #: Programs that walk the tiles in the interpreter; None where each tile has a program.
    interpreted: int | None
    #: Whether programs share the K of a tile, as many as the row says.
    splits: bool
    #: The type of the partial sums that the launcher makes room for; None where there are none.
    workspace: str | None
    #: Whether programs add to the result, which is zero before.
    adds: bool
    #: Whether a row does not fit on some target.
    too_large: bool
    tiled: bool
    block_pointers: bool
    descriptors: bool
    #: What N must be a multiple of for a descriptor to read the second half of b; None for any N.
    read_step: int | None
    #: Elements of the result in 16 bytes.
    step: int
    #: Bytes of an element of A, and of the result.
    element_bytes: int
    result_bytes: int
    #: Whether the store has a tile of its own in shared memory.
    staged: bool
    #: Whether a tile may take longer to load than to multiply, with no tile before it to hide that.
    bound_by_loads: bool
    #: Whether columns of C fill the rows of the matrix unit.
    exchanged: bool
    autotune: bool
    #: The macro of select.j2 that chooses a row; None where the tuner does.
    choose: str | None
    #: Whether a, b, out and matrices of the epilogue are 3-D.
    batched: bool
    #: Whether b has two columns for each of the result.
    gated: bool
    #: Whether the kernel is told of the hardware's approximate instructions.
    approximates: bool
    #: What is written beside C, in the order of the chain.
    outputs: tuple[OutputView, ...]
    #: Whether C is read before it is written.
    reads_out: bool

    @property
    def sentence(self) -> str:
        """What the docstring begins with, a line or several."""
        made = f"a new {self.c.extent} tensor, or `out` filled."
        if self.reads_out:
            made = f"`out` {self.c.extent}, which is C and is read first."
        text = f"{self.formula} for `a` {self.a.extent} and `b` {self.b.extent}: {made}"
        return paragraph(text, _INSIDE + len('"""'), " " * _INSIDE)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The launch's arguments as entries of a dictionary."""
        entries = [(slot.parameter, slot.value) for slot in self.passed]
        return tuple(f'"{name}": {value}' for name, value in (*entries, *self.constants))

    @property
    def slots(self) -> str:
        """Which arguments are of an operand of the call, or of memory that is made for it."""
        owned = [f'"{slot.parameter}": "{slot.owner}"' for slot in self.passed if slot.owner is not None]
        return collected("slots={", owned, "}", 2 * _INSIDE)

    @property
    def reductions(self) -> tuple[OutputView, ...]:
        """The outputs that are made of the tiles' parts."""
        return tuple(output for output in self.outputs if output.reduced)

    @property
    def around(self) -> tuple[str, ...]:
        """What the plan says of the time before the launch and after it."""
        found = []
        if self.adds:
            found.append('cleared=["out"]')
        if self.workspace:
            found.append('workspace={"work": work, "counters": counters}')
        if self.reductions:
            parts = [output.matrix.variable for output in self.reductions]
            found.append(collected("parts={", [f'"{name}": {name}' for name in parts], "}", 2 * _INSIDE))
            reduced = [f'("{x.name}", torch.{x.reduction}, "{x.matrix.variable}")' for x in self.reductions]
            found.append(collected("reduced=[", reduced, "]", 2 * _INSIDE))
        return tuple(found)

    @property
    def plan_call(self) -> str:
        """The statement that asks for the plan."""
        names = (*(o.name for o in self.operands), "out", *(o.name for o in self.outputs), "config")
        return bracketed("launch = plan(", ["a", "b", *(f"{name}={name}" for name in names)], ")", _INSIDE)

    @property
    def plan_head(self) -> str:
        """The head of the function that makes it."""
        names = (*(o.name for o in self.operands), "out=None", *(f"{o.name}=None" for o in self.outputs), "config=None")
        return bracketed("def plan(", ["a", "b", "*", *names], "):")

    @property
    def refusal_call(self) -> str:
        """The statement that asks whether this kernel takes the operands."""
        names = (*(operand.name for operand in self.operands), "out", *(matrix.name for matrix in self.saved))
        return bracketed("reason = refusal(", ["a", "b", *(f"{name}={name}" for name in names)], ")", _INSIDE)

    @property
    def refusal_head(self) -> str:
        """The head of the function that answers."""
        outputs = (f"{output.name}=None" for output in self.outputs)
        names = (*(o.name for o in self.operands), "out=None", *outputs)
        return bracketed("def refusal(", ["a", "b", "*", *names], "):")

    @property
    def conditions(self) -> tuple[str, ...]:
        """What a row of the table must satisfy to take M, N and K."""
        found = [f'{d} % row["BLOCK_{d}"] == 0' for d in self.divided]
        return (*found, *(['K <= row["BLOCK_K"]'] if self.bounded_k else []))

    @property
    def sizes(self) -> str:
        """The launcher's variables for the sizes."""
        return "B, M, N, K" if self.batched else "M, N, K"

    @property
    def extents(self) -> Mapping[str, str]:
        """The sizes as extents of the operands."""
        first = int(self.batched)
        halves = " // 2" * self.gated
        return {"M": f"a.shape[{first}]", "N": f"b.shape[{first + 1}]{halves}", "K": f"a.shape[{first + 1}]"}

    @property
    def products(self) -> str:
        """The products of a step along K, as the model of the device counts them."""
        if self.gated:
            return "m * max(2 * n, 128)" if self.exchanged else "2 * max(m, 64) * n"
        return "m * max(n, 64)" if self.exchanged else "max(m, 64) * n"

    @property
    def programs(self) -> str:
        """The number of elements of the result, as a product of its extents."""
        return f"{'a.shape[0] * ' if self.batched else ''}{self.extents['M']} * {self.extents['N']}"

    @property
    def refuses(self) -> bool:
        """Whether the kernel cannot take everything that its contract allows."""
        return bool(self.conditions or self.descriptors or self.block_pointers or not self.tiled)

    @property
    def matrices(self) -> tuple[str, ...]:
        """The launcher's matrices beside `out`."""
        return tuple(operand.variable for operand in self.checked if isinstance(operand, Matrix))

    @property
    def saved(self) -> tuple[Matrix, ...]:
        """The outputs that lie as C does."""
        return tuple(output.matrix for output in self.outputs if not output.reduced)

    @property
    def index(self) -> str:
        """The statements that choose between offsets of 32 and of 64 bits."""
        assert self.furthest is not None
        one = f"index = tl.int64 if {self.furthest} > 2**31 else tl.int32"
        if _INSIDE + len(one) <= WIDTH:
            return one
        extents = self.furthest.removeprefix("max(").removesuffix(")").split(", ")
        first = bracketed("furthest = max(", extents, ")", _INSIDE)
        return f"{first}\nindex = tl.int64 if furthest > 2**31 else tl.int32"

    @property
    def results(self) -> str:
        """The statement that names what is returned."""
        names = ["out", *(output.name for output in self.outputs)]
        return collected("results = {", [f'"{name}": {name}' for name in names], "}", _INSIDE)

    @property
    def annotation(self) -> str:
        """The type of what is returned."""
        return f"tuple[{', '.join(['torch.Tensor'] * (1 + len(self.outputs)))}]" if self.outputs else "torch.Tensor"

    @property
    def about_outputs(self) -> str:
        """What the docstring says of outputs, a line or several."""
        names = ", ".join(["out", *(output.name for output in self.outputs)])
        return paragraph(f"Returns ({names}): each of them as it is given, filled, or new.", _INSIDE)

    @property
    def any_dtype(self) -> bool:
        return any(operand.torch_dtype == "None" for operand in self.checked)

    @property
    def any_strided(self) -> bool:
        return "strided" in (self.a.layout, self.b.layout, self.c.layout)

    @property
    def allocation(self) -> str:
        """The expression for a new result."""
        return self.made(self.c)

    def made(self, matrix: Matrix) -> str:
        """The expression for a new matrix that lies as C does."""
        shape = "N, M" if self.c.layout == "column" else "M, N"
        shape, turned = (f"B, {shape}", ".mT") if self.batched else (shape, ".T")
        made = f"torch.empty(({shape}), dtype={matrix.torch_dtype}, device=a.device)"
        return f"{made}{turned}" if self.c.layout == "column" else made


def launcher(k: View) -> Launcher:
    """The launcher of a kernel."""
    v = k.v
    kinds = (("M", k.edges.bound.m), ("N", k.edges.bound.n), ("K", k.edges.bound.k))
    return Launcher(
        formula=docstrings.formula(v),
        a=k.a,
        b=k.b,
        c=k.c,
        operands=tuple(Argument.of(operand) for operand in v.epilogue.operands),
        checked=(k.a, k.b, *(o for o in k.operands if o not in k.scalars)),
        scalars=k.scalars,
        passed=k.slots,
        constants=_constants(k),
        grid=_grid(k),
        b_blocks=k.b_blocks,
        described=k.described,
        furthest=_furthest(k.pointed),
        divided=tuple(d for d, kind in kinds if kind == "never") if k.tiled and not k.descriptors else (),
        bounded_k=not v.traits.looped,
        interpreted=INTERPRETED if k.schedule.walks else None,
        splits=k.schedule.splits,
        workspace=f"torch.{ELEMENTS[v.dtype.acc].torch}" if k.schedule.workspace else None,
        adds=k.schedule.splits and not k.schedule.workspace,
        too_large=bool(k.too_large),
        tiled=k.tiled,
        block_pointers=v.load == "block_pointer",
        descriptors=k.descriptors,
        read_step=k.read_step,
        step=128 // ELEMENTS[v.dtype.out].bits,
        element_bytes=ELEMENTS[v.dtype.a].bits // 8,
        result_bytes=ELEMENTS[v.dtype.out].bits // 8,
        staged=memory.staged(v),
        bound_by_loads=k.descriptors and not k.schedule.walks and v.dtype.precision != "ieee",
        exchanged=k.exchanged,
        autotune=k.autotune,
        choose=k.choose,
        batched=k.batched,
        gated=k.order is not None,
        approximates=k.approximates,
        outputs=k.outputs,
        reads_out=v.epilogue.reads_out,
    )


def _grid(k: View) -> str:
    # One dimension: the others of a grid hold 65535 programs.
    several = "B * " if k.batched else ""
    if not k.tiled:
        return f"({several}M * N,)"
    source = "meta" if k.autotune else "row"
    tiles = f'{several}triton.cdiv(M, {source}["BLOCK_M"]) * triton.cdiv(N, {source}["BLOCK_N"])'
    grid = f"({tiles},)"
    if k.schedule.splits:
        grid = f'({tiles}, {source}["SPLIT"])'
    elif k.schedule.walks and k.schedule.workspace:
        grid = f"(_programs({source}, a.device),)"
    elif k.schedule.walks:
        programs = f"min({tiles}, _programs({source}, a.device)),"
        grid = f"({programs})"
        if k.autotune:
            # Longer than a line.
            return f"lambda meta: (\n        {programs}\n    )"
    return f"lambda meta: {grid}" if k.autotune else grid


def _furthest(pointed: tuple[Matrix, ...]) -> str | None:
    extents = [f"_extent({matrix.variable})" for matrix in pointed]
    return f"max({', '.join(extents)})" if len(extents) > 1 else extents[0] if extents else None


def _constants(k: View) -> tuple[tuple[str, str], ...]:
    """What the launch tells the compiler, by name."""
    found = [("INDEX", "index")] if k.pointed else []
    found += [(operand.flag, f"isinstance({operand.name}, torch.Tensor)") for operand in k.scalars]
    if k.approximates:
        found.append(("APPROX", "_approximates(a.device)"))
    if k.v.rounds_between:
        # A compiler that sees two operations of 16 bits makes one of them, which rounds once.
        found.append(("enable_fp_fusion", "False"))
    return tuple(found)
