"""What a launch passes to its kernel, and what holds whenever it does, from the table that is the file's `CALL`."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

from generator.bounds import folded, groups, runtime_theorems, sharing, triton_semantics
from generator.bounds.call_reader import CallTensor, ReadCall
from generator.bounds.extent_terms import factors, term
from generator.bounds.patterns import dotted, matched, matches
from generator.bounds.plain_arithmetic import condition_of
from generator.bounds.runtime_theorems import LaunchedTensor
from generator.bounds.source import CONSTEXPR, JIT, NotUnderstood, Refuted, Source
from generator.bounds.symbolic_values import Either, IntegerType, LaneConditions, LaneIntegers, Opaque, Pointer, Value
from generator.bounds.terms import ALWAYS, NEVER, Condition, Poly, at_most, below, equal, negation, poly, variable
from generator.bounds.triton_semantics import PART, SECOND_AXIS, TILES
from generator.emit.call_value import Made, Tensor
from generator.plan.extents import Amount

#: Memory that calls share: partial sums of every program, and a counter for each tile, at zero when a kernel starts.
WORK, COUNTERS = "work", "counters"
#: What the first of two kernels stores for the second: partial sums to add, or the B to multiply.
SUMS = "sums"
DENSE = "decoded"
BETWEEN = frozenset({SUMS, DENSE})
#: The sizes of the products of a call: of one, of a batch, of groups, and of groups along K.
ONE, BATCH, GROUPS = ("M", "N", "K"), ("B", "M", "N", "K"), ("G", "T", "N", "K")
GROUPS_OF_K = ("G", "M", "N", "T")
#: The same of a symmetric result, whose N is M.
SQUARE, SQUARES = ("M", "M", "K"), ("B", "M", "M", "K")
#: What a launch tells the compiler alone: how it computes, and not where it reads or writes.
_OPTIONS = frozenset({"enable_fp_fusion", "num_warps", "num_stages"})
_PROGRAMS = Amount("PROGRAMS")


@dataclass(frozen=True)
class LaunchFacts:
    """A launch with one row of CONFIGS: the parameters' values, the tiles' number as a product, what holds."""

    arguments: Mapping[str, Value]
    #: What addresses may lie in.
    operands: Mapping[str, LaunchedTensor]
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


class Launcher:
    """One of the launches of a call, for each row of CONFIGS; raises `NotUnderstood`, or `Refuted` for wrong ones."""

    def __init__(self, source: Source, call: ReadCall, at: int) -> None:
        self.source, self.call, self.launched = source, call, call.launches[at]
        self.line, self.sizes = self.launched.line, call.sizes
        self.names, facts = runtime_theorems.sizes(call)
        launched, self.limits = runtime_theorems.launched(call, self.names)
        #: What holds for every row, and what is too hard for the solver, of which counterexamples are tested.
        self.facts = [*facts, *launched]
        self._second = at > 0
        self._check()

    @property
    def extents(self) -> tuple[str, ...]:
        """The extents of the result."""
        return self.sizes[self.sizes == GROUPS : -1]

    @property
    def symmetric(self) -> bool:
        """Whether the result is symmetric, so that only tiles on and above its diagonal are computed."""
        return self.sizes in (SQUARE, SQUARES)

    @cached_property
    def _between(self) -> set[str]:
        """The memory that the first kernel fills and the second reads."""
        parts = {each.parts for each in self.call.reduced}
        return {each.name for each in self.call.memory if each.kind == "Memory" and each.name not in parts}

    @cached_property
    def _workspaces(self) -> dict[str, CallTensor]:
        return {each.name: each for each in self.call.memory if each.kind == "Workspace"}

    @property
    def counts(self) -> bool:
        """Whether programs count themselves, tile by tile."""
        return bool(self._workspaces)

    @cached_property
    def results(self) -> set[str]:
        """What the kernel fills: of two, the first what is between them, and the second the results."""
        if len(self.call.launches) == 2 and not self._second:
            return self._between
        reduced = {each.name for each in self.call.reduced}
        names = {each.name for each in self.call.results} | {each.parts for each in self.call.reduced}
        return names - reduced

    @property
    def stored(self) -> set[str]:
        """What the kernel may store to."""
        return self.results | self._workspaces.keys()

    @property
    def cleared(self) -> frozenset[str]:
        """The results that are zero when the kernel starts."""
        return frozenset(self.call.cleared)

    @cached_property
    def tensors(self) -> Mapping[str, CallTensor]:
        """What may be passed, by name: all but the results that are made of parts."""
        reduced = {each.name for each in self.call.reduced}
        every = (*self.call.operands, *self.call.results, *self.call.memory)
        return {each.name: each for each in every if each.name not in reduced}

    @cached_property
    def strides(self) -> tuple[str, ...]:
        """The variables that stand for the strides of all tensors."""
        return tuple(
            f"{name}.stride({dimension})"
            for name, each in self.tensors.items()
            for dimension in range(1 if each.kind == "Number" else len(each.shape))
        )

    @cached_property
    def indexed(self) -> frozenset[str]:
        """The tensors whose extent decides between INDEX of 32 and of 64 bits."""
        rules = {x.given for x in self._given.values() if isinstance(x, Made) and x.function == "index_type"}
        given = next(iter(rules), ())
        names = frozenset(x.name for x in given if isinstance(x, Tensor))
        if len(rules) > 1 or len(names) != len(given) or (rules and not names) or not names <= self.tensors.keys():
            raise NotUnderstood(self.line, "the type of offsets, from other tensors than one list of those of the call")
        return names

    @cached_property
    def _given(self) -> Mapping[str, Any]:
        """The arguments of the launch besides the row's, by the names of the parameters."""
        row = self.source.rows[0] if self.launched.configured else {}
        if self.launched.arguments.keys() & row.keys():
            raise NotUnderstood(self.line, "two arguments of one name")
        return self.launched.arguments

    @cached_property
    def _derived(self) -> Mapping[str, ast.expr]:
        """The parameters that `@triton.heuristics` computes from the others, by name."""
        derived: dict[str, ast.expr] = {}
        for decorator in self.source.kernel.decorator_list:
            rules = matched(decorator, "triton.heuristics($rules)")
            if rules is not None and isinstance(rules["rules"], ast.Dict):
                for key, rule in zip(rules["rules"].keys, rules["rules"].values):
                    computed = matched(rule, "lambda args: $rule")
                    if computed is None or not isinstance(key, ast.Constant):
                        raise NotUnderstood(rule.lineno, ast.unparse(rule))
                    derived[str(key.value)] = computed["rule"]
            elif not matches(decorator, JIT):
                raise NotUnderstood(decorator.lineno, ast.unparse(decorator).partition("\n")[0])
        return derived

    @cached_property
    def deciding(self) -> tuple[str, ...]:
        """The computed parameters that decide how many elements a `tl.arange` has."""
        calls = (node for node in ast.walk(self.source.kernel) if isinstance(node, ast.Call))
        within = (inner for node in calls if dotted(node.func) == "tl.arange" for inner in ast.walk(node))
        tests = [choice.test for choice in within if isinstance(choice, ast.IfExp)]
        read = {name.id for test in tests for name in ast.walk(test) if isinstance(name, ast.Name)}
        return tuple(name for name in self._derived if name in read)

    def _check(self) -> None:
        """Raise unless the table has all that a kernel needs, and nothing that has no meaning here."""
        call = self.call
        passed = {name for launch in call.launches for name in launch.passed.values()}
        if call.rows != self.source.rows:
            raise NotUnderstood(call.line, "configurations other than CONFIGS")
        known = (ONE, BATCH, GROUPS, GROUPS_OF_K, SQUARE, SQUARES)
        if self.sizes not in known or not {*self.sizes} <= self.names.keys():
            raise NotUnderstood(call.line, f"products of {', '.join(self.sizes)}")
        if not {*call.cleared} <= {each.name for each in call.results}:
            raise NotUnderstood(call.line, "what is cleared and is no result")
        between = self._between <= BETWEEN and len(self._between) == len(call.launches) - 1
        if not between or [*self._workspaces] not in ([], [WORK, COUNTERS]):
            raise NotUnderstood(call.line, "memory that no kernel is known to need")
        if (reason := runtime_theorems.why_not_tuned(call, self.names)) is not None:
            raise NotUnderstood(call.line, reason)
        if self._workspaces and not self._workspaces[COUNTERS].cleared:
            raise Refuted(call.line, f"{COUNTERS}, which are not zero when a kernel starts")
        for each in (*call.results, *call.memory):
            if each.name in self.tensors and each.name not in passed:
                raise Refuted(call.line, f"{each.name}, which is passed to no kernel")
        if "G" in self.sizes and not runtime_theorems.lanes(self._given.get("GROUPS", 0), self.names):
            raise NotUnderstood(self.line, "a number of lanes, GROUPS, that may be below the number of groups")
        for reduction in call.reduced:
            self._check_reduction(reduction)
        self._check_results()
        self._check_parameters()

    def _check_reduction(self, reduction: Any) -> None:
        """Raise unless `Reduction.run` reduces parts of the result's shape, along the last dimension but one.

        Of a single element the parts may have any last dimension.
        """
        parts = next((x for x in self.call.memory if x.name == reduction.parts), None)
        result = next((x for x in self.call.results if x.name == reduction.name), None)
        known = reduction.how in ("sum", "amax") and parts is not None and len(parts.shape) > 1
        reduced = (*parts.shape[:-2], parts.shape[-1] if reduction.along else 1) if parts is not None else ()
        if not known or result is None or reduced != result.shape:
            raise NotUnderstood(self.call.line, f"{reduction.name}, made of parts of another shape")

    def _check_results(self) -> None:
        """Raise unless each result that a kernel stores has an element, or two along the last dimension, for a sum.

        Of a quantised result one element is for several columns: a byte of small ones, and a scale.
        """
        own = tuple(variable(name) for name in self.extents)
        for result in self.call.results:
            if result.name in self.tensors:
                shape = runtime_theorems.tensor(self.call.line, result, self.names).shape
                # An operand may name other rows than those of the products.
                shape = shape if result.named is None else (own[0], *shape[1:])
                if shape == own or self._for_columns(result):
                    continue
                if result.name == "out" or shape != (*own[:-1], own[-1] * 2):
                    mismatch = f"{result.name} of shape {result.shape}, of products {self.sizes}"
                    raise NotUnderstood(self.call.line, mismatch)

    def _for_columns(self, result: CallTensor) -> bool:
        """Whether each element along the last dimension is for so many columns, and the other dimensions are C's."""
        *front, last = result.shape if result.named is None else (self.extents[0], *result.shape[1:])
        match last:
            case Amount(symbol, (Amount(columns, ()), int())) if columns == self.extents[-1]:
                same = [*map(str, front)] == [*self.extents[:-1]]
                return same and symbol == ("//" if result.name == "out" else "cdiv")
        return False

    @cached_property
    def quantised(self) -> bool:
        """Whether the result has scales, which the kernel stores for blocks of its columns."""
        return any(self._for_columns(result) for result in self.call.results)

    def _check_parameters(self) -> None:
        """Raise unless each parameter of the kernel has an argument, and each argument a parameter."""
        signature, row = self.source.kernel.args, self.source.rows[0] if self.launched.configured else {}
        own = {parameter.arg for parameter in signature.args}
        if signature.posonlyargs or signature.kwonlyargs or signature.vararg or signature.kwarg or signature.defaults:
            raise NotUnderstood(self.source.kernel.lineno, "parameters of other kinds")
        given = {*self._given, *row, *self._derived}
        for name in [parameter.arg for parameter in signature.args if parameter.arg not in given]:
            raise Refuted(self.line, f"the parameter {name} of {self.source.kernel.name}, which no launch passes")
        for name in sorted(given - own - _OPTIONS):
            raise Refuted(self.line, f"the argument {name}, which {self.source.kernel.name} does not take")
        if any(each.keys() != self.source.rows[0].keys() for each in self.source.rows):
            raise NotUnderstood(1, "configurations with other entries than the first has")

    def bind(self, row: Mapping[str, int], decided: Mapping[str, bool]) -> LaunchFacts:
        """The launch with this row, where each parameter in `deciding` has the given value."""
        table = {key: poly(number) for key, number in row.items()}
        names = {**table, **self.names}
        tiles, walks, deals = self._tiles
        counted = {**names, "PROGRAMS": variable(sharing.PROGRAMS)} if self.call.counted else names
        operands = {name: runtime_theorems.tensor(self.call.line, each, counted) for name, each in self.tensors.items()}
        # M is the number of a group's rows, which only the device knows.
        grid = tuple(term(self.line, factor, {"M": variable("M"), **names}) for factor in tiles)
        batch = None
        if self.sizes in (BATCH, GROUPS_OF_K, SQUARES):
            batch, *rest = grid
            grid = tuple(rest)
            if batch != names[self.sizes[0]]:
                raise NotUnderstood(self.line, f"a grid of {batch} matrices")
        if self.symmetric:
            if len(grid) != 3 or grid[1].constant is None:
                raise NotUnderstood(self.line, "a grid that is not a triangle's, folded to a rectangle")
            # The sides of the rectangle.
            grid = (grid[0] * grid[1], grid[2])
        if self.counts:
            if not deals or operands[COUNTERS].shape != (prod(grid, start=poly(1)),):
                raise NotUnderstood(self.line, "a workspace of programs that do not deal in steps")
            operands[COUNTERS] = replace(operands[COUNTERS], shape=(variable(TILES),))
        arguments = {name: self._value(name, x, operands, names) for name, x in self._given.items()}
        arguments |= {name: LaneIntegers(number) for name, number in table.items() if self.launched.configured}
        own = {parameter.arg for parameter in self.source.kernel.args.args}
        arguments = {name: value for name, value in arguments.items() if name in own}
        numbers = {name: value.value for name, value in arguments.items() if isinstance(value, LaneIntegers)}
        facts, shared = [*self.facts, *runtime_theorems.fitting(self.call, names)], 1
        for name, rule in self._derived.items():
            condition = condition_of(rule, numbers)
            if name in decided:
                facts.append(condition if decided[name] else negation(condition))
                condition = ALWAYS if decided[name] else NEVER
            arguments[name] = LaneConditions(condition)
        if len(self.launched.grid) > 1:
            count = term(self.line, self.launched.grid[1], table).constant
            if count is None or count < 1:
                raise NotUnderstood(self.line, "a number of programs to a tile that the row does not say")
            shared = int(count)
            arguments[SECOND_AXIS] = LaneIntegers(variable(PART), width="32")
            facts += [at_most(0, variable(PART)), below(variable(PART), poly(shared))]
        if SUMS in self._between:
            self._check_parts(operands[SUMS].shape[0], table)
        facts += folded.sides(grid) if self.symmetric else []
        depth, grouped = row.get("BLOCK_K", 1), self.sizes == GROUPS
        return LaunchFacts(arguments, operands, grid, tuple(facts), batch, grouped, shared, walks, deals, depth)

    @cached_property
    def _tiles(self) -> tuple[tuple[Amount | int, ...], bool, bool]:
        """The factors of the number of tiles, of groups those of each; whether programs walk them, and deal in steps.

        A tile has one program, or one of each part along a second axis.
        """
        grid, walks, deals = self.launched.grid, False, False
        tiles = grid[0] if len(grid) in (1, 2) else 0
        if isinstance(tiles, Amount) and tiles.symbol == "least" and tiles.sides[1] == _PROGRAMS:
            tiles, walks = tiles.sides[0], True
        elif tiles == _PROGRAMS and self.counts:
            # As many tiles as counters.
            tiles, walks, deals = self._workspaces[COUNTERS].shape[0], True, True
        if walks and (len(grid) > 1 or not self.call.counted):
            raise NotUnderstood(self.line, "as many programs as the device runs at once, whose number is not known")
        if self.sizes == GROUPS:
            rows = Amount("BLOCK_M")
            if tiles != groups.programs(rows):
                raise NotUnderstood(self.line, f"a grid of {tiles} programs for groups")
            return groups.grid(rows), walks, deals
        return tuple(factors(tiles)), walks, deals

    def _check_parts(self, stored: Poly, table: Mapping[str, Poly]) -> None:
        """Raise unless as many parts of K are stored as there is room for, and as are added."""
        first, second = self.call.launches
        counts = [*first.grid[1:2], second.arguments.get("SPLIT")]
        if len(counts) != 2 or not all(isinstance(x, Amount) and term(self.line, x, table) == stored for x in counts):
            raise NotUnderstood(second.line, "parts of K, not SPLIT of them in all places")

    def _value(
        self, parameter: str, x: Any, operands: Mapping[str, LaunchedTensor], names: Mapping[str, Poly]
    ) -> Value:
        """The value of an argument."""
        match x:
            case Tensor(name) | Made(_, (Tensor(name), *_)) if name not in operands:
                raise NotUnderstood(self.line, f"{name}, which no kernel is passed")
            case Tensor(name):
                number = self.tensors[name].kind == "Number"
                return Either(name, _on_device(name)) if number else Pointer(name, poly(0))
            case Amount(size, ()) if size in self.names:
                # The runtime keeps it below 2**31.
                return LaneIntegers(variable(size), width="32")
            case bool():
                return triton_semantics.constant(x)
            case int() | Amount() if runtime_theorems.lanes(x, self.names):
                return LaneIntegers(poly(groups.MOST_LANES))
            case int() | Amount() if parameter in self._constants:
                amount = term(self.line, x, names)
                if amount.constant is not None:
                    return LaneIntegers(amount)
            case Made("described", (Tensor(name), *_)) if self.tensors[name].kind != "Number":
                return runtime_theorems.described(self.line, x, operands[name], names)
            case Made("as_bytes", (Tensor(name),), ()) if _of_bytes(self.tensors[name]):
                # The addresses of bytes are those of elements of a byte each.
                return Pointer(name, poly(0))
            case Made("stride", (Tensor(name), int(dimension)), ()) if self.tensors[name].kind != "Number":
                if 0 <= dimension < len(operands[name].shape):
                    return LaneIntegers(variable(operands[name].strides[dimension]), width="32")
            case Made("index_type", _, ()) if self.indexed:
                return IntegerType("index")
            case Made("on_device", (Tensor(name),), ()) if self.tensors[name].kind == "Number":
                return LaneConditions(_on_device(name))
            case Made("approximate"):
                # Which instructions compute a value: none that is followed.
                return Opaque("approximate")
        raise NotUnderstood(self.line, f"the argument {parameter}")

    @cached_property
    def _constants(self) -> frozenset[str]:
        """The parameters that the compiler is told the values of."""
        parameters = self.source.kernel.args.args
        return frozenset(x.arg for x in parameters if x.annotation is not None and matches(x.annotation, CONSTEXPR))


def _on_device(name: str) -> Condition:
    return equal(variable(f"{name} is a tensor"), 1)


def _of_bytes(tensor: CallTensor) -> bool:
    """Whether all types that a tensor may have are of a byte each."""
    return all(x.startswith(("torch.float8_", "torch.uint8", "torch.int8")) for x in tensor.dtypes)
