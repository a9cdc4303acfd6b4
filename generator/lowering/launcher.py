"""The host side of a kernel's file as its template reads it: a call, and the launch that answers it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property

from generator.cost import analytic
from generator.language.dtypes import ELEMENTS
from generator.language.vocabulary import INTERPRETED
from generator.lowering import docstrings
from generator.lowering.decoding import Decoding
from generator.lowering.launch import Launch
from generator.lowering.lines import INDENT, WIDTH, bracketed, collected, paragraph
from generator.lowering.outputs import OutputView
from generator.lowering.preconditions import Preconditions
from generator.lowering.view import View
from generator.plan.call import Argument
from generator.plan.configurations import STRIP


@dataclass(frozen=True)
class Launcher(Preconditions):
    """What `templates/launcher.j2`, `helpers.j2` and `select.j2` are given."""

    # The text of the call: its signature, its docstring, what it allocates.

    @property
    def signature(self) -> tuple[tuple[str, str], ...]:
        """The keywords of operands, each with its annotation."""
        named = self.call.keywords[len(self.call.positional) :]
        return tuple((x.name, "float | torch.Tensor" if x.number else "torch.Tensor") for x in named)

    @property
    def sentence(self) -> str:
        """What the docstring begins with, a line or several."""
        call = self.call
        made = f"a new {call.out.shape} tensor, or `out` filled."
        if call.reads_out:
            made = f"`out` {call.out.shape}, which is C and is read first."
        formula = docstrings.formula(self.kernel.v)
        text = f"{formula} for `a` {call.a.told} and `b` {call.b.told}: {made}"
        return paragraph(text, INDENT + len('"""'), " " * INDENT)

    @property
    def about_outputs(self) -> str:
        """What the docstring says of outputs, a line or several."""
        names = ", ".join(x.name for x in self.call.results)
        return paragraph(f"Returns ({names}): each of them as it is given, filled, or new.", INDENT)

    @property
    def annotation(self) -> str:
        """The type of what is returned."""
        tensors = ["torch.Tensor"] * len(self.call.results)
        return f"tuple[{', '.join(tensors)}]" if self.call.outputs else "torch.Tensor"

    @property
    def results(self) -> str:
        """The statement that names what is returned."""
        return collected("results = {", [f'"{x.name}": {x.name}' for x in self.call.results], "}", INDENT)

    @property
    def unlaunchable(self) -> str:
        """The head of the statement for a call that no kernel is launched for."""
        names = ["a", "b", *self._keywords[:-1]]
        return bracketed("if not _launchable(", [f"{name}={name}" for name in names], "):", INDENT)

    @property
    def sizes(self) -> str:
        """The launcher's variables for the sizes."""
        return ", ".join(self.call.sizes)

    @property
    def summed(self) -> str:
        """The size that is summed over."""
        return self.call.sizes[-1]

    @property
    def sized(self) -> str:
        """What the sizes are read from."""
        read = [x.name for x in (self.call.positional if self.call.products.divided == "K" else self.call.optional)]
        return ", ".join(("a", "b", *read))

    @property
    def empty(self) -> str:
        """The condition that there is nothing to compute."""
        return " or ".join(f"{size} == 0" for size in self.call.sizes[:-1])

    def allocation(self, x: Argument) -> str:
        """The expression for a new result."""
        if x.layout != "column":
            return f"torch.empty({x.shape}, dtype={x.torch_dtype}, device=a.device)"
        *front, rows, columns = x.extents
        shape, turned = ", ".join((*front, columns, rows)), ".mT" if front else ".T"
        return f"torch.empty(({shape}), dtype={x.torch_dtype}, device=a.device){turned}"

    # The functions of the file, and the calls of one by another.

    @property
    def plan_call(self) -> str:
        """The statement that asks for the plan."""
        return bracketed("launch = plan(", ["a", "b", *(f"{name}={name}" for name in self._keywords)], ")", INDENT)

    @property
    def plan_head(self) -> str:
        """The head of the function that makes it."""
        return self._head("plan", self._keywords)

    @property
    def refusal_call(self) -> str:
        """The statement that asks whether this kernel takes the operands."""
        names = (
            *(x.name for x in (*self.call.keywords, *self.call.optional)),
            "out",
            *(matrix.name for matrix in self.kernel.saved),
        )
        return bracketed("reason = refusal(", ["a", "b", *(f"{name}={name}" for name in names)], ")", INDENT)

    @property
    def refusal_head(self) -> str:
        """The head of the function that answers."""
        return self._head("refusal", self._keywords[:-1])

    @property
    def _keywords(self) -> tuple[str, ...]:
        return (*(x.name for x in (*self.call.keywords, *self.call.optional, *self.call.results)), "config")

    def _head(self, name: str, keywords: tuple[str, ...]) -> str:
        needed = {x.name for x in self.call.keywords}
        entries = [keyword if keyword in needed else f"{keyword}=None" for keyword in keywords]
        return bracketed(f"def {name}(", ["a", "b", "*", *entries], "):")

    # The launch: what the kernel is passed, its grid, and what happens before and after it.

    @cached_property
    def launches(self) -> tuple[Launch, ...]:
        """What is launched, one after the other."""
        k = self.kernel
        own = k.multiplying
        called = "kernel" if k.autotune else "gemm_kernel"
        multiplies = Launch(called, self.grid, own.slots, self._constants_of(own), ("**row",))
        if k.decoding is not None:
            d = k.decoding
            return Launch("decode_kernel", d.grid, d.slots, d.constants), multiplies
        if k.schedule.joins:
            of_row = (("BLOCK_M", str(STRIP)), ("BLOCK_N", 'row["BLOCK_N"]'), ("SPLIT", 'row["SPLIT"]'))
            constants = (*self._constants_of(k.second), *of_row)
            return multiplies, Launch("sum_kernel", self._strips, k.second.slots, constants)
        return (multiplies,)

    @property
    def reductions(self) -> tuple[OutputView, ...]:
        """The outputs that are made of the tiles' parts."""
        return tuple(output for output in self.kernel.outputs if output.reduced)

    @property
    def adds(self) -> bool:
        """Whether programs add to the result, which is zero before."""
        return self.kernel.schedule.splits and not self.kernel.schedule.workspace

    @property
    def workspace(self) -> str | None:
        """The type of the partial sums in the workspace that the launcher makes room for; None where there is none."""
        return self._sums if self.kernel.schedule.workspace and not self.twice else None

    @property
    def decoding(self) -> Decoding | None:
        """The kernel that makes the B that is multiplied."""
        return self.kernel.decoding

    @property
    def _sums(self) -> str:
        return f"torch.{ELEMENTS[self.kernel.v.dtype.sum].torch}"

    @property
    def twice(self) -> bool:
        """Whether there are two kernels, launched one after the other."""
        return self.kernel.schedule.twice

    @property
    def partial(self) -> str:
        """The expression for the room of partial sums that a second kernel adds: a matrix for each part of K."""
        if not self.kernel.schedule.joins:
            return ""
        return f'torch.empty((row["SPLIT"], M, {self.kernel.partial.columns}), dtype={self._sums}, device=a.device)'

    @property
    def _strips(self) -> str:
        """The grid of the kernel that adds partial sums, whose tiles are STRIP rows high."""
        return f'(triton.cdiv(M, {STRIP}) * triton.cdiv(N, row["BLOCK_N"]),)'

    @property
    def rows(self) -> str:
        """The rows of a tile of the kernel that makes the result."""
        return str(STRIP) if self.partial else 'row["BLOCK_M"]'

    @property
    def around(self) -> tuple[str, ...]:
        """What the plan says of the time before the launch and after it."""
        found = []
        if self.adds:
            found.append('cleared=["out"]')
        if self.workspace:
            found.append('workspace={"work": work, "counters": counters}')
        parts = [self.kernel.between.variable] * self.twice + [output.matrix.variable for output in self.reductions]
        if parts:
            found.append(collected("parts={", [f'"{name}": {name}' for name in parts], "}", 2 * INDENT))
        if self.reductions:
            reduced = [f'("{x.name}", torch.{x.reduction}, "{x.matrix.variable}")' for x in self.reductions]
            found.append(collected("reduced=[", reduced, "]", 2 * INDENT))
        return tuple(found)

    @property
    def index(self) -> str:
        """The statements that choose between offsets of 32 and of 64 bits; empty where no offset is computed."""
        extents = [f"_extent({variable})" for variable in dict.fromkeys(x.variable for x in self.kernel.pointed)]
        if not extents:
            return ""
        furthest = f"max({', '.join(extents)})" if len(extents) > 1 else extents[0]
        one = f"index = tl.int64 if {furthest} > 2**31 else tl.int32"
        if INDENT + len(one) <= WIDTH:
            return one
        first = bracketed("furthest = max(", extents, ")", INDENT)
        return f"{first}\nindex = tl.int64 if furthest > 2**31 else tl.int32"

    @property
    def grid(self) -> str:
        """The grid as source: one dimension, since the others hold 65535 programs, and one more for the parts of K."""
        k = self.kernel
        several = "".join(f"{count} * " for count in self.call.products.front)
        if not k.tiled:
            return f"({several}M * N,)"
        source = "meta" if k.autotune else "row"
        tiles = f'{several}triton.cdiv(M, {source}["BLOCK_M"]) * triton.cdiv(N, {source}["BLOCK_N"])'
        if self.call.products.divided == "M":
            tiles = f"_tiles({source}, G, T, N)"
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

    @property
    def nothing(self) -> str:
        """The matrices that stand for A and B where K is 0."""
        a, b = (f"new_zeros(({'1, ' * (len(x.extents) - 1)}16))" for x in (self.call.a, self.call.b))
        decodes = self.kernel.decoding is not None
        if a == b and (decodes or self.call.a.dtype == self.call.b.dtype):
            return f"(a.{a},) * 2"
        return f"(a.{a}, {'a' if decodes else 'b'}.{b})"

    def _constants_of(self, k: View) -> tuple[tuple[str, str], ...]:
        """What the launch of a kernel tells the compiler, by name."""
        # Few different numbers, since a kernel is compiled for each.
        found = [("GROUPS", "max(32, triton.next_power_of_2(G))")] if k.problem.divided else []
        found += [("INDEX", "index")] if k.pointed else []
        found += [(operand.flag, f"isinstance({operand.name}, torch.Tensor)") for operand in k.scalars]
        if k.approximates:
            found.append(("APPROX", "_approximates(a.device)"))
        if k.v.rounds_between and k.stage != "parts":
            # A compiler that sees two operations of 16 bits makes one of them, which rounds once.
            found.append(("enable_fp_fusion", "False"))
        return tuple(found)

    # What the choice of a configuration counts.

    @property
    def interpreted(self) -> int | None:
        """Programs that walk the tiles in the interpreter; None where each tile has a program."""
        return INTERPRETED if self.kernel.schedule.walks else None

    @property
    def packed(self) -> int:
        """The elements along K of one container of B."""
        return self._stored_b.packed

    @property
    def packed_a(self) -> int:
        """The elements along K of one container of A."""
        return self.kernel.kernel.variant.dtype.stored_a.packed

    @property
    def element_bytes(self) -> int:
        """Bytes of a container of A."""
        return analytic.width(self.kernel.v)

    @property
    def loaded_columns(self) -> str:
        """The columns of B that a tile loads, in elements of A's bytes."""
        return analytic.loaded_columns(self.kernel.v, "2 * n" if self.call.gated else "n")

    @property
    def result_bytes(self) -> int:
        return ELEMENTS[self.kernel.v.dtype.out].bits // 8

    @property
    def spread(self) -> tuple[str, ...]:
        """The statements for the sizes that the cost reads, where the launcher's are of all groups together."""
        divided = self.call.products.divided
        if not divided:
            return ()
        why = "# Only the device knows the groups: they are assumed to be of equal size."
        products = "max(1, min(G, T))" if divided == "M" else "G"
        read = any(re.search(rf"\b{divided}\b", line) for line in self.cost)
        return (why, f"B = {products}", *([f"{divided} = triton.cdiv(T, B)"] * read))

    @property
    def cost(self) -> tuple[str, ...]:
        """The lines of the function that predicts the cost of a configuration; of one product if M has no part."""
        v = self.kernel.v
        return analytic.cost_body(replace(v, batch="none") if self.kernel.kernel.rows_alike else v)

    @property
    def deciding(self) -> str:
        """The launcher's variables for the sizes on which the choice of a configuration depends."""
        return "N, K" if self.kernel.kernel.rows_alike else self.sizes

    @property
    def typical_m(self) -> tuple[int, ...]:
        """The values of M over which a configuration is chosen if a call's own M has no part in the choice."""
        return analytic.TYPICAL_M
