"""Read a rendered family from the manifest in its folder; the spec is not needed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet

from generator.emit import manifest as manifests
from generator.emit.advice import rendering_into
from generator.emit.apply import MANIFEST
from generator.emit.file_digests import Digests
from generator.emit.manifest_schema import SCHEMA
from generator.emit.manifest_schema import VERSION as VERSION
from generator.epilogue.auxiliary_outputs import AUXILIARY, named
from generator.epilogue.chain import Epilogue, Used, definition, operation_of, settings_of, why_no_chain
from generator.epilogue.operations import EpilogueOperation
from generator.epilogue.quantisation import QUANTIZE
from generator.files.checked_json import Schema, Wrong, line_of
from generator.files.program import program
from generator.files.reading import FileError, read_text
from generator.language.axis_values import POWERS
from generator.language.built_in import known
from generator.language.errors import CallError, on_one_line, shown
from generator.language.family_names import why_no_family
from generator.language.model import Dtype, Layout, Tile, Variant
from generator.language.quantised_results import quantisation_of
from generator.language.versions import minor_versions
from generator.language.vocabulary import DEFAULTS, WORDS
from generator.plan.kernels import Kernel, LeftOut, by_contract


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
    #: The whole manifest.
    contents: Mapping[str, Any] = field(hash=False, compare=False, repr=False)

    @cached_property
    def by_name(self) -> dict[str, Kernel]:
        return {kernel.name: kernel for kernel in self.kernels}

    @cached_property
    def contracts(self) -> dict[str, tuple[Kernel, ...]]:
        """Each contract's kernels, both in the order of the family."""
        return by_contract(self.kernels)

    @cached_property
    def recorded(self) -> Digests:
        """The digests of the files."""
        return Digests(dict(self.files), dict(self.contents.get("unformatted", {})))

    @property
    def package(self) -> str:
        """How much host code the family has."""
        return str(self.contents.get("package", DEFAULTS["package"]))

    @property
    def functions(self) -> dict[str, tuple[Kernel, ...]]:
        """The contracts that have a function of the family's package, each with its kernels."""
        return {} if self.package == "files" else self.contracts

    @cached_property
    def own_modules(self) -> list[str]:
        """The names of the modules other than kernels of products: `__init__.py` and what it imports."""
        return [name for name in self.own_names if name.endswith(".py")]

    @cached_property
    def own_names(self) -> list[str]:
        """The names of the files other than kernels of products, sorted."""
        return sorted(name for name in self.files if name.removesuffix(".py") not in self.by_name)

    def file(self, name: str) -> Path:
        """The file of a kernel."""
        return self.folder / f"{name}.py"


def read(folder: Path) -> Rendered:
    """The family in `folder`; raise `CallError` if there is none, or if its manifest is invalid."""
    path = folder / MANIFEST
    if folder.is_file():
        raise CallError(on_one_line(f"{folder} is a file; give the folder of a rendered family"))
    try:
        text = read_text(path)
    except (FileNotFoundError, NotADirectoryError):
        inner = next((each.parent for each in sorted(folder.glob(f"*/{MANIFEST}"))), None)
        hint = f"did you mean {inner}?" if inner else f"{program()} SPEC.yaml renders one"
        raise CallError(on_one_line(f"{path} is not there: {folder} holds no rendered family; {hint}")) from None
    except FileError as error:
        raise CallError(on_one_line(str(error))) from None
    again = f"render the family again: {rendering_into(folder)}"
    try:
        manifest = _JSON.parse(text)
        number = manifest.get("manifest")
        if type(number) is not int or number != VERSION:
            reason = f"version {json.dumps(number)} of the manifest; this generator reads {VERSION}; {again}"
            raise CallError(on_one_line(f"{path}:{line_of(text, ['manifest'])}: {reason}"))
        if "begun" in manifest:
            raise CallError(on_one_line(f"{path}:{line_of(text, ['begun'])}: a rendering was interrupted; {again}"))
        SCHEMA.check(manifest, text)
        family = _family(folder, manifest, text)
    except Wrong as error:
        raise CallError(on_one_line(f"{path}:{error.line}: is invalid: {error.reason}; {again}")) from None
    _read[folder] = family
    return family


#: Any manifest, of a later version too.
_JSON = Schema({"type": "object"})


def _family(folder: Path, manifest: Mapping[str, Any], text: str) -> Rendered:
    """The family of a manifest that has the right shape; raise `Wrong` for values that do not go together."""
    operations: dict[str, EpilogueOperation] = {}
    kernels: dict[str, Kernel] = {}
    # Most kernels share their epilogue, and what is derived from it once, with others.
    epilogues: dict[str, Epilogue] = {}
    with _at(text, "name"):
        _require(why_no_family(manifest["name"]))
    with _at(text, "summary"):
        _require_printable(manifest.get("summary", ""))
    with _at(text, "spec", "file"):
        _require_printable(manifest.get("spec", {}).get("file", ""))
    for name, entry in manifest["operations"].items():
        with _at(text, "operations", name):
            operations[name] = known(name, operation_of(entry))
            _require_equal(definition(operations[name]), {"scalars": {}, **entry})
    for name, entry in manifest["kernels"].items():
        with _at(text, "kernels", name):
            kernels[name] = _kernel(name, entry, operations, epilogues)
            _require(None if f"{name}.py" in manifest["files"] else f"{name!r} is no file of the family")
    for index, entry in enumerate(manifest["left_out"]):
        with _at(text, "left_out", str(index)):
            _require_printable(f"{entry['name']}: {entry['reason']}")
    for index, entry in enumerate(manifest.get("never_chosen", ())):
        with _at(text, "never_chosen", str(index)):
            _require(None if entry["name"] in kernels else f"{shown(entry['name'])} is no kernel of the family")
            _require_printable(entry["reason"])
    left_out = tuple(LeftOut(entry["name"], entry["reason"], entry.get("target")) for entry in manifest["left_out"])
    digests = {name: entry["sha256"] for name, entry in manifest["kernels"].items()}
    return Rendered(folder, manifest["name"], tuple(kernels.values()), left_out, digests, manifest["files"], manifest)


