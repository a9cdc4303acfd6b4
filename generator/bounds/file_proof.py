"""The proof for one rendered file: every load and store, with every configuration of CONFIGS."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from generator.bounds import folded, groups, runtime_copy
from generator.bounds.batches import prove_split
from generator.bounds.call_reader import ReadCall, read_call
from generator.bounds.curve_lemma import Curve
from generator.bounds.evaluate import Walk, walk
from generator.bounds.launch_facts import COUNTERS, GROUPS_OF_K, SUMS, Launcher, LaunchFacts
from generator.bounds.order_proof import Lemma, OrderVerdict, prove_order, unproved
from generator.bounds.patterns import matches
from generator.bounds.rewriting import replaced
from generator.bounds.sites import Site
from generator.bounds.source import Kind, MemoryAccess, NotUnderstood, Refuted, Source, read
from generator.bounds.stored_mirrored import wrongly_stored
from generator.bounds.stored_once import uncovered
from generator.bounds.symbolic_values import Called, LaneIntegers, Value
from generator.bounds.terms import Condition, Poly, Variable, at_most, below, poly, variable
from generator.bounds.triton_semantics import PART, PID
from generator.bounds.verdicts import NEVER_REACHED, Judge, State


@dataclass(frozen=True)
class Access:
    """One load or store with one configuration, and the verdict on the claim that it stays inside its operand.

    proved: for all sizes, strides and programs, without an integer overflow in the address.
    hardware: a descriptor with the operand's shape and strides, whose bounds the hardware checks.
    refuted: `detail` has sizes and a program that break the claim. not proved: `detail` says what is not understood.
    """

    line: int
    operand: str
    kind: Kind
    state: State
    #: The index in CONFIGS; None if the file is not understood before a configuration matters.
    row: int | None
    detail: str


@dataclass(frozen=True)
class FileProof:
    """The verdicts on a rendered file."""

    accesses: tuple[Access, ...]
    order: OrderVerdict


def prove(path: Path) -> FileProof:
    """The proof for a rendered file, up to the first configuration that is refuted.

    Raises `NotUnderstood` if the file has no kernel.
    """
    source = read(path)
    try:
        call = _call(source, path)
        kernels = [launch.kernel for launch in call.launches]
        if sorted(kernels) != sorted(source.kernels):
            launched = f"launches of {', '.join(kernels)}, of the kernels {', '.join(source.kernels)}"
            raise NotUnderstood(call.line, launched)
        proofs = [_proof(source.of(name), call, at) for at, name in enumerate(kernels)]
    except NotUnderstood as error:
        proofs = [_not_understood(source.of(name), error) for name in source.kernels]
    return FileProof(tuple(access for proof in proofs for access in proof.accesses), _worst([x.order for x in proofs]))


def _call(source: Source, path: Path) -> ReadCall:
    """The `CALL` of a file whose library is the one that the theorems are about; raises `NotUnderstood`."""
    other = runtime_copy.differing(path.parent / "_runtime", source.library.values())
    if other is not None:
        difference = f"the family's _runtime is another one ({other}.py differs from this package's): render it again"
        raise NotUnderstood(source.call.lineno, difference)
    return read_call(source, path)


def _not_understood(source: Source, error: NotUnderstood) -> FileProof:
    order = OrderVerdict("refuted" if isinstance(error, Refuted) else "not proved", str(error))
    return FileProof(tuple(_not_proved(call, str(error)) for call in source.calls), order)


def _proof(source: Source, call: ReadCall, at: int) -> FileProof:
    """The proof for one of a file's kernels, and the launch at that place of the table."""
    try:
        known = Launcher(source, call, at)
    except NotUnderstood as error:
        return _not_understood(source, error)
    accesses: list[Access] = []
    orders = []
    # Configurations that differ only in warps and stages, of which the kernel is not told, have the same proof.
    params = {parameter.arg for parameter in source.kernel.args.args}
    proofs: dict[tuple[tuple[str, int], ...], tuple[list[Access], OrderVerdict]] = {}
    for index, configuration in enumerate(source.rows):
        tiles = {name: size for name, size in configuration.items() if not name.startswith("num_") or name in params}
        key = tuple(sorted(tiles.items()))
        if key not in proofs:
            proofs[key] = _in_each_case(source, known, tiles)
        proved, order = proofs[key]
        accesses += [replace(access, row=index) for access in proved]
        orders.append(order)
        # One refuted configuration refutes the kernel; each needs a search for a counterexample.
        if order.state == "refuted" or any(access.state == "refuted" for access in proved):
            break
    return FileProof(tuple(accesses), _worst(orders))


