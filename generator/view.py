"""What a kernel's template is given: finished names and typed values, every choice already made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from generator import formula, legality, prose
from generator.epilogue import COLUMNS, MATRIX, ROWS, SCALAR, Operand
from generator.model import Kernel, Tile, Variant
from generator.vocabulary import ELEMENTS

_UNITS = {"row": 1, "column": 0, "strided": None}


@dataclass(frozen=True)
class Matrix:
    """A matrix of the launcher (`a`, `b`, `c` or an M×N epilogue operand) as kernel and launcher address it."""

    name: str
    #: The launcher's variable, and its dimensions as the kernel names them.
    variable: str
    rows: str
    columns: str
    layout: str
    torch_dtype: str

    shape = MATRIX

    @property
    def row_stride(self) -> str | None:
        """The kernel's parameter for the stride between rows; None for a unit stride."""
        if self.layout == "strided":
            return f"stride_{self.name}{self.rows.lower()}"
        return f"ld{self.name}" if self.layout == "row" else None

    @property
    def column_stride(self) -> str | None:
        """The kernel's parameter for the stride between columns; None for a unit stride."""
        if self.layout == "strided":
            return f"stride_{self.name}{self.columns.lower()}"
        return f"ld{self.name}" if self.layout == "column" else None

    @property
    def strides(self) -> tuple[tuple[str, str], ...]:
        """Each stride parameter with the launcher's expression for it."""
        both = ((self.row_stride, 0), (self.column_stride, 1))
        return tuple((name, f"{self.variable}.stride({dimension})") for name, dimension in both if name)

    @property
    def extent(self) -> str:
        return f"({self.rows}, {self.columns})"

    @property
    def unit(self) -> int | None:
        """The dimension of stride 1."""
        return _UNITS[self.layout]

    @property
    def argument(self) -> str:
        return self.variable

    @property
    def described(self) -> str:
        """The row-major matrix that a descriptor describes."""
        return f"{self.variable}.T" if self.layout == "column" else self.variable

    def block(self, row: str, brackets: str = "()") -> str:
        """The block a descriptor copies, in the order of `described`, from a row of the table."""
        sizes = [f'{row}["BLOCK_{self.rows}"]', f'{row}["BLOCK_{self.columns}"]']
        if self.layout == "column":
            sizes.reverse()
        return f"{brackets[0]}{', '.join(sizes)}{brackets[1]}"


@dataclass(frozen=True)
class Vector:
    """A vector or scalar operand of the epilogue."""

    name: str
    shape: str

    variable = property(lambda self: self.name)
    torch_dtype = "None"
    unit = 0

    @property
    def extent(self) -> str:
        return f"({self.shape},)"

    @property
    def flag(self) -> str:
        """The constexpr that says whether a scalar lies on the device."""
        return f"{self.name.upper()}_ON_DEVICE"


@dataclass(frozen=True)
class Argument:
    """An epilogue operand in the launcher's signature."""

    name: str
    annotation: str


@dataclass(frozen=True)
class StepView:
    """One epilogue step: its operands, and the expression of the new running value."""

    operands: tuple[Matrix | Vector, ...]
    expression: str


@dataclass(frozen=True)
class Dimensions:
    """One text for each of m, n and k."""

    m: str
    n: str
    k: str


