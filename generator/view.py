"""What a kernel's template is given: finished names and typed values, every choice already made."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

from generator import formula, legality
from generator.epilogue import COLUMNS, MATRIX, ROWS, SCALAR, Epilogue, Operand
from generator.model import Dtype, Kernel, Tile, Variant
from generator.operands import Matrix, Vector
from generator.vocabulary import ELEMENTS


@dataclass(frozen=True)
class StepView:
    """One epilogue step: its operands, the expression of the new running value, and the helpers that it calls."""

    operands: tuple[Matrix | Vector, ...]
    expression: str
    helpers: tuple[str, ...]


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

    @cached_property
    def v(self) -> Variant:
        return self.kernel.variant

    # The kernel.

    @cached_property
    def load_template(self) -> str:
        return f"load/{self.v.load}.j2"

    @cached_property
    def store_template(self) -> str:
        return f"load/{self.v.load if self.v.store == 'as_load' else self.v.store}.j2"

    @cached_property
    def swizzle(self) -> str:
        return self.v.swizzle

    @cached_property
    def group(self) -> str | None:
        """The table's column for the height or width of a band, where the order has bands."""
        return {"grouped": "GROUP_M", "grouped_n": "GROUP_N", "swizzle2d": "GROUP_M"}.get(self.v.swizzle)

    @cached_property
    def tiled(self) -> bool:
        """Whether a program computes a tile, rather than one element."""
        return self.v.schedule != "elementwise"

    @cached_property
    def descriptors(self) -> bool:
        return self.v.load == "descriptor"

    @cached_property
    def acc(self) -> str:
        return ELEMENTS[self.v.dtype.acc].triton

    @cached_property
    def acc_word(self) -> str:
        return self.v.dtype.acc

    @cached_property
    def epilogue_type(self) -> str:
        return "int32" if self.v.dtype.out == "int32" else "fp32"

    @cached_property
    def step(self) -> str:
        """The loop variable along K, `_` where nothing reads it."""
        return "k" if self.descriptors or (self.v.load == "pointer" and self.bound.k != "never") else "_"

    @cached_property
    def dot_options(self) -> str:
        dtype = self.v.dtype
        if dtype.a == "fp32":
            return f', input_precision="{dtype.precision}"'
        if dtype.precision == "full":
            deepest = max(tile.k for tile in self.kernel.tiles)
            return f", max_num_imprecise_acc={'BLOCK_K' if deepest <= 128 else 'BLOCK_K if BLOCK_K < 128 else 128'}"
        return f", out_dtype=tl.{self.acc}" if dtype.acc != "fp32" else ""

    @cached_property
    def guard_empty_k(self) -> bool:
        """Whether an unmasked load of all of K must be kept from an empty K."""
        return self.v.schedule == "naive" and self.v.load != "descriptor" and self.bound.k != "always"

    @cached_property
    def store_note(self) -> str:
        changed = self.v.dtype.out != (
            "int32" if self.epilogue_type == "int32" else "fp32" if self.steps else self.acc_word
        )
        return f", rounding to {self.v.dtype.out} once" if changed else ""

    @cached_property
    def operands(self) -> tuple[Matrix | Vector, ...]:
        """The operands of the epilogue, in the order of its steps."""
        return tuple(operand for step in self.steps for operand in step.operands)

    @cached_property
    def matrices(self) -> tuple[Matrix, ...]:
        """The M×N operands of the epilogue."""
        return tuple(o for o in self.operands if isinstance(o, Matrix))

    @cached_property
    def scalars(self) -> tuple[Vector, ...]:
        return tuple(o for o in self.operands if isinstance(o, Vector) and o.shape == SCALAR)

    @cached_property
    def pointed(self) -> tuple[Matrix, ...]:
        """The matrices addressed through strides, so that their offsets can pass 2**31."""
        everything = (self.a, self.b, self.c, *self.matrices)
        if self.descriptors:
            return everything[2:] if self.v.store == "pointer" else ()
        if self.v.load == "block_pointer":
            return (*((self.c,) if self.v.store == "pointer" else ()), *self.matrices)
        return everything

    @cached_property
    def wide_strides(self) -> tuple[str, ...]:
        names = [name for matrix in self.pointed for name, _ in matrix.strides]
        casts = [f"{name} = tl.cast({name}, INDEX)" for name in names]
        return ("# Strides are as wide as the offsets they make.", *casts) if casts else ()

    @cached_property
    def late_coordinates(self) -> bool:
        """Whether the epilogue or the store needs the coordinates that the loads did without."""
        return self.tiled and self.v.load != "pointer" and (self.needs_m or self.needs_n)

    @cached_property
    def needs_m(self) -> bool:
        return self._needs(ROWS)

    @cached_property
    def needs_n(self) -> bool:
        return self._needs(COLUMNS)

    def _needs(self, dimension: str) -> bool:
        if self.v.load == "pointer" or self.v.store == "pointer":
            return True
        shapes = {operand.shape for operand in self.v.epilogue.operands}
        return dimension in shapes or (MATRIX in shapes and self.v.load == "block_pointer")

    @cached_property
    def even(self) -> tuple[str, ...]:
        """The dimensions whose divisibility is a constexpr decided at the call."""
        kinds = {"M": self.bound.m, "N": self.bound.n, "K": self.bound.k}
        return tuple(d for d, kind in kinds.items() if kind == "call")

    @cached_property
    def helpers(self) -> tuple[str, ...]:
        """The macros of math.j2 that the epilogue calls."""
        return tuple(sorted({helper for step in self.steps for helper in step.helpers}))

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The kernel's parameters in order."""
        described = self.descriptors
        names = [f"{m.name}_{'desc' if described else 'ptr'}" for m in (self.a, self.b)]
        by_descriptor = described and self.v.store == "as_load"
        names.append("c_desc" if by_descriptor else "c_ptr")
        constants = ["INDEX"] if self.wide_strides else []
        for operand in self.operands:
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

    @cached_property
    def strided(self) -> tuple[Matrix, ...]:
        """The matrices whose strides are parameters."""
        if not self.descriptors:
            return (self.a, self.b, self.c, *self.matrices)
        return self.pointed

    @cached_property
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

    @cached_property
    def too_large(self) -> str:
        """Target -> the rows it is not offered, as source; empty where every target holds every row."""
        rows = ", ".join(f'"{target}": {rows}' for target, rows in self.kernel.not_offered)
        return f"{{{rows}}}" if rows else ""

    @cached_property
    def autotune(self) -> bool:
        return self.kernel.select == "autotune" and len(self.kernel.tiles) > 1

    @cached_property
    def choose(self) -> str | None:
        """The macro that chooses a row; the tuner chooses by itself."""
        if self.autotune:
            return None
        return "heuristic" if self.kernel.select == "heuristic" and len(self.kernel.tiles) > 1 else "fixed"

    @cached_property
    def imports(self) -> tuple[str, ...]:
        standard = ["import functools", ""] if self.choose == "heuristic" else []
        last = ["from triton.tools.tensor_descriptor import TensorDescriptor"] if self.descriptors else []
        return (*standard, "import torch", "import triton", "import triton.language as tl", *last)

    @cached_property
    def described(self) -> tuple[Matrix, ...]:
        """The matrices beside A and B that have descriptors."""
        return (self.c, *self.matrices) if self.descriptors and self.v.store == "as_load" else ()


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
    steps, result = _steps(v.epilogue, v.dtype, v.layout.c, v.schedule != "elementwise")
    return View(kernel, **matrices, bound=Dimensions(**kinds), inside=Dimensions(**inside), steps=steps, result=result)


