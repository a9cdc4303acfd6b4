"""Read suites and shapes from YAML or JSON: which kernels are timed together, and on which shapes.

All mistakes of a file are reported together.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from generator.files.package_data import data
from generator.files.reading import FileError, read_text
from generator.language.axis_values import read_axis
from generator.language.document import compose, described, plain
from generator.language.errors import CallError, Mistake, SpecError, nearest, shown
from generator.language.model import AxisValue, word_of
from generator.language.reader import Reader
from generator.language.vocabulary import AXES
from generator.problem.product import Shape
from generator.problem.written_sizes import are_sizes, written_sizes

SUITES = data("bench", "suites")
#: The suite of a call without a spec, and the shapes of a spec without `--shapes`.
DEFAULT_SUITE = "spine"
SHAPES = SUITES / "shapes"
DEFAULT_SHAPES = "default"
#: The words of `--peer` and of a suite's `peer`; `generator.bench.peers` defines each.
PEERS = ("cublas", "eager", "fused", "inductor")
DEFAULT_PEERS = ("cublas",)

#: Two sizes are near if M, N and K each differ by at most one part in this many.
_PARTS = 100
#: The most bytes of a suite or of a file of shapes: YAML takes a hundred times as much memory.
_MOST_BYTES = 4 << 20
_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
_Given = TypeVar("_Given")


@dataclass(frozen=True)
class KernelSelection:
    """Kernels of one family: those with all the given words of axes, or the public function of a contract."""

    family: str
    label: str | None
    axes: tuple[tuple[str, str], ...] = ()
    contract: str | None = None


@dataclass(frozen=True)
class SuiteCase:
    """Kernels that are timed together, with the peers, in the same rounds, on each of the shapes.

    A case that names files of shapes becomes one case for each of them, `CASE/FILE`, so that each has its own summary.
    """

    name: str
    title: str
    choices: tuple[KernelSelection, ...]
    shapes: tuple[Shape, ...]
    #: The peers of this case; None for those of the suite.
    peers: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Suite:
    """The cases of one file in its order, and options for calls that do not give these."""

    name: str
    cases: tuple[SuiteCase, ...]
    #: About the seconds that the rounds of a comparison may take; None for no limit.
    seconds: float | None = None
    peers: tuple[str, ...] = DEFAULT_PEERS
    #: The ratio under which comparisons are counted.
    bound: float | None = None
    #: Whether the summary also has means by M.
    by_rows: bool = False


def peers(text: str) -> tuple[str, ...]:
    """The peers in a list such as `cublas,inductor`; none for `none`. Raise ValueError for a wrong or repeated word."""
    if text == "none":
        return ()
    words = tuple(text.split(","))
    for word in words:
        if word not in PEERS:
            raise ValueError(
                f"invalid choice: {shown(word)} (choose from {', '.join(PEERS)}, several with a comma, or none)"
            )
    if len(set(words)) < len(words):
        raise ValueError(f"a peer is named twice in {shown(text)}")
    return words


def find(name: str) -> Path:
    """The file of a suite given by name or by path; raise `CallError` for an unknown name."""
    return _named(name, SUITES, "--suite: no suite is named")


def find_shapes(name: str) -> Path:
    """The file of shapes given by its name in suites/shapes or by path; raise `CallError` for an unknown name."""
    return _named(name, SHAPES, "--shapes: no file of shapes is named")


def _named(name: str, folder: Path, unknown: str) -> Path:
    if "/" in name or "." in name:
        return Path(name)
    known = sorted(path.stem for path in folder.glob("*.yaml"))
    if name not in known:
        raise CallError(f"{unknown} {name!r}; known: {', '.join(known)}, or give a file")
    return folder / f"{name}.yaml"


def given_shapes(text: str) -> tuple[Shape, ...]:
    """The shapes that an option `--shapes` gives: itself, as in `1:64x4096x4096`, or by the name or path of a file.

    Raises `CallError` for wrong sizes and for an unknown name, `SpecError` for what is wrong in a file.
    """
    if "/" in text or "." in text or not are_sizes(text):
        return read_shapes(find_shapes(text))
    try:
        shapes = tuple(dict.fromkeys(written_sizes(text).shapes()))
    except ValueError as error:
        raise CallError(f"--shapes: {error}") from None
    for shape in shapes:
        if shape.fault is not None:
            raise CallError(f"--shapes: {shape}: {shape.fault}")
    return shapes


def read_suite(path: Path) -> Suite:
    """The suite at `path`; raise `SpecError` with all of its mistakes."""
    reader = _SuiteReader(path)
    options: dict[str, Callable[[Node, str], Any]] = {
        **dict.fromkeys(("seconds", "bound"), reader.above_0),
        "peer": reader.peer,
        "by_rows": reader.switch,
    }
    entries = reader.mapping(compose(path, _text(path)), ("summary", *options, "cases"), "suite", required=("cases",))
    if "summary" in entries:
        reader.text(entries["summary"], "summary")
    given = {name: read(entries[name], name) for name, read in options.items() if name in entries}
    cases = reader.distinct(entries["cases"], "cases", reader.case, _file_case) if "cases" in entries else []
    if reader.mistakes:
        raise SpecError(reader.mistakes)
    given["peers"] = given.pop("peer", DEFAULT_PEERS)
    return Suite(path.stem, tuple(case for parts, _ in cases for case in parts), **given)


def _file_case(parts: tuple[SuiteCase, ...]) -> str:
    """The name of a case as in its file, without the name of a file of shapes."""
    return parts[0].name.partition("/")[0]


def read_shapes(path: Path) -> tuple[Shape, ...]:
    """The shapes at `path`: a list, a mapping with the key `shapes`, lines of sizes, or a table with a header.

    Raises `SpecError` with all mistakes.
    """
    root = compose(path, _as_list(_text(path)))
    reader = _SuiteReader(path)
    if isinstance(root, MappingNode):
        entries = reader.mapping(root, ("summary", "shapes"), "shapes", required=("shapes",))
        root = entries.get("shapes", root)
    shapes = reader.shapes(root)
    if reader.mistakes:
        raise SpecError(reader.mistakes)
    return shapes


def _as_list(text: str) -> str:
    """Lines of sizes, or a table with commas and a header, as YAML with the same lines; another text as it is."""
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    first = next(filter(None, lines), "")
    names = first.split(",")
    if len(names) >= 3 and all(name.strip().isidentifier() for name in names):
        header = lines.index(first)
        rows = (line and ",".join(map("=".join, zip(names, line.split(",")))) for line in lines[header + 1 :])
        lines = [*[""] * (header + 1), *rows]
    elif not are_sizes(first):
        return text
    return "\n".join(line and f"- {json.dumps(line)}" for line in lines)


def near(one: Shape, other: Shape) -> bool:
    """Whether M, N and K of two single products each differ by at most 1 %."""
    if {one.products, other.products} != {"none"}:
        return False
    return all(_PARTS * abs(x - y) <= max(x, y) for x, y in zip(one.sizes, other.sizes))


def is_unseen(shape: Shape) -> bool:
    """Whether a size is near one of a file unseen_*.yaml of suites/shapes, to which nothing is fitted."""
    return any(near(shape, other) for other in _unseen())


@functools.cache
def _unseen() -> tuple[Shape, ...]:
    return tuple(shape for path in sorted(SHAPES.glob("unseen_*.yaml")) for shape in read_shapes(path))


def _text(path: Path) -> str:
    try:
        return read_text(path, _MOST_BYTES)
    except FileNotFoundError as error:
        raise SpecError([Mistake(path, 1, 1, f"cannot be read: {error.strerror}")]) from None
    except FileError as error:
        raise SpecError([Mistake(path, error.line or 1, 1, error.reason)]) from None


class _SuiteReader(Reader):
    """One method for each key, which returns its value or records a mistake."""

    def above_0(self, node: Node, what: str) -> float | None:
        value = plain(node)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf:
            return float(value)
        self.wrong(node, f"{what}: expected a number above 0, found {described(node)}")
        return None

    def switch(self, node: Node, what: str) -> bool:
        value = plain(node)
        if not isinstance(value, bool):
            self.wrong(node, f"{what}: expected true or false, found {described(node)}")
        return value is True

    def peer(self, node: Node, what: str) -> tuple[str, ...] | None:
        word = self.text(node, what)
        try:
            return None if word is None else peers(word)
        except ValueError as error:
            self.wrong(node, f"{what}: {error}")
            return None

    def case(self, node: Node) -> tuple[SuiteCase, ...] | None:
        keys = ("name", "title", "peer", "kernels", "shapes")
        entries = self.mapping(node, keys, "case", required=("name", "kernels", "shapes"))
        name = self.text(entries["name"], "case.name") if "name" in entries else None
        if name is not None and not _NAME.match(name):
            self.wrong(entries["name"], f"case.name: expected lower-case letters, digits and _, found {shown(name)}")
        title = self.text(entries["title"], "case.title") if "title" in entries else name
        choices = (
            [self.choice(item) for item in self.items(entries["kernels"], "kernels")] if "kernels" in entries else []
        )
        groups = self.groups(entries["shapes"]) if "shapes" in entries else {}
        own = self.peer(entries["peer"], "peer") if "peer" in entries else None
        valid = tuple(choice for choice in choices if choice is not None)
        if name is None or title is None or not valid or not groups:
            return None
        return tuple(
            SuiteCase(f"{name}/{group}", f"{title}: {group.replace('_', ' ')}", valid, shapes, own)
            if group
            else SuiteCase(name, title, valid, shapes, own)
            for group, shapes in groups.items()
        )

    def choice(self, node: Node) -> KernelSelection | None:
        before = len(self.mistakes)
        entries = self.mapping(node, ("family", "label", "contract", *AXES), "kernels", required=("family",))
        family = self.text(entries["family"], "kernels.family") if "family" in entries else None
        if family is not None:
            family = self.name(entries["family"], "kernels.family", family)
        label = self.text(entries["label"], "kernels.label") if "label" in entries else None
        contract = self.text(entries["contract"], "kernels.contract") if "contract" in entries else None
        axes: list[tuple[str, str]] = []
        for axis in AXES:
            if axis in entries:
                value: AxisValue | None = read_axis(self, axis, entries[axis])
                if value is not None:
                    axes.append((axis, word_of(value)))
        if contract is not None and axes:
            self.wrong(entries["contract"], f"kernels: 'contract' excludes axes, found {axes[0][0]!r} beside it")
        if family is None or len(self.mistakes) > before:
            return None
        return KernelSelection(family, label, tuple(axes), contract)

    def groups(self, node: Node) -> dict[str, tuple[Shape, ...]]:
        """Shapes by the file of suites/shapes that they come from; shapes of the suite itself have an empty name."""
        read = self.each(node, self.shape_or_file)
        own = tuple(item for item in read if isinstance(item, Shape))
        groups = {"": own} if own else {}
        for item in read:
            if isinstance(item, str):
                try:
                    groups[item] = read_shapes(SHAPES / f"{item}.yaml")
                except SpecError as error:
                    self.mistakes += error.mistakes
        return groups

    def each(self, node: Node, read: Callable[[Node], Sequence[_Given]]) -> list[_Given]:
        """What the items of a list give, or the single value, each once."""
        merged: dict[str, _Given] = {}
        for item in self.items(node, "shapes") if isinstance(node, SequenceNode) else [node]:
            given = {str(value): value for value in read(item)}
            merged |= {word: value for word, value in given.items() if word not in merged}
        return list(merged.values())

    def shape_or_file(self, node: Node) -> Sequence[Shape | str]:
        word = plain(node)
        if not isinstance(node, ScalarNode) or not isinstance(word, str) or not _NAME.match(word):
            return self.shape(node)
        known = sorted(path.stem for path in SHAPES.glob("*.yaml"))
        if word not in known:
            self.wrong(node, f"shapes: no file of shapes is named {word!r}; {nearest(word, known)}")
            return ()
        return (word,)

    def shapes(self, node: Node) -> tuple[Shape, ...]:
        return tuple(self.each(node, self.shape))

    def shape(self, node: Node) -> tuple[Shape, ...]:
        """The shapes that an item gives: several, if a size is a range."""
        items = [plain(item) for item in node.value] if isinstance(node, SequenceNode) else None
        given = plain(node) if items is None else items
        text = str(given) if items is None else _joined(items)
        if isinstance(node, MappingNode):
            # {M: 64, N: 64, K: 64}, as other tools list sizes.
            text = ",".join(f"{plain(key)}={plain(size)}" for key, size in node.value)
        try:
            shapes = _of_numbers(items) or tuple(dict.fromkeys(written_sizes(text, also=" or [M, N, K]").shapes()))
        except ValueError as error:
            self.wrong(node, f"shapes: {error}".replace(f"found {shown(text)};", f"found {shown(given)};"))
            return ()
        for shape in shapes:
            if shape.fault is not None:
                self.wrong(node, f"shapes: {shape}: {shape.fault}")
                return ()
        return shapes


def _of_numbers(items: Sequence[object] | None) -> tuple[Shape, ...]:
    """The shape that [M, N, K] or [M, N, K, PAD] is, of numbers from 1; none for something else."""
    numbers = [item for item in items or () if type(item) is int and item >= 1]
    if len(numbers) not in (3, 4) or len(numbers) != len(items or ()):
        return ()
    m, n, k, pad, *_ = (*numbers, 0)
    return (Shape(m, n, k, pad),)


def _joined(items: Sequence[object]) -> str:
    """A list [M, N, K] or [M, N, K, PAD] of numbers and ranges as one text; something else as it is."""
    words = [str(item) if type(item) in (int, str) else "?" for item in items]
    return "x".join(words[:3]) + "".join(f"+{word}" for word in words[3:]) if len(words) in (3, 4) else str(list(items))