@dataclass(frozen=True)
class View:
    """A kernel as its template reads it; see the templates for the use of each."""

    kernel: Kernel
    a: Matrix
    b: Matrix
    c: Matrix
    bound: Dimensions
    inside: Dimensions
    steps: tuple[StepView, ...]
    result: str

    @property
    def v(self) -> Variant:
        return self.kernel.variant

    # The kernel.

    @property
    def load_template(self) -> str:
        return f"load/{self.v.load}.j2"

    @property
    def store_template(self) -> str:
        return f"load/{self.v.load if self.v.store == 'as_load' else self.v.store}.j2"

    @property
    def swizzle(self) -> str:
        return self.v.swizzle

    @property
    def group(self) -> str | None:
        """The table's column for the height or width of a band, where the order has bands."""
        return {"grouped": "GROUP_M", "grouped_n": "GROUP_N", "swizzle2d": "GROUP_M"}.get(self.v.swizzle)

    @property
    def tiled(self) -> bool:
        """Whether a program computes a tile, rather than one element."""
        return self.v.schedule != "elementwise"

    @property
    def descriptors(self) -> bool:
        return self.v.load == "descriptor"

    @property
    def acc(self) -> str:
        return ELEMENTS[self.v.dtype.acc].triton

    @property
    def acc_word(self) -> str:
        return self.v.dtype.acc

    @property
    def epilogue_type(self) -> str:
        return "int32" if self.v.dtype.out == "int32" else "fp32"

    @property
    def step(self) -> str:
        """The loop variable along K, `_` where nothing reads it."""
        return "k" if self.descriptors or (self.v.load == "pointer" and self.bound.k != "never") else "_"

    @property
    def dot_options(self) -> str:
        dtype = self.v.dtype
        if dtype.a == "fp32":
            return f', input_precision="{dtype.precision}"'
        if dtype.precision == "full":
            deepest = max(tile.k for tile in self.kernel.tiles)
            return f", max_num_imprecise_acc={'BLOCK_K' if deepest <= 128 else 'BLOCK_K if BLOCK_K < 128 else 128'}"
        return f", out_dtype=tl.{self.acc}" if dtype.acc != "fp32" else ""

    @property
    def guard_empty_k(self) -> bool:
        """Whether an unmasked load of all of K must be kept from an empty K."""
        return self.v.schedule == "naive" and self.v.load != "descriptor" and self.bound.k != "always"

    @property
    def store_note(self) -> str:
        changed = self.v.dtype.out != ("int32" if self.epilogue_type == "int32" else "fp32" if self.steps else self.acc_word)
        return f", rounding to {self.v.dtype.out} once" if changed else ""

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        """The M×N operands of the epilogue."""
        return tuple(o for step in self.steps for o in step.operands if isinstance(o, Matrix))

    @property
    def scalars(self) -> tuple[Vector, ...]:
        return tuple(o for step in self.steps for o in step.operands if isinstance(o, Vector) and o.shape == SCALAR)

    @property
    def pointed(self) -> tuple[Matrix, ...]:
        """The matrices addressed through strides, so that their offsets can pass 2**31."""
        everything = (self.a, self.b, self.c, *self.matrices)
        if self.descriptors:
            return everything[2:] if self.v.store == "pointer" else ()
        if self.v.load == "block_pointer":
            return (*((self.c,) if self.v.store == "pointer" else ()), *self.matrices)
        return everything

    @property
    def wide_strides(self) -> tuple[str, ...]:
        names = [name for matrix in self.pointed for name, _ in matrix.strides]
        casts = [f"{name} = tl.cast({name}, INDEX)" for name in names]
        return ("# Strides are as wide as the offsets they make.", *casts) if casts else ()

    @property
    def late_coordinates(self) -> bool:
        """Whether the epilogue or the store needs the coordinates that the loads did without."""
        return self.tiled and self.v.load != "pointer" and (self.needs_m or self.needs_n)

    @property
    def needs_m(self) -> bool:
        return self._needs(ROWS)

    @property
    def needs_n(self) -> bool:
        return self._needs(COLUMNS)

    def _needs(self, dimension: str) -> bool:
        if self.v.load == "pointer" or self.v.store == "pointer":
            return True
        shapes = {operand.shape for operand in self.v.epilogue.operands}
        return dimension in shapes or (MATRIX in shapes and self.v.load == "block_pointer")

    @property
    def even(self) -> tuple[str, ...]:
        """The dimensions whose divisibility is a constexpr decided at the call."""
        kinds = {"M": self.bound.m, "N": self.bound.n, "K": self.bound.k}
        return tuple(d for d, kind in kinds.items() if kind == "call")

    @property
    def helpers(self) -> tuple[str, ...]:
        used = {name for step in self.v.epilogue.steps for name in formula.functions(step.tree)}
        return tuple(sorted(h for name in used if (h := formula.FUNCTIONS[name].helper)))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The kernel's parameters in order."""
        described = self.descriptors
        names = [f"{m.name}_{'desc' if described else 'ptr'}" for m in (self.a, self.b)]
        by_descriptor = described and self.v.store == "as_load"
        names.append("c_desc" if by_descriptor else "c_ptr")
        constants = ["INDEX"] if self.wide_strides else []
        for step in self.steps:
            for operand in step.operands:
                if isinstance(operand, Matrix):
                    names.append(f"{operand.name}_{'desc' if by_descriptor else 'ptr'}")
                elif operand.shape == SCALAR:
                    names.append(f"{operand.name}_or_ptr")
                    constants.append(operand.flag)
                else:
                    names.append(f"{operand.name}_ptr")
        names += ["M", "N", "K"]
        names += [name for matrix in self.strided for name, _ in matrix.strides]
        constants += [f"EVEN_{d}" for d in self.even]
        if self.tiled:
            constants += ["BLOCK_M", "BLOCK_N", "BLOCK_K", *([self.group] if self.group else [])]
        return (*names, *(f"{name}: tl.constexpr" for name in constants))

    @property
    def strided(self) -> tuple[Matrix, ...]:
        """The matrices whose strides are parameters."""
        if not self.descriptors:
            return (self.a, self.b, self.c, *self.matrices)
        return self.pointed

    @property
    def c_bits(self) -> int:
        """Bits of an element of the result."""
        return ELEMENTS[self.v.dtype.out].bits

    # The table and the launcher.

    @property
    def configs(self) -> tuple[str, ...]:
        return tuple(self._config(tile) for tile in self.kernel.tiles)

    def _config(self, tile: Tile) -> str:
        if not self.tiled:
            return f'{{"num_warps": {tile.warps}}}'
        row = {"BLOCK_M": tile.m, "BLOCK_N": tile.n, "BLOCK_K": tile.k}
        if self.group:
            row[self.group] = tile.group
        row |= {"num_warps": tile.warps, "num_stages": tile.stages}
        return "{" + ", ".join(f'"{name}": {value}' for name, value in row.items()) + "}"

    @property
    def too_large(self) -> str:
        """Target -> the rows it is not offered, as source; empty where every target holds every row."""
        found = {}
        for target in self.kernel.targets:
            rows = self.kernel.tiles
            refused = tuple(i for i, row in enumerate(rows) if legality.why_no_row_on(self.v, row, target))
            if refused:
                found[target] = refused
        return ("{" + ", ".join(f'"{target}": {rows}' for target, rows in found.items()) + "}") if found else ""

    @property
    def autotune(self) -> bool:
        return self.kernel.select == "autotune" and len(self.kernel.tiles) > 1

    @property
    def choose(self) -> str:
        """The macro that chooses a row; the tuner chooses by itself."""
        if self.autotune:
            return ""
        return "heuristic" if self.kernel.select == "heuristic" and len(self.kernel.tiles) > 1 else "fixed"

    @property
    def divided(self) -> tuple[str, ...]:
        """The dimensions that must be multiples of the tile."""
        if not self.tiled or self.descriptors:
            return ()
        return tuple(d for d, kind in (("M", self.bound.m), ("N", self.bound.n), ("K", self.bound.k)) if kind == "never")

    @property
    def bounded_k(self) -> bool:
        return self.v.schedule == "naive"

    @property
    def conditions(self) -> tuple[str, ...]:
        """What a row of the table must satisfy to take M, N and K."""
        found = [f'{d} % row["BLOCK_{d}"] == 0' for d in self.divided]
        return (*found, *(['K <= row["BLOCK_K"]'] if self.bounded_k else []))

    @property
    def grid(self) -> str:
        if not self.tiled:
            return "(M * N,)"
        source = "meta" if self.autotune else "row"
        tiles = f'(triton.cdiv(M, {source}["BLOCK_M"]) * triton.cdiv(N, {source}["BLOCK_N"]),)'
        return f"lambda meta: {tiles}" if self.autotune else tiles

    @property
    def imports(self) -> tuple[str, ...]:
        standard = ["import functools", ""] if self.choose == "heuristic" else []
        last = ["from triton.tools.tensor_descriptor import TensorDescriptor"] if self.descriptors else []
        return (*standard, "import torch", "import triton", "import triton.language as tl", *last)

    @property
    def operands(self) -> tuple[Argument, ...]:
        return tuple(_argument(operand) for operand in self.v.epilogue.operands)

    @property
    def checked(self) -> tuple[Matrix | Vector, ...]:
        rest = [o for step in self.steps for o in step.operands if o not in self.scalars]
        return (self.a, self.b, *rest)

    @property
    def described(self) -> tuple[Matrix, ...]:
        """The matrices beside A and B that have descriptors."""
        return (self.c, *self.matrices) if self.descriptors and self.v.store == "as_load" else ()

    @property
    def any_dtype(self) -> bool:
        return any(operand.torch_dtype == "None" for operand in self.checked)

    @property
    def any_strided(self) -> bool:
        return "strided" in (self.v.layout.a, self.v.layout.b, self.v.layout.c)

    @property
    def allocation(self) -> str:
        """The launcher's expression for a new result."""
        if self.c.layout == "column":
            return f"torch.empty((N, M), dtype={self.c.torch_dtype}, device=a.device).T"
        return f"torch.empty((M, N), dtype={self.c.torch_dtype}, device=a.device)"

    @property
    def extents(self) -> tuple[str, ...]:
        return tuple(f"_extent({matrix.variable})" for matrix in self.pointed)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The launch's arguments, in the order of the parameters."""
        described = {matrix.name for matrix in self.described} | ({"a", "b"} if self.descriptors else set())
        matrices = [self.a, self.b, self.c]
        found = [f"{m.name}_desc" if m.name in described else m.variable for m in matrices]
        constants = ["INDEX=index"] if self.wide_strides else []
        for step in self.steps:
            for operand in step.operands:
                found.append(f"{operand.name}_desc" if operand.name in described else operand.name)
                if isinstance(operand, Vector) and operand.shape == SCALAR:
                    constants.append(f"{operand.flag}=isinstance({operand.name}, torch.Tensor)")
        found += ["M", "N", "K"]
        found += [value for matrix in self.strided for _, value in matrix.strides]
        return (*found, *constants)

    @property
    def refuses(self) -> bool:
        return bool(self.conditions or self.descriptors or self.v.load == "block_pointer" or not self.tiled)

    @property
    def formula(self) -> str:
        return prose.formula(self.v)

    @property
    def docstring(self) -> str:
        kernel, v = self.kernel, self.v
        rows = [("operand", "shape", "dtype", "layout")]
        for matrix, label in ((self.a, "a"), (self.b, "b"), (self.c, "result")):
            rows.append((label, matrix.extent, matrix.torch_dtype.removeprefix("torch."), self._layout(matrix)))
            if label == "b":
                for operand in (o for step in self.steps for o in step.operands):
                    rows.append(self._operand_row(operand))
        sentences = [prose.sizes(kernel), prose.order(v), prose.rounding(v), prose.REPEATABLE, prose.needs(kernel)]
        return f"{prose.table(rows)}\n\n{prose.paragraph(' '.join(s for s in sentences if s))}"

    def _layout(self, matrix: Matrix) -> str:
        text = prose.layout_phrase(matrix.layout, (matrix.rows, matrix.columns))
        by_descriptor = self.descriptors and (matrix.name in "ab" or self.v.store == "as_load")
        if by_descriptor:
            text += "; base and leading dimension aligned to 16 bytes"
            if matrix.name == "c":
                text += f", {matrix.columns if matrix.layout == 'row' else matrix.rows} too"
        return text

    def _operand_row(self, operand: Matrix | Vector) -> tuple[str, str, str, str]:
        if isinstance(operand, Matrix):
            return operand.name, operand.extent, "any floating", self._layout(operand)
        if operand.shape == SCALAR:
            return operand.name, "scalar", "any real", "a number, or a tensor of one element"
        return operand.name, operand.extent, "any floating", "stride 1"