def _in_each_case(source: Source, known: Launcher, tiles: Mapping[str, int]) -> tuple[list[Access], OrderVerdict]:
    """The worst verdicts over all values of the parameters on which the number of elements of a tensor depends."""
    cases = itertools.product((True, False), repeat=len(known.deciding))
    proofs = [_with_tiles(source, known, tiles, dict(zip(known.deciding, case))) for case in cases]
    accesses = [min(each, key=_rank) for each in zip(*(accesses for accesses, _ in proofs), strict=True)]
    return accesses, _worst([order for _, order in proofs])


def _rank(access: Access) -> tuple[int, bool]:
    """The place of a verdict, the worst first; an access that one case never reaches, another may reach."""
    return {"refuted": 0, "not proved": 1}.get(access.state, 2), access.detail == NEVER_REACHED


def _with_tiles(
    source: Source, known: Launcher, tiles: Mapping[str, int], decided: Mapping[str, bool]
) -> tuple[list[Access], OrderVerdict]:
    lemma = unproved("the kernel does not assign the coordinates of a tile")
    launch: LaunchFacts | None = None
    divided = False
    try:
        launch = bound = known.bind(tiles, decided)

        def order(names: tuple[str, str], first: LaneIntegers, second: LaneIntegers, tiles: Poly | None) -> Lemma:
            nonlocal lemma
            if names == folded.TILE and known.symmetric:
                # The lemma on the place comes first, and is refuted or not proved if anything is wrong with the walk.
                tile = _tile_of(bound, known, (first, second), (*lemma.inside, *bound.facts))
                lemma = tile if lemma.order.state == "proved" else replace(tile, order=lemma.order)
                return lemma
            whole = prod(bound.grid, start=bound.batch or poly(1))
            if (tiles is not None) != bound.walks or tiles not in (None, whole):
                lemma = unproved("the programs of the grid are not known to compute every tile")
            elif (bound.batch is not None or bound.grouped) and not divided:
                # The lemma would hold for one matrix, but the program's matrix is not known.
                lemma = unproved("the tile is computed before the matrix of a program is known")
            else:
                facts = (*bound.facts, *groups.facts()) if bound.grouped else bound.facts
                grid = tuple(map(variable, folded.SIDES)) if known.symmetric else bound.grid
                lemma = prove_order(names, (first, second), grid, facts)
            return lemma

        def split(matrix: LaneIntegers, position: LaneIntegers) -> tuple[Condition, ...]:
            nonlocal lemma, divided
            assert bound.batch is not None
            matrices = prove_split(matrix, position, bound.batch, bound.grid, bound.facts)
            if matrices.state != "proved":
                lemma = Lemma(matrices)
                raise NotUnderstood(source.kernel.lineno, "which matrix of the batch a program computes")
            divided = True
            number = variable("group" if known.sizes == GROUPS_OF_K else "batch")
            return at_most(0, number), below(number, bound.batch)

        def part_of_k(latest: Mapping[str, ast.expr]) -> None:
            reason = groups.why_not_part(source, latest)
            if reason is not None:
                raise NotUnderstood(source.kernel.lineno, reason)

        def grouped(latest: Mapping[str, ast.expr], ended: bool) -> None:
            nonlocal divided
            reason = groups.why_not(source, latest, walks=bound.walks, ended=ended)
            if reason is not None:
                raise NotUnderstood(source.kernel.lineno, reason)
            divided = True

        known_here = {**launch.arguments, **_finders(source)}
        depth = launch.depth if launch.deals else None
        several = split if launch.batch is not None else None
        whole = prod(bound.grid, start=poly(1)) if bound.grouped else None
        of_rows = (grouped, whole) if whole is not None else None
        of_k = part_of_k if known.sizes == GROUPS_OF_K else None
        sides = bound.grid if known.symmetric else ()
        walked = walk(source.kernel, known_here, order, depth, several, of_rows, of_k, sides)
    except NotUnderstood as error:
        # If programs share tiles, the order includes the claim that one of them stores the result.
        shared = launch is None or launch.sharing > 1 or launch.deals
        own = OrderVerdict("not proved", str(error)) if shared else lemma.order
        if isinstance(error, Refuted):
            own = OrderVerdict("refuted", str(error))
        return [_not_proved(call, str(error)) for call in source.calls], own
    wrong = _wrong_store(known, launch, walked) or _counters_left(source, known, walked)
    if wrong is not None:
        lemma = replace(lemma, order=OrderVerdict("refuted", wrong))
    if known.symmetric and lemma.order.state == "proved":
        lemma = replace(lemma, order=wrongly_stored(known, launch, walked))
    elif (len(known.call.launches) > 1 or (known.quantised and not bound.grouped)) and lemma.order.state == "proved":
        missed = uncovered(known, launch, walked)
        lemma = replace(lemma, order=OrderVerdict("not proved", missed)) if missed is not None else lemma
    judge = Judge(known, launch, walked, lemma, tiles)
    sites = {(site.line, site.column): site for site in walked.sites}
    accesses = []
    for call in source.calls:
        if (site := sites.get((call.line, call.column))) is None:
            reason = f"not understood: line {call.line}: the symbolic execution does not reach it"
            accesses.append(_not_proved(call, reason))
        else:
            state, detail = judge.verdict(site)
            accesses.append(Access(site.line, site.operand, site.kind, state, None, detail))
    return accesses, lemma.order