@cache
def _steps(epilogue: Epilogue, dtype: Dtype, layout: str, tile: bool) -> tuple[tuple[StepView, ...], str]:
    """The epilogue's steps as a kernel spells them, on a tile or an element, and the expression that is stored.

    `layout` is C's, which the matrices among the operands share.
    """
    kind = dtype.acc
    x = "acc"
    steps = []
    for step in epilogue.steps:
        stays = kind == "int32" and formula.keeps_integers(step.tree)
        if not stays and kind != "fp32":
            x, kind = f"{x}.to(tl.float32)", "fp32"
        spellings = {local: _broadcast(operand, tile) for local, operand in step.operands}
        expression = formula.to_triton(step.tree, {formula.X: x, **spellings}, integer=stays)
        operands = tuple(_operand(operand, layout) for _, operand in step.operands)
        steps.append(StepView(operands, expression, formula.helpers(step.tree)))
        x = "x"
    if kind == dtype.out:
        return tuple(steps), x
    # Triton's interpreter cannot convert integers to bf16 in one step.
    first = ".to(tl.float32)" if kind == "int32" and dtype.out != "fp32" else ""
    return tuple(steps), f"{x}{first}.to(tl.{ELEMENTS[dtype.out].triton})"


def _broadcast(operand: Operand, tile: bool) -> str:
    if not tile:
        return operand.name
    return operand.name + {COLUMNS: "[None, :]", ROWS: "[:, None]"}.get(operand.shape, "")


def _operand(operand: Operand, layout: str) -> Matrix | Vector:
    if operand.shape == MATRIX:
        return Matrix(operand.name, operand.name, "M", "N", layout, "None")
    return Vector(operand.name, operand.shape)
