"""The implementations of a contract that a spec leaves open (`select: fastest`): those that measurements call for.

The package ships measurements, a folder a device. An implementation is in the portfolio of a contract if a kernel of
it won at some size, or has rates. Contracts without measurements have the portfolio of the most similar contract.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

from generator.epilogue.chain import Epilogue
from generator.epilogue.gated_units import CONCATENATED
from generator.epilogue.operations import MATRIX
from generator.files.package_data import shared_if_there
from generator.files.reading import FileError, read_text
from generator.language import tuned_file
from generator.language.built_in import chain_of
from generator.language.dtypes import RESULTS
from generator.language.elements import ELEMENTS
from generator.language.errors import CallError
from generator.language.measured_winners import Measured
from generator.language.model import Dtype, Layout, Spec, Tile, Variant
from generator.language.vocabulary import DEFAULTS, OPEN_AXES, WORDS
from generator.plan import default_configurations, legality
from generator.plan.configurations import columns
from generator.plan.devices import DEVICES, Device
from generator.plan.resources import scaled_in_turn

#: The measurements that the package ships, a folder a device; a part of a checkout may have none.
SHIPPED = shared_if_there("tuned", "specs/tuned")

#: What targets without measurements have: a kernel that takes any operand, one for few rows, and those whose loads the
#: hardware runs ahead where it can.
_UNMEASURED: tuple[Mapping[str, str], ...] = (
    {},
    {"product": "exchanged"},
    {"product": "scaled"},
    {"load": "descriptor", "schedule": "persistent"},
    {"load": "descriptor", "store": "pointer"},
)

#: The chains that were measured for those with two accumulators, and for those with a matrix as output beside C.
_GATED, _STORES_MORE = ("swiglu",), ("save", "gelu")

#: A kernel of a contract, and its configurations.
Implementation = tuple[Variant, tuple[Tile, ...]]


@cache
def shipped() -> tuple[tuple[Device, Measured], ...]:
    """The measurements of known devices that the package ships; raises `CallError` for a file that has none."""
    files = []
    for path in sorted(SHIPPED.glob("*/*.json")) if SHIPPED else []:
        if path.parent.name in DEVICES:
            try:
                files.append((DEVICES[path.parent.name], tuned_file.parse(read_text(path))))
            except (FileError, ValueError) as error:
                reason = error.reason if isinstance(error, FileError) else error
                raise CallError(f"{path}, measurements that the package ships, cannot be read: {reason}") from None
    return tuple(files)


def measurements(spec: Spec) -> tuple[Measured, ...]:
    """The measurements that hold for a spec's family: its own files come first, and so count first."""
    if spec.select != "fastest":
        return spec.tuned
    return (*spec.tuned, *(measured for device, measured in shipped() if device.target in spec.targets))


def similar(v: Variant) -> Iterator[str]:
    """The contracts whose measurements may stand for that of `v`, the most similar first.

    After the contract itself, these are plain products (`_alike`).
    """
    yield v.contract
    yield from _alike(v, Epilogue())


@cache
def similar_chains(v: Variant) -> tuple[str, ...]:
    """The other contracts whose chains cost what that of `v` does, in the order of `similar`; none of a plain chain.

    Their measurements come before those of plain products. With a gated linear unit they have the whole chain, the gate
    alone, or another gate with as many accumulators. With a matrix as output beside C they have one too: where stores
    take their time, more programs a multiprocessor with fewer stages each are faster.
    """
    chains, gate = [], v.epilogue.gate
    if gate is not None:
        chains = [v.epilogue, Epilogue((gate,)), *[chain_of(_GATED)] * (gate.order == CONCATENATED)]
    elif any(output.shape == MATRIX for output in v.epilogue.outputs):
        chains = [chain_of(_STORES_MORE)]
    names = dict.fromkeys(name for chain in dict.fromkeys(chains) for name in _alike(v, chain))
    return tuple(name for name in names if name != v.contract)


def halves(v: Variant, contract: str) -> bool:
    """Whether `contract` has twice as many columns as `v`: a plain product that stands for a gated linear unit."""
    return v.epilogue.gate is not None and contract != v.contract and contract not in similar_chains(v)