def _tile_of(
    launch: LaunchFacts, known: Launcher, coordinates: tuple[LaneIntegers, LaneIntegers], facts: tuple[Condition, ...]
) -> Lemma:
    """The lemma on the tile of a symmetric result that a program computes, given that on its place."""
    rows, columns = (launch.arguments.get(name) for name in ("BLOCK_M", "BLOCK_N"))
    sizes = [x.value.constant for x in (rows, columns) if isinstance(x, LaneIntegers)]
    if len(sizes) != 2 or not all(sizes):
        raise NotUnderstood(known.line, "tiles whose size no constant says")
    return folded.prove_tiles(coordinates, launch.grid, facts, variable("M"), int(sizes[0] or 0), int(sizes[1] or 0))


def _finders(source: Source) -> dict[str, Value]:
    """The functions of the file that may compute a tile from a number."""
    return {name: Called(Curve(node)) for name, node in source.functions.items() if Curve(node).known}


def _wrong_store(known: Launcher, launch: LaunchFacts, walked: Walk) -> str | None:
    """A message if several programs store a result, unless they add to zeros; else None."""
    results = [site for site in walked.sites if site.operand in known.results and site.kind == "store"]
    stray = [site for site in walked.sites if site.kind == "store" and site.operand not in known.stored]
    if stray:
        return f"line {stray[0].line}: a store to {stray[0].operand}, which is not for this kernel to fill"
    if SUMS in known.results:
        # Each program of a tile stores its sum in the matrix of its own part.
        apart = [site for site in results if _moved_by_part(site) == variable(f"{SUMS}.stride(0)")]
        return None if results and apart == results else "programs share a tile, and store their sums in one place"
    if any(site.adds and site.operand not in known.cleared for site in results):
        return "programs add to a result that is not set to zero before"
    alone = walked.sites[walked.alone] if walked.alone is not None else []
    if (launch.sharing > 1 or launch.deals) and not all(site in alone or site.adds for site in results):
        return "programs share a tile, and more than one of them stores the result"
    return None


def _moved_by_part(site: Site) -> Poly:
    """How far the next part's program is from an access of this one's."""
    return replaced(site.offset, {Variable(PART): variable(PART) + 1}) - site.offset


def _counters_left(source: Source, known: Launcher, walked: Walk) -> str | None:
    """Why the counters are not at zero behind a launch, as the next one needs them; None where they are."""
    if not known.counts:
        return None
    alone = walked.sites[walked.alone] if walked.alone is not None else []
    stored = [site for site in walked.sites if site.operand == COUNTERS and not site.adds]
    shared = [site.path for site in walked.sites if site.operand == COUNTERS and site.adds]
    if any(site not in alone for site in stored):
        return "a counter is set by a program that is not known to be the last of its tile"
    calls = (node for node in ast.walk(source.kernel) if isinstance(node, ast.Call))
    zeros = {(node.lineno, node.col_offset) for node in calls if matches(node, "tl.store($counter, 0)")}
    # It is the counter that the programs of the tile have raised, wherever they did.
    set_back = [(site.line, site.column) in zeros and site.offset == variable(PID) for site in stored]
    if set_back != [True] or [site.path for site in stored] != shared:
        return "a counter is not set back to zero by the last program of its tile"
    return None


def _not_proved(call: MemoryAccess, reason: str) -> Access:
    return Access(call.line, call.address, call.kind, "not proved", None, reason)


def _worst(orders: list[OrderVerdict]) -> OrderVerdict:
    rank = {"refuted": 0, "not proved": 1, "proved": 2}
    return min(orders, key=lambda order: rank[order.state])
