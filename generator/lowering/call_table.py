"""The call of a kernel as its file has it, `CALL`: a table of values of `generator.runtime`, as source."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from generator.cost import analytic
from generator.language.elements import ELEMENTS
from generator.language.targets import TARGETS
from generator.language.vocabulary import SWIZZLE
from generator.lowering import docstrings
from generator.lowering.decoding import MOST_DECODED
from generator.lowering.lines import INDENT, bracketed, paragraph
from generator.lowering.outputs import OutputView
from generator.lowering.runtime_values import LaunchTable, argument, called, entries, imports, index, keyword
from generator.lowering.view import View
from generator.plan.configurations import STRIP
from generator.plan.contract_call import Argument, ContractCall
from generator.plan.memory_needs import needs_of
from generator.plan.resources import widest_band
from generator.plan.target_rules import packed_from_sm90, scaling_targets

#: The most tiles of several products: programs have numbers of 32 bits.
_MOST_TILES = "2**31 - 2**16"

#: A descriptor that a kernel is passed: its tensor, and the rest.
DESCRIBED = re.compile(r"described\((\w+)(.*)\)$")


@dataclass(frozen=True)
class CallTable:
    """What `templates/call.j2` is given."""

    kernel: View
    #: The imports of the standard library: those of a file that stands alone.
    first_imports = ()

    @property
    def call(self) -> ContractCall:
        return self.kernel.call

    # The function `gemm`.

    @property
    def head(self) -> str:
        """The head of `gemm`."""
        return bracketed("def gemm(", [*parameters(self.call), "config: Config = None"], f") -> {returned(self.call)}:")

    @property
    def docstring(self) -> str:
        """The docstring of `gemm`, without quotes."""
        call = self.call
        result = f"a new {call.out.description} tensor, or `out` filled."
        if call.reads_out:
            result = f"`out` {call.out.description}, which is C and is read first."
        elif call.outputs:
            results = ", ".join(f"`{x.name}` {x.description}" for x in call.results)
            result = f"({results}), each as it is given, filled, or new."
        formula = docstrings.formula(self.kernel.v)
        text = f"{formula} for `a` {call.a.description} and `b` {call.b.description}: {result}"
        first = paragraph(text, INDENT + len('"""'), " " * INDENT)
        shared = "No result may alias an operand" + " or another result" * bool(call.outputs)
        if call.reads_out:
            shared += ". `out` must be given; it is read, so a second call gives another result"
        rest = f"{shared}. `config`, an element of CONFIGS or its index, replaces the choice by size."
        return f"{first}\n\n{' ' * INDENT}{paragraph(rest, INDENT, ' ' * INDENT)}\n{' ' * INDENT}"

    @property
    def returned(self) -> str:
        """The statement that runs the call."""
        names = [x.name for x in (*self.operands, *self.call.results)]
        return bracketed("return CALL(", ["config", *(f"{name}={name}" for name in names)], ")", INDENT)

    # The table.

    @cached_property
    def text(self) -> str:
        """The statement that assigns the table."""
        reductions = [
            f'Reduction("{x.name}", "{x.matrix.variable}", "{x.reduction}"{", along=False" * x.single})'
            for x in self.reductions
        ]
        arguments = ["CONFIGS"]
        arguments += entries("operands", [self._operand(x) for x in self.operands])
        arguments += entries("results", [self._result(x) for x in self.call.results])
        arguments += entries("launches", [launch.text for launch in self.launches])
        arguments += [self._choice] if self._choice else []
        arguments += self._conditions("refuse", [*self.needs, *self.undescribed])
        arguments += self._conditions("fits", _written(self.fitting))
        arguments += ["needs=needs_of(__name__)"] * bool(needs_of(self.kernel.kernel))
        arguments += ["too_large=TOO_LARGE"] * bool(self.kernel.too_large)
        arguments += [self._programs] if self.kernel.schedule.walks else []
        arguments += entries("memory", _written(self.memory))
        arguments += ['cleared=("out",)'] * self.adds
        arguments += entries("reduced", reductions)
        if self.kernel.autotune:
            arguments.append(f"tuner=Tuner({self.reset})")
        return called("CALL = Call(", arguments, ")")

    @cached_property
    def imports(self) -> tuple[str, ...]:
        """The imports of what the table and `gemm` use of the family's library."""
        shared = ["from ._shared_memory import needs_of"] * ("needs_of(" in self.text)
        return (*imports(f"{self.text}\n{self.head}"), *shared)

    @property
    def fitting(self) -> list[tuple[str, ...]]:
        """What a configuration needs of the sizes: a function, and its arguments."""
        sizes = dict(zip("MNK", self.call.sizes[-3:]))
        conditions: list[tuple[str, ...]] = []
        conditions += [("multiple", sizes[d], f"BLOCK_{d}", f'"{sizes[d]}: BLOCK_{d} needs"') for d in self.divided]
        v, band = self.kernel.v, SWIZZLE[self.kernel.v.swizzle].band
        if band and any(tile.group > widest_band(v, tile) for tile in self.kernel.kernel.tiles):
            along = "N" if band == "GROUP_M" else "M"
            subject = '"the tiles of a band, which have numbers of 32 bits, are"'
            conditions.append(("at_most", f"{band} * cdiv({sizes[along]}, BLOCK_{along})", "2**31 - 1", subject))
        if not self.kernel.schedule.looped:
            conditions.append(("at_most", sizes["K"], "BLOCK_K", f'"{sizes["K"]}: one load of BLOCK_K holds"'))
        return conditions

    def _conditions(self, name: str, conditions: list[str]) -> list[str]:
        """The keyword argument that is the first of the reasons, if there are any."""
        return [keyword(name, f"first({', '.join(conditions)})", INDENT)] if conditions else []

    @property
    def operands(self) -> tuple[Argument, ...]:
        """The operands in the order of the signature."""
        return (self.call.a, self.call.b, *self.call.keywords, *self.call.optional)

    def _operand(self, x: Argument) -> str:
        # Without rows the products have those of A.
        absent = {self.call.rows: self.call.a.extents[0], self.call.scatter: "T"}
        return argument(x, *([f'absent="{absent[x]}"'] if x in absent else []))

    def _result(self, x: Argument) -> str:
        more = ["read=True"] * (x is self.call.out and self.call.reads_out)
        if self.call.scatter is not None and x in (self.call.out, self.call.out_scale):
            return argument(x, *more, f'named="{self.call.scatter.name}"', kind="Scattered")
        return argument(x, *more)

    # The launches: what kernels are passed, their grids, and what is allocated for them.

    @cached_property
    def launches(self) -> tuple[LaunchTable, ...]:
        """What is launched, one after the other."""
        k = self.kernel
        own = k.multiplying
        multiplies = LaunchTable("gemm_kernel", self.grid, own.slots, self._constants_of(own), True)
        if k.decoding is not None:
            d = k.decoding
            return LaunchTable("decode_kernel", d.grid, d.slots, (self._index, *d.constants), False), multiplies
        if k.schedule.joins:
            of_row = (("BLOCK_M", str(STRIP)), ("BLOCK_N", k.width_of_sums), ("SPLIT", "SPLIT"))
            constants = (*self._constants_of(k.second), *of_row)
            strips = f"({self._tiles_of(str(STRIP), k.width_of_sums)},)"
            return multiplies, LaunchTable("sum_kernel", strips, k.second.slots, constants, False)
        return (multiplies,)

    @property
    def grid(self) -> str:
        """The grid: one dimension, since the others hold 65535 programs, and one more for the parts of K."""
        schedule = self.kernel.schedule
        if not self.kernel.tiled:
            return f"({self._several}M * N,)"
        tiles = self._tiles_of("BLOCK_M")
        if schedule.walks_steps:
            return "(PROGRAMS,)"
        if self.kernel.schedule.walks:
            tiles = f"least({tiles}, PROGRAMS)"
        return f"({tiles}, SPLIT)" if schedule.splits else f"({tiles},)"

    @property
    def _several(self) -> str:
        """The number of products as a factor in front of another; empty for one."""
        return "".join(f"{count} * " for count in self.call.products.front)

    def _tiles_of(self, rows: str, columns: str = "BLOCK_N") -> str:
        """How many tiles of such rows and columns all results have; a symmetric one has those of a folded triangle."""
        if self.call.products.divided == "M":
            # Each group may end within a tile, and none has more rows of tiles than rows.
            return f"least(T, cdiv(T, {rows}) + G) * cdiv(N, {columns})"
        if self.call.square:
            return f"{self._several}cdiv(M, 2 * BLOCK_N) * (BLOCK_N // {rows}) * (cdiv(M, BLOCK_N) // 2 * 2 + 1)"
        return f"{self._several}cdiv(M, {rows}) * cdiv(N, {columns})"

    @property
    def _index(self) -> tuple[str, str]:
        """The constant that says how wide offsets are."""
        return index(x.variable for x in self.kernel.pointed)

    def _constants_of(self, k: View) -> tuple[tuple[str, str], ...]:
        """What the launch of a kernel tells the compiler, by name."""
        # Few different numbers, since a kernel is compiled for each.
        constants = [("GROUPS", "next_power(G, 32)")] if k.problem.divided else []
        constants += [self._index] if k.pointed else []
        constants += [(operand.flag, f"on_device({operand.name})") for operand in k.scalars]
        if k.approximates:
            constants.append(("APPROX", "approximate(a)"))
        if k.v.rounds_between and k.stage != "parts":
            # A compiler that sees two operations of 16 bits makes one of them, which rounds once.
            constants.append(("enable_fp_fusion", "False"))
        return tuple(constants)

    @property
    def reductions(self) -> tuple[OutputView, ...]:
        """The outputs that are made of the tiles' parts."""
        return tuple(output for output in self.kernel.outputs if output.reduced)

    @property
    def adds(self) -> bool:
        """Whether programs add to the result, which is zero before."""
        return self.kernel.schedule.splits and not self.kernel.schedule.workspace

    @property
    def workspace(self) -> bool:
        """Whether programs share partial sums through memory that calls keep."""
        return self.kernel.schedule.workspace and not self.kernel.schedule.twice

    @property
    def reset(self) -> str:
        """What an autotuner sets to zero before each trial, as source."""
        return '"counters_ptr"' if self.workspace else '"c_ptr"' if self.adds else ""

    @property
    def memory(self) -> list[tuple[str, ...]]:
        """What is allocated for a call beside its results: a class, and its arguments."""
        k, memory = self.kernel, list[tuple[str, ...]]()
        sums = f"torch.{ELEMENTS[k.v.dtype.sum].torch}"
        if k.decoding is not None:
            d = k.decoding
            unit = "1" if d.dense.layout == "row" else "0"
            parameters = f'"{d.dense.name}"', f'"K {_word(d.columns)}"', d.torch_dtype
            memory.append(("Memory", *parameters, f"unit={unit}", f"pitch={d.pitch}"))
        if k.schedule.joins:
            rows, columns = self.call.sizes[-3], self.call.named(k.partial.columns)
            memory.append(("Memory", '"sums"', f'"SPLIT {rows} {_word(columns)}"', sums))
        for output in self.reductions:
            front = "B " if output.matrix.batched else ""
            rows, columns = (str(STRIP), k.width_of_sums) if k.schedule.joins else ("BLOCK_M", "BLOCK_N")
            side = columns if output.across == "N" else rows
            tiles = f"{front}cdiv({output.across},{side}) {output.shape}"
            memory.append(("Memory", f'"{output.matrix.variable}"', f'"{tiles}"', "torch.float32"))
        if self.workspace:
            count = 4 if self.call.gated else 2
            tiles = '"cdiv(M,BLOCK_M)*cdiv(N,BLOCK_N)"'
            memory.append(("Workspace", '"work"', f'"{count}*PROGRAMS*BLOCK_M*BLOCK_N"', sums))
            memory.append(("Workspace", '"counters"', tiles, "torch.int32", "cleared=True"))
        return memory

    @property
    def program(self) -> tuple[str, str]:
        """The bytes of shared memory and of registers that a program needs."""
        k = self.kernel
        loaded = analytic.loaded_columns(k.v, "2 * BLOCK_N" if self.call.gated else "BLOCK_N")
        shared = f"(BLOCK_M + {loaded}) * BLOCK_K * num_stages * {analytic.width(k.v)}"
        if k.described:
            shared += f" + BLOCK_M * BLOCK_N * {ELEMENTS[k.v.out].bits // 8}"
        # The accumulators may use two thirds of the registers.
        return shared, f"BLOCK_M * BLOCK_N * {12 if self.call.gated else 6}"

    @property
    def _programs(self) -> str:
        """How many programs run at once."""
        shared, registers = map(_word, self.program)
        # Behind it is a comma.
        return bracketed("programs=Occupancy(", [f'shared="{shared}"', f'registers="{registers}"'], ")", INDENT + 1)

    # What the kernel needs of a call.

    @property
    def divided(self) -> tuple[str, ...]:
        """The dimensions that must be multiples of the tile."""
        k = self.kernel
        kinds = (("M", k.edges.bound.m), ("N", k.edges.bound.n), ("K", k.edges.bound.k))
        sizes = tuple(d for d, kind in kinds if kind == "never") if k.tiled and not k.descriptors else ()
        # Of a symmetric result M is N, and BLOCK_N a multiple of BLOCK_M.
        return tuple(d for d in sizes if not (d == "M" and self.call.square and "N" in sizes))

    @property
    def limits(self) -> list[tuple[str, ...]]:
        """The conditions on a call that its contract does not have: a function, and its arguments."""
        k = self.kernel
        sizes, front = dict(zip("MNK", self.call.sizes[-3:])), "".join(f"{x} * " for x in self.call.products.front)
        limits: list[tuple[str, ...]] = []
        if k.v.loading.blocks:
            limits.append(("older", "(3, 9)", '"block pointers"'))
        if k.descriptors:
            limits.append(("capability", "a", '"descriptors need an NVIDIA GPU from sm90 on"', "least=(9, 0)"))
        packed = packed_from_sm90(k.kernel.variant)
        if packed is not None:
            limits.append(("capability", "a", f'"{packed}: take the exchanged one"', "least=(9, 0)", "inverted=True"))
        if k.v.dtype.native:
            able = scaling_targets(k.v)
            majors = "".join(f"{TARGETS[target].capability // 10}, " for target in able)
            majors = majors.rstrip() if len(able) == 1 else majors.rstrip(", ")
            limits.append(("capability", "a", f'"a scaled product needs {" or ".join(able)}"', f"majors=({majors})"))
        if k.descriptors and self.call.rows is not None:
            limits.append(("absent", "rows", '"descriptors copy neighbouring rows of a, and rows names others"'))
        if k.described:
            size = sizes["N" if k.c.layout == "row" else "M"]
            limits.append(("multiple", size, str(128 // ELEMENTS[k.v.out].bits), f'"{size}: a descriptor writes"'))
        if k.read_step:
            limits.append(("multiple", "N", str(k.read_step), '"N: a descriptor reads the second half of b at"'))
        if k.kernel.variant.dtype.fragments:
            together = str(k.kernel.variant.dtype.together)
            limits.append(("multiple", "K", together, '"K: b in fragments has"'))
        if k.decoding is not None:
            limits.append(("at_most", k.decoding.bytes, str(MOST_DECODED), '"the bytes of a decoded b are"'))
        if not k.schedule.repeatable:
            limits.append(("unrepeatable", f'"{k.v.schedule}"'))
        if not k.tiled:
            limits.append(("at_most", f"{front}M * N", "2**31 - 1", '"a grid with one program an element has"'))
        if front:
            limits.append(("at_most", self._smallest_tiles, _MOST_TILES, '"the number of tiles is"'))
        return limits

    @property
    def needs(self) -> list[str]:
        """Those conditions as source."""
        return _written(self.limits)

    @property
    def undescribed(self) -> list[str]:
        """What descriptors need of the tensors of a call; those that are allocated for it suit always."""
        values = dict.fromkeys(slot.value for launch in self.launches for slot in launch.slots)
        matches = (DESCRIBED.match(value) for value in values)
        named = dict.fromkeys((x[1], ", turned=True" * ("turned" in x[2])) for x in matches if x is not None)
        never = {"decoded", "sums"}
        return [f'undescribed("{name}", {name}{turned})' for name, turned in named if name not in never]

    @property
    def _smallest_tiles(self) -> str:
        """How many tiles of 16 by 16, the smallest, several products have at most."""
        if self.call.products.divided == "M":
            return "(cdiv(T, 16) + G) * cdiv(N, 16)"
        return f"{self.call.products.count} * cdiv(M, 16) * cdiv({self.call.named('N')}, 16)"

    # The choice of a configuration.

    @property
    def _choice(self) -> str:
        if self.kernel.choose in (None, "fixed"):
            return ""
        if self.kernel.choose == "rows_alike":
            return f"choose=cheapest(cost, {analytic.TYPICAL_M})"
        return "choose=cheapest(cost)"

    @property
    def cost_head(self) -> str:
        """The head of the function that predicts the cost of a configuration; empty where there is no choice."""
        if not self._choice:
            return ""
        sizes = ("M", "N", "K") if self.kernel.kernel.rows_alike else self.call.products.sizes
        return f"def cost(row, {', '.join(sizes)}, multiprocessors, shared):"

    @property
    def cost(self) -> tuple[str, ...]:
        """The lines of that function; for one product if M has no part."""
        v = self.kernel.v
        lines = analytic.cost_body(replace(v, batch="none") if self.kernel.kernel.rows_alike else v)
        divided = "" if self.kernel.kernel.rows_alike else self.call.products.divided
        if not divided:
            return lines
        why = "# Only the device knows the groups: they are assumed to be of equal size."
        products = "max(1, min(G, T))" if divided == "M" else "G"
        read = any(re.search(rf"\b{divided}\b", line) for line in lines)
        return (why, f"B = {products}", *([f"{divided} = triton.cdiv(T, B)"] * read), *lines)


def _written(calls: Iterable[tuple[str, ...]]) -> list[str]:
    """Calls of functions, each with its arguments, as source."""
    return [f"{name}({', '.join(arguments)})" for name, *arguments in calls]


def _word(extent: str) -> str:
    """An extent as a word of a shape."""
    return extent.replace(" ", "")


def parameters(call: ContractCall, *, read: bool = False) -> list[str]:
    """The parameters of the function of a call, but for the configuration.

    With `read` an `out` that the epilogue reads has no default. Without, the call itself says that it is missing.
    """
    needed = [f"{x.name}: {'float | Tensor' if x.number else 'Tensor'}" for x in call.keywords]
    front = len(call.positional)
    given = (call.out,) if read and call.reads_out else ()
    needed += [f"{x.name}: Tensor" for x in given]
    optional = [f"{x.name}: Tensor | None = None" for x in (*call.optional, *call.results) if x not in given]
    return ["a: Tensor", "b: Tensor", *needed[:front], "*", *needed[front:], *optional]


def returned(call: ContractCall) -> str:
    """The type of what the function of a call returns."""
    count = len(call.results)
    return "Tensor" if count == 1 else f"tuple[{', '.join(['Tensor'] * count)}]"