def _alike(v: Variant, chain: Epilogue) -> Iterator[str]:
    """The contracts with `chain` that are similar to that of `v`, the most similar first.

    They are of the same types, of a type or an order of elements whose measurements may stand for theirs, and of types
    that differ in the result only; with C in the same layout or in row-major; in a batch or alone.
    """
    base = replace(v, epilogue=chain, rounding=DEFAULTS["rounding"])
    types = [v.dtype]
    if v.dtype.a == v.dtype.b and v.dtype.a in ELEMENTS and (a := ELEMENTS[v.dtype.a].measured_as):
        types.append(replace(v.dtype, a=a, b=a, out=ELEMENTS[v.dtype.out].measured_as or v.dtype.out))
    if v.dtype.fragments:
        # The same bytes in another order, which a kernel converts by fewer instructions.
        types.append(replace(v.dtype, fragments=False))
    types += [replace(each, out=out) for each in list(types) for out in RESULTS if out != each.out]
    layouts = dict.fromkeys((v.layout, replace(v.layout, c="row")))
    for layout, batch, dtype in itertools.product(layouts, dict.fromkeys((v.batch, DEFAULTS["batch"])), types):
        yield replace(base, layout=layout, batch=batch, dtype=dtype).contract


def adapted(v: Variant, contract: str, tile: Tile, targets: Sequence[str]) -> Tile:
    """The configuration for `v` that corresponds to `tile`, which was measured with a kernel of `contract`.

    A gated linear unit has half of a plain product's columns, and a quantised result whole blocks of them. A
    configuration that no target can hold beside the operands and results of the chain has fewer stages.
    """
    tile = default_configurations.of_scales(v, _of_gate(v, contract, tile))
    fewer = (replace(tile, stages=stages) for stages in range(tile.stages, 1, -1))
    return next((each for each in fewer if _fits(v, each, targets)), tile)


def _fits(v: Variant, tile: Tile, targets: Iterable[str]) -> bool:
    """Whether one of `targets` can hold a configuration."""
    never = legality.why_no_row(v, tile) is not None
    return not never and any(legality.why_no_row_on(v, tile, target) is None for target in targets)


def widened(v: Variant, contract: str, tile: Tile) -> bool:
    """Whether `adapted` makes the tile larger than what was measured, for whole blocks of a quantised result."""
    tile = _of_gate(v, contract, tile)
    own = default_configurations.of_scales(v, tile)
    return own.m * own.n > tile.m * tile.n


def _of_gate(v: Variant, contract: str, tile: Tile) -> Tile:
    return default_configurations.halved(v, tile) if halves(v, contract) else tile


def for_each(v: Variant, tiles: tuple[Tile, ...], targets: Sequence[str]) -> tuple[Tile, ...]:
    """`tiles`, and for a target that holds none of them the first that it holds with fewer stages, if there is one."""
    tiles_of = dict.fromkeys(tiles)
    for target in targets:
        if not any(_fits(v, tile, (target,)) for tile in tiles_of):
            fewer = (adapted(v, v.contract, tile, (target,)) for tile in tiles)
            tiles_of |= dict.fromkeys(itertools.islice((tile for tile in fewer if _fits(v, tile, (target,))), 1))
    return tuple(tiles_of)


def tile_of(v: Variant, row: Mapping[str, int]) -> Tile:
    """The configuration that an entry of `CONFIGS` of `v` states; raises KeyError for one of another schedule."""
    tile = Tile(row["BLOCK_M"], row["BLOCK_N"], row["BLOCK_K"], row["num_warps"], stages=row["num_stages"])
    return replace(tile, **{field: row[column] for column, field in columns(v).items()})


def implementations(spec: Spec, contract: Variant) -> Iterator[Implementation]:
    """The implementations of the contract of a variant for a spec that leaves axes open, each once.

    Axes that the spec names have the spec's words. For words that no implementation of the portfolio has, it is the
    portfolio with these words in the place of its own.
    """
    named = [axis for axis in OPEN_AXES if spec.axes[axis]]
    tiles_of: dict[Variant, dict[Tile, None]] = {}
    everything = list(_portfolio(spec, contract))
    for words in itertools.product(*(spec.axes[axis] for axis in named)):
        wanted = dict(zip(named, words, strict=True))
        exact = [each for each in everything if all(each[0].word(axis) == wanted[axis] for axis in named)]
        for kernel, own in exact or everything:
            variant = replace(kernel, **wanted)  # type: ignore[arg-type]
            tiles = own if exact else default_configurations.defaults(variant)
            tiles_of.setdefault(variant, {}).update(dict.fromkeys(tiles))
    for variant, rows in tiles_of.items():
        yield variant, tuple(rows)