@contextmanager
def _at(text: str, *path: str) -> Iterator[None]:
    """Within, an error is about the value at `path` of the manifest's text: raise `Wrong` with its line."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, RecursionError) as error:
        reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise Wrong(line_of(text, path), f"{'.'.join(path)}: {on_one_line(reason)}") from None


def _require_printable(text: str) -> None:
    if not text.isprintable():
        raise ValueError(f"{shown(text)} has a character that cannot be printed")


def _require(reason: str | None) -> None:
    """Raise ValueError with a reason, if there is one."""
    if reason is not None:
        raise ValueError(reason)


def remembered(folder: Path) -> Rendered:
    """The family in `folder` as it was when this process last read it; raises as `read` does."""
    return _read.get(folder) or read(folder)


#: The families that were read, each as it was the last time.
_read: dict[Path, Rendered] = {}


def _kernel(
    name: str, entry: Mapping[str, Any], operations: Mapping[str, EpilogueOperation], epilogues: dict[str, Epilogue]
) -> Kernel:
    axes = entry["axes"]
    spelled = repr(axes["epilogue"])
    if spelled not in epilogues:
        epilogues[spelled] = _epilogue(axes["epilogue"], operations)
    layout = Layout(**axes["layout"])
    variant = Variant(
        layout,
        Dtype.from_data(axes["dtype"]),
        epilogue=epilogues[spelled],
        # A manifest may be older than an axis.
        **{axis: axes.get(axis, DEFAULTS[axis]) for axis in WORDS},
    )
    if any(variant.word(axis) not in words for axis, words in WORDS.items()):
        raise ValueError(f"the axes have other words than {', '.join(WORDS)} have")
    written = manifests.axes(variant)
    # It may be older than settings, too.
    stated = {**axes, "epilogue": [{"settings": {}, **step} for step in axes["epilogue"]]}
    _require_equal({axis: written[axis] for axis in written if axis in axes or axis not in WORDS}, stated)
    if variant.name != name:
        # Names become paths: a name that does not follow from the axes could lead to any file.
        raise ValueError(f"the axes of {name!r} make {variant.name!r}")
    _require_printable(entry["formula"])
    if entry["contract"] != variant.contract:
        raise ValueError(f"the contract of {name!r} is {variant.contract!r}, found {entry['contract']!r}")
    for tile in entry["tiles"]:
        wrong = next((key for key, powers in POWERS.items() if tile[key].bit_count() > powers), None)
        _require(wrong and f"the tile's {wrong} is {tile[wrong]}, which no kernel has")
    not_offered = entry.get("not_offered", {})
    other = next((target for target in not_offered if target not in entry["targets"]), None)
    _require(other and f"not_offered: {other} is no target of {name!r}")
    rows = [row for rows in not_offered.values() for row in rows]
    _require("not_offered: there are fewer tiles" if max(rows, default=-1) >= len(entry["tiles"]) else None)
    if not minor_versions(SpecifierSet(entry["triton"])):
        raise ValueError(f"triton: no supported version is in {entry['triton']!r}")
    return Kernel(
        variant,
        tuple(Tile(**{key: int(value) for key, value in tile.items()}) for tile in entry["tiles"]),
        tuple(entry["targets"]),
        entry["triton"],
        entry["select"],
        tuple((target, tuple(rows)) for target, rows in not_offered.items()),
        entry.get("invariant") == "rows",
    )


def _epilogue(entries: Sequence[Mapping[str, Any]], operations: Mapping[str, EpilogueOperation]) -> Epilogue:
    """The epilogue, each step with the operands that its entry states."""
    used: list[Used] = []
    for entry in entries:
        name, settings = entry["operation"], entry.get("settings", {})
        if name == QUANTIZE:
            used.append((name, quantisation_of(settings), ()))
        elif name in AUXILIARY:
            used.append((name, named(AUXILIARY[name], str(entry["output"])), ()))
        else:
            used.append((name, operations[name], settings_of(settings, operations[name])))
    reason = why_no_chain([meaning for _, meaning, _ in used])
    _require(reason and f"an epilogue with {reason}")
    return Epilogue.chain(used)


def _require_equal(written: object, actual: object) -> None:
    """Raise ValueError unless an entry is what the generator writes for what it has been read as."""
    if json.dumps(written, sort_keys=True) != json.dumps(actual, sort_keys=True):
        raise ValueError(f"expected {json.dumps(written)}, found {json.dumps(actual)}")
