"""What `generator.runtime` ensures whenever it launches a kernel of a file's table: all of it is here.

Each function names the one of the runtime that ensures it, and tests/bounds/test_runtime_theorems.py calls that one. A
table of which the runtime would ensure less is not understood.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from generator.bounds.call_reader import CallTensor, ReadCall
from generator.bounds.extent_terms import term
from generator.bounds.source import NotUnderstood
from generator.bounds.symbolic_values import Descriptor
from generator.bounds.terms import Condition, Poly, at_most, either, equal, poly, variable
from generator.emit.call_value import Made, Tensor
from generator.plan.extents import Amount

#: B is how many matrices a batch has, G how many groups there are, T how many rows they have together, R how many A and
#: S how many C has: nothing is said of those that a call does not have.
SIZES = ("B", "G", "T", "R", "S", "M", "N", "K")
#: The largest size (`call_tensors.MOST`), so that a tile that begins below it has offsets of 32 bits.
LARGEST = 2**31 - 2**16
#: The span from which on `arguments.Index.value` gives offsets 64 bits.
SPAN = 2**31

Names = Mapping[str, Poly]


@dataclass(frozen=True)
class LaunchedTensor:
    """A tensor of a launch: its shape, and the dimension of stride 1 where one is required."""

    name: str
    shape: tuple[Poly, ...]
    unit: int | None

    @property
    def strides(self) -> tuple[str, ...]:
        """The variables that stand for the strides, by dimension: `a.stride(0)`, `a.stride(1)`."""
        return tuple(f"{self.name}.stride({dimension})" for dimension in range(len(self.shape)))


def given(name: str) -> Poly:
    """The variable that is 1 where an operand that may be left out is given."""
    return variable(f"{name} is given")


def sizes(call: ReadCall) -> tuple[Names, list[Condition]]:
    """The sizes of a call, and what holds of them.

    `Call.state` takes them from the first operands that have them, and from `b`: they are numbers of elements along
    dimensions, so not negative, and `measure` refuses those above the limit. Of operands that are left out it takes
    `absent`. `require_whole` refuses elements, of operands and results, that do not fill the last container.
    """
    known: dict[str, Poly] = {}
    facts: list[Condition] = []
    for operand in (x for x in call.operands if x.kind == "Operand"):
        own = {name for extent in operand.shape if isinstance(extent, Amount) for name in extent.names}
        measured = operand.name == "b" or not own <= known.keys()
        if operand.absent is not None:
            if not _named(*operand.shape, operand.absent) or len(operand.shape) != 1:
                raise NotUnderstood(call.line, f"the operand {operand.name}, which may be left out")
            # Left out, it has that size whatever another operand has said before, which must then have it, too.
            as_absent = equal(variable(str(operand.shape[0])), term(call.line, operand.absent, known))
            facts.append(either([equal(given(operand.name), 1), as_absent]))
        for extent in operand.shape if measured else ():
            name = _measured(call.line, operand, extent)
            known[name] = variable(name)
            facts += [at_most(0, known[name]), at_most(known[name], LARGEST)]
            if not _named(extent):
                facts.append(at_most(term(call.line, extent, known), LARGEST))
    if not known.keys() <= set(SIZES):
        raise NotUnderstood(call.line, f"sizes other than {', '.join(SIZES)}")
    for result in call.results:
        if result.named is not None:
            facts += _rows_of(call, result, known)
    for operand in (*call.operands, *call.results):
        for extent in operand.shape:
            if isinstance(extent, Amount) and extent.symbol == "//":
                whole, together = (term(call.line, x, known) for x in extent.sides)
                facts.append(equal(whole % together, 0))
    return known, list(dict.fromkeys(facts))


def _named(*extents: Amount | int) -> bool:
    """Whether all are sizes, and not what is computed of one."""
    return all(isinstance(x, Amount) and not x.sides for x in extents)


def _rows_of(call: ReadCall, result: CallTensor, known: dict[str, Poly]) -> list[Condition]:
    """What holds of S, the rows of a result that an operand may name.

    `Scattered.learn` refuses more rows than the limit; where the operand is left out, they are those of the products.
    """
    if "S" in known and result.shape[0] == next(x for x in call.results if x.named is not None).shape[0]:
        # `Call.state` asks the first, and `Result.taken` refuses another number of rows.
        return []
    naming = [x for x in call.operands if x.name == result.named and x.kind == "Operand" and x.absent is not None]
    if len(naming) != 1 or "S" in known or len(result.shape) != 2 or naming[0].shape != result.shape[:1]:
        raise NotUnderstood(call.line, f"the result {result.name}, whose rows {result.named} names")
    rows = known["S"] = variable("S")
    as_products = equal(rows, term(call.line, result.shape[0], known))
    return [at_most(0, rows), at_most(rows, LARGEST), either([equal(given(naming[0].name), 1), as_products])]


def _measured(line: int, operand: CallTensor, extent: Amount | int) -> str:
    """The size that `_measure` takes from a dimension: it is that size, a multiple of it, or a part of it."""
    match extent:
        case Amount(name, ()):
            return name
        case Amount("*", (int(part), Amount(name, ()))) | Amount("//", (Amount(name, ()), int(part))) if part > 0:
            return name
    raise NotUnderstood(line, f"a size taken from the dimension {extent} of {operand.name}")


def launched(call: ReadCall, names: Names) -> tuple[list[Condition], list[Condition]]:
    """What holds of the sizes where something is launched: simple conditions, and those with products of sizes.

    `Call.plan` launches nothing where one of the sizes but the last is 0, and raises where `Call.reason` finds one of
    the `needs` broken.
    """
    facts = [at_most(1, term(call.line, Amount(size), names)) for size in call.sizes[:-1]]
    limits: list[Condition] = []
    for need in call.needs:
        match need:
            case Made("absent", (Tensor(name), *_)):
                facts.append(equal(given(name), 0))
            case Made("multiple" | "at_most"):
                condition, simple = _condition(call.line, need, names)
                (facts if simple else limits).append(condition)
    return facts, limits


def fitting(call: ReadCall, names: Names) -> list[Condition]:
    """What holds of a configuration that is launched.

    `Call.row` refuses one that the caller gives and that does not fit; `Call.chosen` asks `choose`, which returns one
    of those it is given, for one of `Limited.fitting`; `Tuner` tries those, and `Call.reason` refuses calls of which
    none fits.
    """
    return [_condition(call.line, each, names)[0] for each in call.fits]


def _condition(line: int, each: Made, names: Names) -> tuple[Condition, bool]:
    """What `multiple` or `at_most` says, and whether it has no product of sizes."""
    number, bound = (term(line, x, names) for x in each.given[:2])
    simple = all(len(atoms) <= 1 for atoms, _ in number.terms)
    if each.function == "at_most":
        return at_most(number, bound), simple
    if (bound.constant or 0) < 1:
        raise NotUnderstood(line, f"multiples of {each.given[1]}")
    return equal(number % bound, 0), simple


def tensor(line: int, given: CallTensor, names: Names) -> LaunchedTensor:
    """A tensor that is passed to a kernel.

    `Operand.taken` refuses another shape, and another stride than 1 along `unit`; `Number.taken` a tensor of several
    elements. `Result.sizes_in` says that one with `named` has S rows. `Result.taken` also refuses one that overlaps
    itself, and makes one of the last dimension's stride 1 or, by `unit`, of the last but one's. So does `Memory.new`,
    whose rows may be padded. A `Workspace` is a vector.
    """
    if given.kind == "Number":
        return LaunchedTensor(given.name, (poly(1),), 0)
    shape, unit = tuple(term(line, extent, names) for extent in given.shape), given.unit
    if given.kind == "Result" and given.named is not None:
        shape = (names["S"], *shape[1:])
    last = len(shape) - 1
    known = 0 <= last <= 2 and (unit is None or 0 <= unit <= last)
    if given.kind != "Operand":
        known = known and (unit is None or unit >= last - 1)
    if given.kind in ("Memory", "Workspace"):
        unit = last if unit is None else unit
        known = known and type(given.pitch) is int and (given.pitch == 1 or (given.pitch > 1 and last == 1))
        known = known and (last == 0 or given.kind == "Memory")
    if not known:
        raise NotUnderstood(line, f"the tensor {given.name}, with dimensions or a unit that it cannot have")
    return LaunchedTensor(given.name, shape, unit)


def described(line: int, made: Made, operand: LaunchedTensor, names: Names) -> Descriptor:
    """What `described` makes: a descriptor of the tensor's own shape and strides, the last of which counts as 1.

    Of an empty tensor it has another shape, of memory of its own. `Tuner` gives it the block of each configuration.
    """
    dimensions = len(operand.shape)
    block = tuple(term(line, size, names).constant for size in made.given[1:])
    if len(block) != dimensions or dimensions < 2:
        raise NotUnderstood(line, f"a block of {len(block)} dimensions of {operand.name}, which has {dimensions}")
    turned = made.options == (("turned", True),)
    if not turned and made.options not in ((), (("turned", False),)):
        raise NotUnderstood(line, f"{operand.name}, described with {dict(made.options)}")
    unit = dimensions - (2 if turned else 1)
    fault = f"described with stride 1 along dimension {unit}, admitted with {operand.unit}"
    sizes = tuple(int(size or 0) for size in block)
    return Descriptor(operand.name, dimensions, None if operand.unit == unit else fault, sizes, turned)


def lanes(number: Amount | int, names: Names) -> bool:
    """Whether a number is at least as many as groups: `next_power` is no less than either of its arguments."""
    known = isinstance(number, Amount) and number.symbol == "next_power" and number.sides[0] == Amount("G")
    return known and "G" in names


def why_not_tuned(call: ReadCall, names: Names) -> str | None:
    """Why a tuner could run a kernel otherwise than a call without one; None where it cannot, or there is none.

    `Tuner` makes vectors that are large enough for each configuration, knows sizes by the names of the kernel's
    parameters, keeps the fastest by M, N and K, and sets to zero what is in `reset` before each run. What must be zero
    at a launch are the results in `cleared`, which `Call.__call__` clears, and the workspaces that are `cleared`.
    """
    if call.reset is None:
        return None
    if len(call.launches) != 1 or any(each.kind != "Workspace" for each in call.memory):
        return "a tuner of more than one launch, or of memory other than vectors"
    (launch,) = call.launches
    zero = {*call.cleared, *(each.name for each in call.memory if each.cleared)}
    missing = [name for name, owner in launch.passed.items() if owner in zero and name not in call.reset]
    if missing:
        return f"{', '.join(missing)} is not set to zero between the tuner's runs"
    asked = {name for each in call.fits for x in each.given if isinstance(x, Amount) for name in x.names} & names.keys()
    if not asked <= set("MNK") or any(launch.arguments.get(name) != Amount(name) for name in asked):
        return "sizes passed under other names than the tuner knows them by"
    return None