def _argument(operand: Operand) -> Argument:
    return Argument(operand.name, "float | torch.Tensor" if operand.shape == SCALAR else "torch.Tensor")


def view(kernel: Kernel) -> View:
    """The view of a kernel: every choice that a template would otherwise have to make."""
    v = kernel.variant
    ragged = legality.ragged(v)
    kinds = {d: {True: "always", False: "never", None: "call"}[value] for d, value in ragged.items()}
    if v.schedule == "elementwise":
        kinds = dict.fromkeys("mnk", "never")
    elif v.load == "descriptor":
        edge = "always" if v.store == "pointer" else "never"
        kinds = {"m": edge, "n": edge, "k": "never"}
    inside = {d: "" if kind == "never" else f"in_{d}" for d, kind in kinds.items()}
    matrices = {
        "a": Matrix("a", "a", "M", "K", v.layout.a, f"torch.{ELEMENTS[v.dtype.a].torch}"),
        "b": Matrix("b", "b", "K", "N", v.layout.b, f"torch.{ELEMENTS[v.dtype.b].torch}"),
        "c": Matrix("c", "out", "M", "N", v.layout.c, f"torch.{ELEMENTS[v.dtype.out].torch}"),
    }
    steps, result = _steps(v)
    return View(kernel, **matrices, bound=Dimensions(**kinds), inside=Dimensions(**inside), steps=steps, result=result)