def _portfolio(spec: Spec, contract: Variant) -> Iterator[Implementation]:
    """The portfolio of a contract on the spec's targets; an implementation may come twice, with other tiles."""
    shipping = {device.target for device, _ in shipped()}
    targets = [target for target in spec.targets if target in shipping]
    base = replace(contract, **{axis: DEFAULTS[axis] for axis in OPEN_AXES})  # type: ignore[arg-type]
    # The spec's own files may be of any of its targets.
    measured = list(_measured(spec, base, spec.targets if spec.tuned else targets))
    yield from measured
    # Without measurements of anything similar, the default portfolio is for all targets.
    others = [target for target in spec.targets if target not in targets] if measured else spec.targets
    kernels = [replace(base, **words) for words in _UNMEASURED]  # type: ignore[arg-type]
    for variant in map(_stored_by_pointer, kernels):
        if _runs(variant, others):
            yield variant, default_configurations.defaults(variant)
    if base not in dict(measured):
        yield base, default_configurations.defaults(base)


def _stored_by_pointer(v: Variant) -> Variant:
    """The variant, or where descriptors may not store its result, as groups of rows, the one that stores it."""
    by_pointer = (v.products.divided == "M" or v.symmetric) and v.loading.descriptors
    return replace(v, store="pointer") if by_pointer else v


def _runs(v: Variant, targets: Iterable[str]) -> bool:
    return legality.why_not(v) is None and any(legality.why_not_on(v, target) is None for target in targets)


def _measured(spec: Spec, base: Variant, targets: Sequence[str]) -> Iterator[Implementation]:
    """The implementations that were measured, by their words; largest tiles first."""
    own = [entry for entry in entries(spec.tuned) if entry[0] == base.contract]
    others = list(entries(measurements(spec)[len(spec.tuned) :])) or list(entries(spec.tuned))
    known = {contract for contract, _, _ in others}
    # Kernels of another layout are still those to try where nothing similar was measured.
    rows = similar(replace(base, layout=Layout.of("rcr"), epilogue=Epilogue()))
    alike = itertools.chain((base.contract, *similar_chains(base)), similar(base), rows)
    source = next((name for name in alike if name in known), None)
    words = _words_of()
    tiles_of: dict[Variant, dict[Tile, None]] = {}
    for contract, how, row in (*own, *(entry for entry in others if entry[0] == source)):
        if how in words:
            variant = _stored_by_pointer(replace(base, **words[how]))  # type: ignore[arg-type]
            tiles_of.setdefault(variant, {}).update(dict.fromkeys(_tiles(variant, contract, row, targets)))
    for variant in sorted(tiles_of, key=lambda v: [list(WORDS[axis]).index(v.word(axis)) for axis in OPEN_AXES]):
        if tiles_of[variant]:
            yield variant, tuple(sorted(tiles_of[variant], key=_largest_first))


def _tiles(v: Variant, contract: str, row: Mapping[str, int], targets: Sequence[str]) -> tuple[Tile, ...]:
    """The configuration that a measured one stands for; of a schedule without tiles its only one.

    None if the measured one lacks what the kernels of `v` have now.
    """
    if not v.traits.tiled or (halves(v, contract) and scaled_in_turn(v)):
        return default_configurations.defaults(v)
    try:
        tile = adapted(v, contract, tile_of(v, row), targets)
    except KeyError:
        return ()
    return () if _slow(v, tile) else (tile,)


def _slow(v: Variant, tile: Tile) -> bool:
    """Whether a quantised result takes a configuration 20 to 50 % longer than a plain one, on an H200; others 5 to 8 %.

    In an exchanged product a scale's block lies along the rows of the accumulator, which warps share.
    """
    return v.quantised is not None and v.dtype.plain and v.product == "exchanged" and tile.m * tile.n > 64 * 128


def entries(measured: Iterable[Measured]) -> Iterator[tuple[str, str, Mapping[str, int]]]:
    """Contract, the part of the kernel's name behind it, and configuration of every winner and of all rates."""
    for each_file in measured:
        yield from ((each.contract, each.how, each.row) for each in each_file.winners)
        yield from ((each.contract, each.how, each.row) for each in each_file.fitted)


def _largest_first(tile: Tile) -> tuple[int, ...]:
    return (-tile.m * tile.n, -tile.m, -tile.n, -tile.k, tile.split, tile.warps, -tile.stages, tile.group)


@cache
def _words_of() -> dict[str, dict[str, str]]:
    """The part of a kernel's name behind its contract -> the words of its implementation axes."""
    words = {axis: list(WORDS[axis]) for axis in OPEN_AXES}
    defaults = {axis: DEFAULTS[axis] for axis in OPEN_AXES}
    base = Variant(Layout.of("rcr"), Dtype.of("fp16"), DEFAULTS["batch"], Epilogue(), **defaults)
    words_of = {}
    for each in itertools.product(*words.values()):
        chosen = dict(zip(words, each, strict=True))
        words_of[replace(base, **chosen).name.partition("__")[2]] = chosen  # type: ignore[arg-type]
    return words_of
