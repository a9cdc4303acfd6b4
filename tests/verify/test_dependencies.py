"""What of the harness a level's results depend on: all that its workers load, by meaning, and nothing else."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from generator.verify import dependencies
from generator.verify.dependencies import ALONE, ENTRIES, Module, harness_digest, module, modules
from generator.verify.jobs import LEVELS
from generator.verify.result_cache import PACKAGES
from tests.helpers.support import ROOT

#: Imports what a level begins with; prints what has been loaded of the package.
_LOADS = """\
import importlib, json, sys
importlib.import_module(sys.argv[1])
print(json.dumps([name for name in sys.modules if name.partition(".")[0] == "generator"]))
"""
#: Packages that read what the package itself is made of, and manifests: operations, ranges of versions, schemas.
_READERS = {"fastjsonschema", "jinja2", "packaging", "yaml"}
#: Packages by the name that they are installed under.
_INSTALLED = {"z3": "z3-solver"}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the package, which the digests are of."""
    copy = tmp_path / "generator"
    shutil.copytree(ROOT / "generator", copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(dependencies, "_ROOT", copy)
    forget()
    yield copy
    monkeypatch.undo()
    forget()


def forget() -> None:
    harness_digest.cache_clear()
    module.cache_clear()


@cache
def unchanged() -> tuple[dict[str, str], dict[str, Module]]:
    """The digest of each level where every file of a copy is as it was, and every module: the same in every test."""
    forget()
    before = {level: harness_digest(level) for level in LEVELS}
    return before, {name: module(name) for level in LEVELS for name in {*modules(ENTRIES[level]), *ALONE}}


def changed(package: Path, file: str, old: str, new: str) -> set[str]:
    """The levels of which nothing is known any more where a file says `new` for `old`."""
    before, known = unchanged()
    path = package / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    forget()

    def again(name: str) -> Module:
        """A module depends on files of its own folder alone: those of other folders are as they were."""
        found = dependencies._file(name)
        return module(name) if name not in known or found is None or found.parent == path.parent else known[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dependencies, "module", again)
        after = {level: harness_digest(level) for level in LEVELS}
    path.write_text(text)
    forget()
    return {level for level in LEVELS if before[level] != after[level]}


def test_every_level_has_an_entry_and_packages() -> None:
    assert ENTRIES.keys() == PACKAGES.keys() == set(LEVELS)


@pytest.mark.parametrize("entry", sorted(set(ENTRIES.values())))
def test_all_that_is_loaded_is_depended_on(entry: str) -> None:
    done = subprocess.run([sys.executable, "-c", _LOADS, entry], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert entry in loaded and loaded - modules(entry) == set()


@pytest.mark.parametrize("level", LEVELS)
def test_versions_of_all_that_is_imported_are_depended_on(level: str) -> None:
    imported = set()
    for name in modules(ENTRIES[level]):
        file = ROOT.joinpath(*name.split("."))
        file = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").partition(".")[0])
    foreign = imported - sys.stdlib_module_names - {"generator"} - _READERS
    assert {_INSTALLED.get(name, name) for name in foreign} <= set(PACKAGES[level])


def test_words_leave_everything_known(package: Path) -> None:
    assert changed(package, "verify/jobs.py", '"""One kernel, or', '"""Other words. One kernel, or') == set()
    assert changed(package, "bounds/verdicts.py", "\n\n\n", "\n\n\n# Why.\n") == set()
    assert changed(package, "verify/worker.py", "import torch\n", "import  torch  # first\n\n") == set()


def test_a_module_that_no_level_imports_leaves_everything_known(package: Path) -> None:
    never = ("bench/plot.py", "tune/tuning_run.py", "emit/render.py", "lowering/call_table.py", "verify/run_report.py")
    for file in (*never, "verify/page.py"):
        assert changed(package, file, "\n\n\n", "\n\n\nADDED = 1\n\n\n") == set(), file


def test_code_makes_the_levels_unknown_that_import_it(package: Path) -> None:
    ran = {"interpret", "gpu"}
    for file, levels in {
        "bounds/terms.py": {"bounds"},
        "verify/refusals.py": ran,
        "verify/unsupported_calls.py": ran,
        "verify/case_sizes.py": {"compile", *ran},
        "bounds/induction.py": {"bounds"},
        "verify/machine_code.py": {"compile"},
        "problem/reference.py": {"compile", *ran},
        "verify/static_checks.py": {"static"},
        "verify/manifest_configurations.py": {"static", "compile", *ran},
        "__init__.py": set(LEVELS),
        "bounds/__init__.py": {"bounds"},
        "verify/worker_pool.py": set(LEVELS),
        "verify/result_cache.py": set(LEVELS),
    }.items():
        # Behind everything else, wherever a docstring and `from __future__` stand.
        text = (package / file).read_text()
        assert changed(package, file, text, f"{text}\nADDED = 1\n") == levels, file


def test_data_beside_a_module_is_depended_on(package: Path) -> None:
    assert changed(package, "epilogue/operations.yaml", "0.5", "0.25") == {"static", "interpret", "compile", "gpu"}
    # What jobs cost says which run together, not what comes of them.
    assert changed(package, "verify/job_costs.json", "{", "{ ") == set()


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("import generator.verify.jobs", {"generator", "generator.verify", "generator.verify.jobs"}),
        ("import generator.verify.jobs as jobs", {"generator", "generator.verify", "generator.verify.jobs"}),
        ("from generator.verify import jobs", {"generator", "generator.verify", "generator.verify.jobs"}),
        ("from generator.verify.jobs import Job", {"generator", "generator.verify", "generator.verify.jobs"}),
        ("from . import jobs", {"generator", "generator.verify", "generator.verify.jobs"}),
        ("from .jobs import Job", {"generator", "generator.verify", "generator.verify.jobs"}),
        ("from ..emit.code_parts import Parts", {"generator", "generator.emit", "generator.emit.code_parts"}),
        ("def f():\n    from generator.bounds import prove", {"generator", "generator.bounds"}),
        (
            "if TYPE_CHECKING:\n    import generator.runtime.fitted",
            {"generator", "generator.runtime", "generator.runtime.fitted"},
        ),
        ("import torch, generators, os.path", set()),
    ],
)
def test_imports_are_found_however_they_are_written(statement: str, expected: set[str], package: Path) -> None:
    (package / "verify" / "added.py").write_text(statement + "\n")
    assert module("generator.verify.added").imports == expected


def test_a_module_that_is_not_there_is_refused() -> None:
    with pytest.raises(KeyError):
        modules("generator.verify.nothing")
