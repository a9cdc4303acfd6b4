"""What the launcher passes to the kernel, and what holds whenever it does, read from its source."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from generator.bounds import configuration_choice, groups, helpers
from generator.bounds import sharing as dealing
from generator.bounds.gemm_statements import OF_ROW, Gemm
from generator.bounds.helpers import SIZES
from generator.bounds.launch_tensors import Operand
from generator.bounds.patterns import dotted, matched, matches
from generator.bounds.plain_arithmetic import condition_of, number_of
from generator.bounds.source import ADDS, DECODES, NotUnderstood, Refuted, Source
from generator.bounds.symbolic_values import Descriptor, Dtype, Either, Number, Opaque, Pointer, Truth, Value
from generator.bounds.terms import Condition, Poly, at_most, below, equal, poly, variable
from generator.bounds.triton_semantics import PART, SECOND_AXIS, TILES

#: What the launcher makes room for: partial sums of every program, and a counter for each tile, at zero when a kernel
#: starts.
WORK, COUNTERS = "work", "counters"


#: As many programs as the device holds, of a row that is chosen, or that the tuner tries.
_PROGRAMS = ("_programs(row, a.device)", "_programs(meta, a.device)")
#: What a launch tells the compiler alone: how it computes, and not where it reads or writes.
_OPTIONS = ("enable_fp_fusion",)
#: Arguments of an operand's address, or of its value.
_OWNED = (Pointer, Descriptor, Either)


@dataclass(frozen=True)
class Launch:
    """A launch with one row of CONFIGS: the parameters' values, the tiles' number as a product, what holds."""

    arguments: Mapping[str, Value]
    #: What addresses may lie in: the launcher's operands, and what it makes room for.
    operands: Mapping[str, Operand]
    grid: tuple[Poly, ...]
    facts: tuple[Condition, ...]
    #: How many matrices have that many tiles, None where there is no batch.
    batch: Poly | None
    #: Whether these are the tiles of a group, of which only the device knows how many there are.
    grouped: bool
    #: The programs that share a tile, along the grid's second axis.
    sharing: int
    #: Whether there are at most as many programs as tiles, and at least one, which walk the tiles; else as many.
    walks: bool
    #: Whether there are any number of programs, at least one, that deal the tiles' steps out among them.
    deals: bool
    #: The step along K.
    depth: int


@dataclass(frozen=True)
class _Programs:
    """The programs of a grid as the launcher writes it: how many tiles there are, and as in `Launch`."""

    tiles: ast.expr
    walks: bool = False
    deals: bool = False
    sharing: ast.expr | None = None


class Launcher(Gemm):
    """What `gemm` launches, a launch for each row of CONFIGS."""

    def bind(self, row: Mapping[str, int]) -> Launch:
        """The launch with this row."""
        names = {name: variable(name) for name in SIZES}
        table = {key: poly(number) for key, number in row.items()}
        parameters = [parameter.arg for parameter in self.source.kernel.args.args]
        own = {name: table[name] for name in parameters if name in table}
        if not self.source.configured:
            told = {name: value for name, value in self.arguments.items() if name in OF_ROW}
            own = {name: number_of(value, {}, {"row": table}) for name, value in told.items()}
        arguments = self._passed | {name: Number(number) for name, number in own.items()}
        sizes = {name: value.value for name, value in arguments.items() if isinstance(value, Number)}
        for name, rule in self._derived.items():
            arguments[name] = Truth(condition_of(rule, {}, {"args": sizes}))
        facts = list(self.facts)
        if self._demanded is not None:
            facts.append(condition_of(self._demanded, names, {"row": table}))
        grid = tuple(number_of(factor, names, {"row": table, "meta": table}) for factor in self._grid)
        batch = None
        if self.sizes in (helpers.BATCH, helpers.GROUPS_OF_K):
            batch, *rest = grid
            grid = tuple(rest)
            if batch != names[self.sizes[0]]:
                raise NotUnderstood(self.line, f"a grid of {batch} matrices")
        operands, sharing = dict(self.operands), 1
        for name, extents in self.parts.items():
            shape = tuple(number_of(extent, names, {"row": table}) for extent in extents)
            operands[name] = replace(operands[name], shape=shape)
        if self._programs.sharing is not None:
            shared = number_of(self._programs.sharing, {}, {"row": table, "meta": table}).constant
            if shared is None or shared < 1:
                raise NotUnderstood(self.line, "a number of programs to a tile that the row does not say")
            sharing = shared
            arguments[SECOND_AXIS] = Number(variable(PART), width="32")
            facts += [at_most(0, variable(PART)), below(variable(PART), poly(sharing))]
        if self._workspace:
            if not self._programs.deals:
                raise NotUnderstood(self.line, "a workspace of programs that do not deal in steps")
            room = dealing.room(row) * self._workspace
            operands |= {WORK: Operand(WORK, (room,), 0), COUNTERS: Operand(COUNTERS, (variable(TILES),), 0)}
        return Launch(
            arguments,
            operands,
            grid,
            tuple(facts),
            batch,
            self.sizes == helpers.GROUPS,
            sharing,
            self._programs.walks,
            self._programs.deals,
            row.get("BLOCK_K", 1),
        )

    @property
    def stored(self) -> set[str]:
        """What the kernel may store to."""
        return self.results | ({WORK, COUNTERS} if self._workspace else set())

    @cached_property
    def _demanded(self) -> ast.expr | None:
        """What every row that is launched meets."""
        demanded = configuration_choice.demand(self.source, self._choice, self._refuses)
        # What prunes for the tuner knows the sizes by the names of the kernel's parameters.
        told = {ADDS: "MN", DECODES: "NK"}.get(self.source.kernel.name, "MNK")
        named = configuration_choice.names(demanded) if demanded is not None else set()
        if any(self._passed.get(name) != _size(name) for name in named.intersection(told)):
            raise NotUnderstood(self.line, "sizes passed under other names")
        return demanded

    @cached_property
    def _derived(self) -> Mapping[str, ast.expr]:
        """The parameters that a decorator computes from the others."""
        return configuration_choice.heuristics(self.source.kernel)

    @cached_property
    def _programs(self) -> _Programs:
        """The programs of the grid."""
        grid = self.grid
        late = matched(grid, "lambda meta: $grid")
        grid = late["grid"] if late is not None else grid
        walking = matched(grid, *(f"min($tiles, {programs})," for programs in _PROGRAMS))
        if walking is not None:
            helpers.programs(self.source)
            return _Programs(walking["tiles"], walks=True)
        if matches(grid, *(f"{programs}," for programs in _PROGRAMS)) and self._workspace:
            helpers.programs(self.source)
            # As many tiles as counters.
            return _Programs(helpers.TILES, walks=True, deals=True)
        match grid:
            case ast.Tuple([tiles]):
                return _Programs(tiles)
            case ast.Tuple([tiles, sharing]):
                return _Programs(tiles, sharing=sharing)
        raise NotUnderstood(grid.lineno, f"the grid {ast.unparse(grid)}")

    @cached_property
    def _grid(self) -> list[ast.expr]:
        """The factors of the number of tiles, of groups those of each."""
        if self.sizes == helpers.GROUPS:
            if not matches(self._programs.tiles, *groups.PROGRAMS):
                raise NotUnderstood(self.line, f"a grid of {ast.unparse(self._programs.tiles)} programs for groups")
            groups.check_programs(self.source)
            return [*groups.GRID]
        factors = [self._programs.tiles]
        while isinstance(factors[0], ast.BinOp) and isinstance(factors[0].op, ast.Mult):
            factors[:1] = [factors[0].left, factors[0].right]
        return factors

    @cached_property
    def _passed(self) -> dict[str, Value]:
        """What `plan` passes besides the row."""
        ours = (*_OPTIONS, *(() if self.source.configured else OF_ROW))
        given = {name: self._value(value) for name, value in self.arguments.items() if name not in ours}
        owners = {name: value.operand for name, value in given.items() if isinstance(value, _OWNED)}
        if not matches(self._plan["slots"], repr(owners)):
            # Another launch by the plan would pass one operand for another.
            told = f"the slots are {ast.unparse(self._plan['slots'])}, and the arguments are of {owners}"
            raise Refuted(self._plan["slots"].lineno, told)
        return given

    def _value(self, node: ast.expr) -> Value:
        seen = matched(node, "$operand.view(torch.uint8)")
        name = dotted(seen["operand"] if seen is not None else node)
        if seen is not None:
            # The addresses of bytes are those of elements of a byte each.
            if name not in self.bytes:
                raise NotUnderstood(node.lineno, f"the argument {ast.unparse(node)}")
            return Pointer(name, poly(0))
        if name in self._scalars:
            return Either(name, _on_device(name))
        if name in self.operands or (self._workspace and name in (WORK, COUNTERS)):
            return Pointer(name, poly(0))
        if name in self._descriptors:
            return self._descriptors[name]
        if name in SIZES:
            return _size(name)
        if name == "index":
            return Dtype("index")
        if matches(node, groups.LANES) and "G" in self.sizes:
            return Number(poly(groups.MOST_LANES))
        if matches(node, "_approximates(a.device)"):
            # Which instructions compute a value: none that is followed.
            return Opaque("_approximates")
        for stride in self.strides:
            if matches(node, stride):
                return Number(variable(stride), width="32")
        for scalar in self._scalars:
            if matches(node, f"isinstance({scalar}, torch.Tensor)"):
                return Truth(_on_device(scalar))
        raise NotUnderstood(node.lineno, f"the argument {ast.unparse(node)}")


def read(source: Source) -> Launcher:
    """The launcher of a file; raises `NotUnderstood`."""
    launcher = Launcher(source)
    launcher.read()
    return launcher


def _size(name: str) -> Number:
    """One of SIZES, which the launcher keeps below 2**31."""
    return Number(variable(name), width="32")


def _on_device(name: str) -> Condition:
    return equal(variable(f"{name} is a tensor"), 1)
