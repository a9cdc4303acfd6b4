"""The package as a stranger finds it: few rooms, each with one purpose, imports in one direction."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import generator

ROOT = Path(generator.__file__).parent
ORDER = (
    *("runtime", "files", "epilogue", "language", "plan", "cost", "lowering", "emit"),
    *("bounds", "problem", "verify", "bench", "tune", "commands"),
)
#: Lines of Python, and of templates, that each room has at most. A change may lower a bound; it raises one only by what
#: a user gains.
BOUNDS = {
    "language": 5023,
    "epilogue": 1597,
    "plan": 3501,
    "lowering": 4311,
    "emit": 6984,
    "runtime": 8180,
    "cost": 727,
    "problem": 1972,
    "verify": 6848,
    "bounds": 5496,
    "bench": 3575,
    "tune": 3454,
    "commands": 988,
    "files": 696,
    "templates": 2974,
    "tests": 31993,
    "generated": 111002,
}

#: Words of docs/*.md by hand: without the tables, figures and output of commands that docs/pages.py makes.
WORDS = 34466
_MADE = re.compile(r"<!-- table: .*?<!-- end of table -->|^```console\n.*?^```$|<!-- .*? -->", re.M | re.S)


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports() -> dict[str, set[str]]:
    """Which modules of the package each imports, inside functions too; a package of its own modules' is left out."""
    found = {}
    for name, path in modules().items():
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        others = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        for node in nodes:
            if isinstance(node, ast.ImportFrom):
                base = [*(name if path.stem == "__init__" else name.rpartition(".")[0]).split(".")]
                start = (
                    ".".join([*base[: len(base) - node.level + 1], node.module or ""]) if node.level else node.module
                )
                others |= {f"{start}.{alias.name}" for alias in node.names}
        # An import of a module runs the packages that contain it; behind a module there may be one of its names.
        with_packages = {
            ".".join(parts[:count]) for parts in (x.split(".") for x in others) for count in range(1, len(parts) + 1)
        }
        found[name] = {other for other in with_packages & modules().keys() if not f"{name}.".startswith(f"{other}.")}
    return found


def package(name: str) -> str:
    """The entry of `generator/` that a module belongs to."""
    return name.split(".")[1] if "." in name else name


def assert_no_cycle(graph: Mapping[str, Iterable[str]]) -> None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"imports in a circle: {' -> '.join(error.args[1])}")


def test_the_top_level_has_few_entries() -> None:
    listed = subprocess.run(["git", "ls-files", "."], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    entries = {line.split("/")[0] for line in listed.splitlines()}
    assert entries == {*ORDER, "pytest_plugin.py", "__init__.py", "__init__.pyi", "py.typed", "__main__.py"}
    assert len(ORDER) <= 14


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert_no_cycle(imports())


def test_packages_import_only_those_before_them() -> None:
    for name, others in imports().items():
        if package(name) in ORDER:
            after = {other for other in others if package(other) in ORDER[ORDER.index(package(name)) + 1 :]}
            assert not after and "pytest_plugin" not in set(map(package, others)), name


def test_measuring_imports_no_proofs() -> None:
    """What both need is in `problem`; of proofs `tune` takes only the compilation for a device that is not there."""
    proofs = {(package(name), other) for name, others in imports().items() for other in others if ".verify" in other}
    assert "verify" in {room for room, _ in proofs}
    assert not {other for room, other in proofs if room in ("problem", "bench")}
    assert {other for room, other in proofs if room == "tune"} == {"generator.verify", "generator.verify.ahead_of_time"}


def test_a_name_of_a_module_means_one_thing() -> None:
    # A module of `commands` has the name of its command, as may the module or the package that does the work.
    found = [path for path in modules().values() if path.parent.name != "commands"]
    stems = [path.stem for path in found if path.stem not in ("__init__", "__main__")]
    assert [stem for stem, count in Counter([*stems, *ORDER]).items() if count > 1] == []


def test_a_name_of_a_class_means_one_thing() -> None:
    """Public classes at the top of a module: a reader who looks for one finds one."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in modules().values())
    names = [node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    assert len(names) > 300
    assert [name for name, count in Counter(names).items() if count > 1 and not name.startswith("_")] == []


@pytest.mark.parametrize("name", ORDER)
def test_a_package_says_its_purpose_in_one_line(name: str) -> None:
    first = (ast.get_docstring(ast.parse((ROOT / name / "__init__.py").read_text())) or "").splitlines()[0]
    assert first.endswith(".") and len(first) > 30


@pytest.mark.parametrize(
    ("entry", "never"),
    [
        ("generator.plan.kernels", "yaml jinja2 torch triton generator.lowering generator.language.spec"),
        ("generator.language.spec", "torch triton generator.lowering generator.plan generator.cost"),
        ("generator.emit.job", "torch triton z3 numpy generator.verify"),
        ("generator.bounds", "torch triton numpy"),
        ("generator.commands.command_line", "torch triton z3 numpy generator.verify"),
    ],
)
def test_what_an_import_does_not_bring_along(entry: str, never: str) -> None:
    code = f"import sys, {entry}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert entry in loaded
    assert [name for name in never.split() if name in loaded] == []


@pytest.mark.parametrize("room", BOUNDS)
def test_a_room_has_a_bound(room: str) -> None:
    folder = ROOT / room if (ROOT / room).is_dir() else ROOT.parent / room
    lines = sum(path.read_bytes().count(b"\n") for end in ("py", "pyi", "j2", "c") for path in folder.rglob(f"*.{end}"))
    assert BOUNDS[room] * 0.8 < lines <= BOUNDS[room], "lower its bound, or say in the commit what is gained"


def test_words_by_hand_have_a_bound() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT.parent / "docs").glob("*.md")]
    words = sum(len(_MADE.sub("", text).split()) for text in texts)
    assert WORDS * 0.95 < words <= WORDS, "lower the bound, or say in the commit what a user gains"


def test_every_text_is_opened_with_its_encoding() -> None:
    """Without one Python takes the locale's, so that a file can be read on one machine and not on another."""
    found = []
    for path in modules().values():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and _is_without_encoding(node):
                found.append(f"{path}:{node.lineno}")
    assert not found


def _is_without_encoding(call: ast.Call) -> bool:
    """Whether a call opens a file, or a process, as text without naming the encoding."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    options = {keyword.arg: keyword.value for keyword in call.keywords}
    if "encoding" in options:
        return False
    if name in ("read_text", "write_text"):
        # The package's own `read_text(path)` reads UTF-8, and so does a resource that is given an encoding.
        return isinstance(call.func, ast.Attribute)
    if name in ("open", "fdopen", "NamedTemporaryFile", "TemporaryFile"):
        constants = [arg.value for arg in [*call.args, *options.values()] if isinstance(arg, ast.Constant)]
        modes = [word for word in constants if isinstance(word, str) and set(word) <= set("rwxabt+")]
        if isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "") == "os" and name == "open":
            return False
        # Temporary files are binary by default.
        return not any("b" in mode for mode in modes) and (bool(modes) or not name.endswith("File"))
    return any(getattr(options.get(word), "value", False) is True for word in ("text", "universal_newlines"))
