"""Read a rendered family from the manifest in its folder; the spec is not needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from generator.emit.apply import MANIFEST, Refused, read_manifest
from generator.epilogue.auxiliary_outputs import AUXILIARY, named
from generator.epilogue.chain import Epilogue, Operand, Step, Used, operation_of, settings_of, why_no_chain
from generator.epilogue.operations import Operation
from generator.language.built_in import known
from generator.language.dtypes import ELEMENTS, FORMATS, PRECISIONS, STORED
from generator.language.errors import CallError
from generator.language.model import Dtype, Layout, Tile, Variant
from generator.language.targets import TARGETS
from generator.language.vocabulary import DEFAULTS, INVARIANT, LAYOUT_LETTERS, SELECT, WORDS
from generator.plan.kernels import Kernel, LeftOut, by_contract

#: The version of the manifest's format; others are refused.
VERSION = 1


@dataclass(frozen=True)
class Rendered:
    """The contents of a folder's manifest: the kernels as they were expanded, and what was left out."""

    folder: Path
    name: str
    kernels: tuple[Kernel, ...]
    left_out: tuple[LeftOut, ...]
    #: Kernel name -> sha256 of the body of its file.
    digests: Mapping[str, str] = field(hash=False)
    #: The name of each file -> sha256 of its text.
    files: Mapping[str, str] = field(hash=False)

    @cached_property
    def by_name(self) -> dict[str, Kernel]:
        return {kernel.name: kernel for kernel in self.kernels}

    @cached_property
    def contracts(self) -> dict[str, tuple[Kernel, ...]]:
        """Each contract's kernels, both in the order of the family."""
        return by_contract(self.kernels)

    @cached_property
    def own_files(self) -> list[Path]:
        """The modules that the manifest lists other than kernels of products: `__init__.py` and what it imports."""
        kernels = {f"{name}.py" for name in self.by_name}
        return [self.folder / name for name in sorted(self.files) if name.endswith(".py") and name not in kernels]

    def file(self, name: str, *, contract: bool = False) -> Path:
        """The file of a kernel; with `contract`, the package that holds the function of a contract."""
        return self.folder / ("__init__.py" if contract else f"{name}.py")


def read(folder: Path) -> Rendered:
    """The family in `folder`; raise `CallError` if there is none, or if its manifest is invalid."""
    try:
        manifest = read_manifest(folder)
    except Refused as error:
        raise CallError(str(error)) from None
    if manifest is None:
        raise CallError(f"{folder / MANIFEST} is not there: {folder} holds no rendered family")
    if manifest.get("manifest") != VERSION:
        found = manifest.get("manifest")
        raise CallError(f"{folder / MANIFEST}: version {found!r} of the manifest; this generator reads {VERSION}")
    # Most kernels share their epilogue, and what is derived from it once, with others.
    epilogues: dict[str, Epilogue] = {}
    try:
        operations = {name: known(name, operation_of(entry)) for name, entry in manifest["operations"].items()}
        kernels = {name: _kernel(name, entry, operations, epilogues) for name, entry in manifest["kernels"].items()}
        strays = [name for name in kernels if f"{name}.py" not in manifest["files"]]
        if strays:
            raise ValueError(f"{strays[0]!r} is no file of the family")
        left_out = tuple(LeftOut(str(e["name"]), str(e["reason"]), e.get("target")) for e in manifest["left_out"])
        digests = {name: str(entry["sha256"]) for name, entry in manifest["kernels"].items()}
        files = dict(manifest["files"])
        family = Rendered(folder, str(manifest["name"]), tuple(kernels.values()), left_out, digests, files)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise CallError(f"{folder / MANIFEST}: is invalid ({reason}); render the family again") from None
    while len(_read) >= _MOST:
        del _read[next(iter(_read))]
    _read[folder] = family
    return family


def remembered(folder: Path) -> Rendered:
    """The family in `folder` as it was when this process last read it; raises as `read` does."""
    return _read.get(folder) or read(folder)


#: The families that were read last.
_read: dict[Path, Rendered] = {}
_MOST = 64


def _kernel(
    name: str, entry: Mapping[str, Any], operations: Mapping[str, Operation], epilogues: dict[str, Epilogue]
) -> Kernel:
    axes = entry["axes"]
    spelled = repr(axes["epilogue"])
    if spelled not in epilogues:
        epilogues[spelled] = _epilogue(axes["epilogue"], operations)
    layout = Layout(**{side: _one_of(axes["layout"][side], LAYOUT_LETTERS.values()) for side in "abc"})
    variant = Variant(
        layout,
        _dtype(axes["dtype"]),
        epilogue=epilogues[spelled],
        # A manifest may be older than an axis.
        **{axis: _one_of(axes.get(axis, DEFAULTS[axis]), words) for axis, words in WORDS.items()},
    )
    if variant.name != name:
        # Names become paths: a name that does not follow from the axes could lead to any file.
        raise ValueError(f"the axes of {name!r} make {variant.name!r}")
    return Kernel(
        variant,
        tuple(Tile(**{key: int(value) for key, value in tile.items()}) for tile in entry["tiles"]),
        tuple(_one_of(target, TARGETS) for target in entry["targets"]),
        str(entry["triton"]),
        _one_of(entry["select"], SELECT),
        tuple((_one_of(target, TARGETS), tuple(rows)) for target, rows in entry.get("not_offered", {}).items()),
        _one_of(entry.get("invariant", DEFAULTS["invariant"]), INVARIANT) == "rows",
    )


def _dtype(parts: Mapping[str, Any]) -> Dtype:
    """The types of a product, and how its operands are stored."""
    for key in ("a", "b", "acc", "out"):
        _one_of(parts[key], {*ELEMENTS, *STORED, *FORMATS})
    _one_of(parts["precision"], {None, *_PRECISIONS})
    return Dtype.from_data(parts)


_PRECISIONS = {precision for precisions in PRECISIONS.values() for precision in precisions}


def _epilogue(entries: Sequence[Mapping[str, Any]], operations: Mapping[str, Operation]) -> Epilogue:
    """The epilogue, each step with the operands that its entry states."""
    used = [_used(entry, operations) for entry in entries]
    reason = why_no_chain([meaning for _, meaning, _ in used])
    if reason is not None:
        raise ValueError(f"an epilogue with {reason}")
    return Epilogue(tuple(_step(*each) for each in zip(Epilogue.chain(used).steps, entries, strict=True)))


def _used(entry: Mapping[str, Any], operations: Mapping[str, Operation]) -> Used:
    """The name and meaning of a step, and its settings; an auxiliary output has the name of the output instead."""
    name = entry["operation"]
    if name not in AUXILIARY:
        return name, operations[name], settings_of(entry.get("settings", {}), operations[name])
    return name, named(AUXILIARY[name], str(entry["output"])), ()


def _step(step: Step, entry: Mapping[str, Any]) -> Step:
    operands = tuple(
        (local, Operand(str(operand["name"]), str(operand["shape"]))) for local, operand in entry["operands"].items()
    )
    wanted = {local: operand.shape for local, operand in step.operands}
    if {local: operand.shape for local, operand in operands} != wanted:
        raise ValueError(f"the operands of {step.operation!r} are {wanted}")
    return replace(step, operands=operands)


def _one_of(found: str, legal: Any) -> str:
    if found not in legal:
        raise ValueError(f"{found!r} is none of {', '.join(sorted(map(str, legal)))}")
    return found
