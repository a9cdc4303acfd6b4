"""What a kernel's template is given: finished names and typed values, every choice already made."""

from __future__ import annotations

import textwrap
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from generator.epilogue.gated_units import CONCATENATED
from generator.language.elements import ELEMENTS
from generator.language.model import Tile
from generator.language.vocabulary import SWIZZLE
from generator.language.word_traits import Products
from generator.lowering import approximate_math
from generator.lowering.accumulation import joined, taken_apart
from generator.lowering.decoding import Decoding
from generator.lowering.edges import Edges, edges_of
from generator.lowering.epilogue_lowering import EpilogueView
from generator.lowering.lines import INDENT, WIDTH, collected
from generator.lowering.operands import Matrix, Slot, TileBlock, Vector, parameters, stride_slots, wide_strides
from generator.plan.configurations import STRIP, configurations
from generator.plan.contract_call import ContractCall, call
from generator.plan.kernels import Kernel
from generator.plan.variant_rules import ragged

#: Tables of configurations as source, by the order of tiles, the schedule and the tiles, which many kernels share.
_configs: dict[tuple[str, str, tuple[Tile, ...]], str] = {}


@dataclass(frozen=True)
class View(EpilogueView):
    """A kernel as its template reads it; see the templates for the use of each."""

    #: What a kernel in front makes of the B of a call; None where the kernel reads that B itself.
    decoding: Decoding | None = None
    #: Which of two kernels it is: "parts" stores partial sums as its C, "whole" adds them; "dense" multiplies what
    #: `decoding` makes. Empty where one does all.
    stage: str = ""
    #: Texts of kernels that differ in the order of tiles alone.
    texts: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)

    def ordered(self, kernel: Kernel) -> View:
        """The view of a kernel that differs from this one's in the order of tiles alone, with what is worked out."""
        view = copy(self)
        object.__setattr__(view, "kernel", kernel)
        return view

    @cached_property
    def partial(self) -> Matrix:
        """What the first of two kernels writes: for each part of K a matrix of sums."""
        columns = f"2 * {self.c.columns}" if self.order else self.c.columns
        integer = not ELEMENTS[self.v.dtype.sum].floating
        return Matrix("sums", "sums", self.c.rows, columns, "row", "part", integer=integer)

    @property
    def first_sums(self) -> str:
        """The second kernel's pointer to the program's product in the sums of the first part of K."""
        return replace(self.partial, number="").base

    @property
    def multiplying(self) -> View:
        """The kernel that multiplies, of one or two."""
        if self.decoding is not None:
            return self.second
        return self.parts_of_k if self.schedule.joins else self

    @cached_property
    def parts_of_k(self) -> View:
        """The kernel that sums parts of K, of two."""
        by_column = self.order is None or (self.order == CONCATENATED and self.v.loading.pointers)
        by_column = by_column or (self.descriptors and self.reads_columns)
        edges = replace(self._edges_of(self.v.masking), needs_n=by_column)
        view = replace(self, stage="parts", c=self.partial, edges=edges, steps=(), kind=self.v.dtype.sum, result="acc")
        return replace(view, quantisation=None)

    @cached_property
    def second(self) -> View:
        """The kernel that makes the result: of sums, which it reads through pointers, or of the dense B."""
        if self.decoding is not None:
            return replace(self, stage="dense")
        # Its tiles are whole: as wide as the widest block, which need not divide what all blocks divide.
        masked = self.v.traits.side == "n" and ragged(self.v.masking)["n"] is False
        edges = self._edges_of("mn" if masked else self.v.masking)
        by_column = self.order is None or self.columns_of_chain
        edges = replace(edges, bound=replace(edges.bound, k="never"), needs_n=by_column)
        whole = {matrix.name: replace(matrix, parts=()) for matrix in (self.a, self.b)}
        return replace(self, stage="whole", edges=edges, a=whole["a"], b=whole["b"])

    def _edges_of(self, masking: str) -> Edges:
        """The edges of partial sums."""
        return edges_of(masking, self.v.schedule, self.v.load, "pointer", "", "", "")

    @property
    def sources(self) -> tuple[Matrix, ...]:
        """What the kernel sums: A and B, or the partial sums of a first kernel."""
        return (self.partial,) if self.stage == "whole" else (self.a, self.b, *self.stored)

    @property
    def whole_blocks(self) -> int:
        """As of the accumulation, which a kernel that adds partial sums has none of."""
        return 0 if self.stage == "whole" else super().whole_blocks

    @property
    def scales(self) -> tuple[Matrix, ...]:
        """The scales and zero points that the kernel reads."""
        return () if self.stage == "whole" else self.stored

    @property
    def stored_by_pointer(self) -> bool:
        """Whether C is stored through pointers, however A and B are loaded."""
        return self.v.store == "pointer" or self.stage == "parts"

    @property
    def of_sums(self) -> str:
        """The letter of the columns of partial sums, after which their offsets and their mask are called."""
        if self.order is None:
            return "n"
        return "b" if self.stage == "parts" and self.v.loading.pointers and self.b.pairs else "s"

    def columns_of_sums(self, part: TileBlock | None) -> str:
        """That letter, of the columns of a block of a tile with the end of its names."""
        own = self.of_sums == "b" and part is not None and part.side == "n"
        return f"{self.of_sums}{part.end if own and part is not None else ''}"

    def doubled(self, part: TileBlock | None) -> tuple[str, str]:
        """The first column of the partial sums of a tile, or of a block of it, with two for each of C; and how many."""
        first, size = ("pid_n * BLOCK_N", "BLOCK_N") if part is None or part.side == "m" else (part.start, part.size)
        return f"2 * {f'({first})' if ' + ' in first else first}", f"2 * {f'({size})' if ' ' in size else size}"

    @property
    def of_blocks(self) -> bool:
        """Whether what a block stores is addressed by the rows or columns that a tile divides."""
        return self.stage != "parts" or self.v.traits.side == "m" or self.of_sums == "n"

    @property
    def name_lines(self) -> tuple[str, ...]:
        """The kernel's name as lines of a comment: a long one is cut behind that of the contract."""
        width = WIDTH - INDENT - len("# ")
        name = self.v.name if len(self.v.name) <= width else self.v.name.replace("__", " __", 1)
        return tuple(textwrap.wrap(name, width))

    @property
    def width_of_sums(self) -> str:
        """The columns of a tile of the kernel that adds partial sums, a power of two."""
        return next(iter(self.v.traits.sizes_of_blocks)) if self.v.traits.side == "n" else "BLOCK_N"

    @cached_property
    def call(self) -> ContractCall:
        """The operands and results of a call, as the launcher checks them."""
        return call(self.kernel.variant)

    @property
    def problem(self) -> Products:
        """How many products there are, and how the operands hold them."""
        return self.v.products

    @property
    def swizzle(self) -> str:
        return self.v.swizzle

    @property
    def columns(self) -> tuple[str, ...]:
        """The table's columns that the order of tiles and the schedule read."""
        return (*SWIZZLE[self.swizzle].columns, *self.v.traits.sizes_of_blocks, *self.v.traits.columns)

    @property
    def step(self) -> str:
        """The loop variable along K, `_` where nothing reads it."""
        masked = self.v.loading.pointers and self.edges.bound.k != "never"
        return "k" if self.descriptors or masked or self.step_factors or self.awaited else "_"

    @property
    def read_step(self) -> int | None:
        """What N must be a multiple of for a descriptor to read the second half of B's rows; None for any N."""
        across = self.descriptors and self.order == CONCATENATED and self.v.layout.b == "row"
        return 128 // self.v.dtype.stored_b.bits if across else None

    @property
    def advances(self) -> bool:
        """Whether the loads leave something to move along K."""
        return not self.descriptors and self.v.traits.looped

    @property
    def guard_empty_k(self) -> bool:
        """Whether an unmasked load of all of K must be kept from an empty K."""
        return not self.v.traits.looped and not self.v.loading.descriptors and self.edges.bound.k != "always"

    @cached_property
    def pointed(self) -> tuple[Matrix | Vector, ...]:
        """What is addressed through strides, so that its offsets can pass 2**31."""
        if self.schedule.twice and not self.stage:
            first = self.parts_of_k if self.decoding is None else self.decoding
            return tuple(dict.fromkeys((*first.pointed, *self.second.pointed)))
        by_pointer = self.v.loading.pointers or (self.v.loading.blocks and self.problem.several)
        apart = (*self.parts, *self.scales_of_c)
        beside: tuple[Matrix | Vector, ...] = (self.c, *self.matrices, *self.vectors, *self.saved, *apart)
        if self.descriptors:
            beside = beside if self.stored_by_pointer else (*self.vectors, *self.halved, *apart)
        elif not by_pointer:
            c = (self.c,) if self.stored_by_pointer or self.v.epilogue.reads_out else ()
            beside = (*c, *self.matrices, *(self.saved if self.stored_by_pointer else self.halved), *apart)
        return (*(self.sources if by_pointer or self.stage == "whole" else self.scales), *beside)

    @cached_property
    def wide_strides(self) -> tuple[str, ...]:
        return wide_strides(self.pointed)

    @cached_property
    def late_coordinates(self) -> bool:
        """Whether the epilogue or the store needs the coordinates that the loads did without."""
        late = self.tiled and not self.v.loading.pointers and (self.edges.needs_m or self.edges.needs_n)
        return late and self.stage != "whole" and not self.early_coordinates

    @property
    def edges_of_blocks(self) -> Edges:
        """The edges of further blocks of a tile, of which the other side is known."""
        rows = bool(self.a.parts)
        return replace(self.edges, needs_m=rows, needs_n=not rows and self.edges.needs_n)

    def handed_on(self, part: TileBlock) -> tuple[str, ...]:
        """The statements that make the sums of a block those of the epilogue, or of the partial sum that is stored."""
        if self.order is None or (self.stage == "parts" and self.order != CONCATENATED):
            return (f"acc = acc{part.end}",)
        rows, columns = (part.size, "BLOCK_N") if part.side == "m" else ("BLOCK_M", part.size)
        if self.stage == "parts":
            return joined(rows, self.doubled(part)[1], part.end)
        if self.order == CONCATENATED:
            return f"acc_gate = acc_gate{part.end}", f"acc_up = acc_up{part.end}"
        return taken_apart(rows, columns, part.end)

    @property
    def inside_of_blocks(self) -> str:
        """The mask of the side that a tile divides; empty where it has none."""
        return self.edges.inside.m if self.a.parts else self.edges.inside.n

    @cached_property
    def even(self) -> tuple[str, ...]:
        """The dimensions whose divisibility is a constexpr decided at the call."""
        kinds = {"M": self.edges.bound.m, "N": self.edges.bound.n, "K": self.edges.bound.k}
        return tuple(d for d, kind in kinds.items() if kind == "call")

    def multiple_of(self, dimension: str) -> str:
        """The table's column that must divide a dimension for it to be compiled without its mask.

        A symmetric result has blocks of BLOCK_N by BLOCK_N elements, of which tiles past the last row are a part.
        """
        return f"BLOCK_{'N' if dimension == 'M' and self.v.symmetric else dimension}"

    @property
    def helpers(self) -> tuple[str, ...]:
        """The macros of math.j2 for what the order of tiles, the epilogue and the store call."""
        order = SWIZZLE[self.v.swizzle].helper if self.tiled else None
        larger = "larger" if self.problem.divided else None
        called = sorted({helper for step in self.steps for helper in step.helpers})
        stored = () if self.quantisation is None else self.quantisation.helpers
        needed = (larger, order, *called, self.quantises, *stored)
        return tuple(dict.fromkeys(helper for helper in needed if helper))

    @property
    def approximates(self) -> bool:
        """Whether the kernel is told of the hardware's approximate instructions."""
        return approximate_math.applies(self.v) and self.stage != "parts"

    @property
    def sizes(self) -> tuple[str, ...]:
        """The sizes that the kernel is told: of a batch the grid tells enough, unless programs walk it."""
        counted = self.schedule.walks or self.problem.divided
        sizes = (*(self.problem.front if counted else ()), *self.problem.sizes[-3:])
        return sizes[:-1] if self.stage == "whole" else sizes

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """The kernel's parameters that are no constants, in order."""
        described = {matrix.name for matrix in self.described}

        def slot(x: Matrix | Vector) -> Slot:
            if isinstance(x, Matrix) and x.name in described:
                block = x.described(str(STRIP), width=self.width_of_sums) if self.stage == "whole" else x.described()
                return Slot(f"{x.name}_desc", block)
            return x.slot

        if self.stage == "whole":
            slots = [slot(self.partial)]
        elif self.descriptors:
            slots = [Slot(name, self.a.described(size)) for name, size in self.a.descriptors]
            slots += [Slot(name, self.b.described(size)) for name, size in self.b.descriptors]
        else:
            slots = [slot(self.a), slot(self.b)]
        gathered = self.a.gathered and self.stage != "whole"
        passed = {"rows": gathered, "scatter": self.c.scattered}
        divided = (*self.call.positional, *(x for x in self.call.optional if passed[x.name]))
        slots += [Slot(f"{x.name}_ptr", x.name) for x in divided]
        written = (*self.saved, *self.parts, *self.scales_of_c)
        slots += [slot(x) for x in (*self.scales, self.c, *self.operands, *written)]
        if self.schedule.workspace and not self.schedule.joins:
            slots += [Slot(f"{name}_ptr", name) for name in ("work", "counters")]
        named = (*["R"] * gathered, *["S"] * self.c.scattered)
        slots += [Slot(size, self.call.named(size)) for size in (*self.sizes, *named)]
        return (*slots, *stride_slots(self.strided))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The kernel's parameters in order."""
        constants = ["GROUPS"] if self.problem.divided else []
        constants += ["INDEX"] if self.wide_strides else []
        constants += [operand.flag for operand in self.scalars]
        constants += ["APPROX"] if self.approximates else []
        constants += [f"EVEN_{d}" for d in self.even]
        constants += ["WHOLE_BLOCKS"] if self.whole_blocks else []
        if self.stage == "whole":
            constants += ["BLOCK_M", "BLOCK_N", "SPLIT"]
        elif self.tiled:
            constants += ["BLOCK_M", "BLOCK_N", "BLOCK_K", *self.columns, *["num_stages"] * self.summed]
        return parameters(self.slots, constants)

    @cached_property
    def strided(self) -> tuple[Matrix | Vector, ...]:
        """What has strides that are parameters."""
        if self.descriptors:
            return self.pointed
        written = (*self.saved, *self.parts, *self.scales_of_c)
        return (*self.sources, self.c, *self.matrices, *self.vectors, *written)

    @property
    def configs(self) -> str:
        """The rows of the tile table as source."""
        v = self.kernel.variant
        key = v.swizzle, v.schedule, self.kernel.tiles
        if key not in _configs:
            rows = configurations(self.kernel)
            each = (collected("{", [f'"{name}": {x}' for name, x in row.items()], "}", INDENT) for row in rows)
            _configs[key] = ",\n".join(each)
        return _configs[key]

    @cached_property
    def too_large(self) -> str:
        """Target -> the rows it is not offered, as source; empty where every target holds every row."""
        rows = ", ".join(f'"{target}": {rows}' for target, rows in self.kernel.not_offered)
        return f"{{{rows}}}" if rows else ""

    @property
    def autotune(self) -> bool:
        return self.kernel.select == "autotune" and len(self.kernel.tiles) > 1

    @property
    def choose(self) -> str | None:
        """The macro that chooses a row; the tuner chooses by itself."""
        if self.autotune:
            return None
        if self.kernel.select == "fixed" or len(self.kernel.tiles) == 1:
            return "fixed"
        # By a table the family's function chooses; a kernel called by itself computes its row.
        return "rows_alike" if self.kernel.rows_alike else "heuristic"

    @cached_property
    def described(self) -> tuple[Matrix, ...]:
        """The matrices beside A and B that have descriptors."""
        copied = (self.c, *self.matrices, *(matrix for matrix in self.saved if matrix not in self.halved))
        return copied if self.descriptors and not self.stored_by_pointer else ()