def _steps(v: Variant) -> tuple[tuple[StepView, ...], str]:
    """The epilogue's steps as a kernel spells them, and the expression that is stored."""
    tile = v.schedule != "elementwise"
    kind = v.dtype.acc
    x = "acc"
    steps = []
    for step in v.epilogue.steps:
        stays = kind == "int32" and formula.keeps_integers(step.tree)
        if not stays and kind != "fp32":
            x, kind = f"{x}.to(tl.float32)", "fp32"
        spellings = {local: _broadcast(operand, tile) for local, operand in step.operands}
        expression = formula.to_triton(step.tree, {formula.X: x, **spellings}, integer=stays)
        steps.append(StepView(_operands(v, [operand for _, operand in step.operands]), expression))
        x = "x"
    return tuple(steps), x if kind == v.dtype.out else f"{x}.to(tl.{ELEMENTS[v.dtype.out].triton})"


def _broadcast(operand: Operand, tile: bool) -> str:
    if not tile:
        return operand.name
    return operand.name + {COLUMNS: "[None, :]", ROWS: "[:, None]"}.get(operand.shape, "")


def _operands(v: Variant, operands: Sequence[Operand]) -> tuple[Matrix | Vector, ...]:
    return tuple(
        Matrix(o.name, o.name, "M", "N", v.layout.c, "None") if o.shape == MATRIX else Vector(o.name, o.shape)
        for o in operands
    )
