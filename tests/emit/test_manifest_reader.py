"""A family read back from its manifest: what was expanded, and nothing that a manifest cannot mean."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from generator.emit.manifest_reader import read
from generator.emit.package_files import package_names
from generator.language.errors import CallError
from generator.language.spec import read as read_spec
from generator.plan.expand import expand
from tests.helpers import shipped
from tests.helpers.support import GENERATED, SPECS


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_the_manifest_tells_what_the_spec_expands_to(path: Path) -> None:
    family = expand(read_spec(path))
    found = read(shipped.folder(family.spec.name))
    assert found.kernels == family.kernels
    assert found.left_out == family.left_out
    assert found.name == family.spec.name
    modules = sorted(name for name in package_names(family) if name.endswith(".py"))
    assert found.own_modules == modules


def ladder(folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a small family with its manifest changed."""
    shutil.copytree(GENERATED / "ladder", folder / "ladder")
    path = folder / "ladder" / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
    return folder / "ladder"


def first(manifest: dict[str, Any]) -> dict[str, Any]:
    return next(iter(manifest["kernels"].values()))


def renamed(manifest: dict[str, Any]) -> None:
    manifest["kernels"] = {f"../{name}": entry for name, entry in manifest["kernels"].items()}


def hostile(manifest: dict[str, Any]) -> None:
    manifest["operations"]["relu"] = {"formula": "__import__('os').system('true')", "operands": {}}
    first(manifest)["axes"]["epilogue"] = [{"operation": "relu", "operands": {}}]


def with_step(manifest: dict[str, Any], operation: dict[str, Any], settings: dict[str, Any]) -> None:
    """One kernel has an epilogue of this operation, without operands."""
    manifest["operations"]["f"] = operation
    first(manifest)["axes"]["epilogue"] = [{"operation": "f", "operands": {}, "settings": settings}]


def outward(manifest: dict[str, Any]) -> None:
    """An operation whose name, which is part of the kernel's, leads out of the folder."""
    manifest["operations"]["/../x"] = {"formula": "x", "operands": {}}
    name, entry = next(iter(manifest["kernels"].items()))
    entry["axes"]["epilogue"] = [{"operation": "/../x", "operands": {}}]
    manifest["kernels"] = {name.replace("_none__", "_/../x__"): entry}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.update(manifest=2), "version 2"),
        (lambda m: m.pop("kernels"), "must contain ['kernels']"),
        (
            lambda m: first(m)["axes"].update(schedule="fast"),
            "axes.schedule must be one of",
        ),
        (lambda m: first(m)["axes"]["layout"].update(a="diagonal"), "axes.layout.a must be one of"),
        (lambda m: first(m)["axes"]["dtype"].update(acc="fp64"), "axes.dtype.acc must be one of"),
        (lambda m: first(m).update(targets=["sm70"]), "targets.0 must be one of"),
        (lambda m: first(m).update(tiles=[{"m": 16}]), "must contain"),
        (lambda m: first(m).update(tiles=3), "tiles must be array, found 3"),
        (lambda m: first(m).update(tiles=[{"m": float("inf")}]), "Infinity is not a finite number"),
        (lambda m: m.update(kernels=[]), "kernels must be object, found []"),
        (renamed, "must not contain"),
        (hostile, "is not part of the formula language"),
        (lambda m: with_step(m, {"formula": "x * s", "operands": {"s": "K"}}, {}), "operands.s must"),
        (lambda m: with_step(m, {"formula": "x * s", "operands": {"s": "M"}}, {}), "the operands of 'f' are"),
        (
            lambda m: with_step(m, {"formula": "x * s", "operands": {}, "scalars": {"s": [1]}}, {}),
            "scalars.s cannot",
        ),
        (
            lambda m: with_step(m, {"formula": "x * s", "operands": {}, "scalars": {"s": "nan"}}, {}),
            "scalars.s cannot",
        ),
        (lambda m: with_step(m, {"formula": "x / s", "operands": {}, "scalars": {"s": 1}}, {"s": 0}), "divides by 0"),
        (
            lambda m: with_step(m, {"formula": "x / s", "operands": {}, "scalars": {"s": 1}}, {"s": "0"}),
            "settings.s cannot",
        ),
        (lambda m: with_step(m, {"formula": "x", "operands": {}}, {"s": 2}), "settings of"),
        (outward, "must not contain"),
    ],
)
def test_a_manifest_that_tells_what_cannot_be_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], words: str
) -> None:
    with pytest.raises(CallError, match=r"is invalid|version|is not a manifest") as caught:
        read(ladder(tmp_path, change))
    assert words in str(caught.value)
    assert str(tmp_path / "ladder" / "manifest.json") in str(caught.value)


def test_a_folder_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CallError, match="holds no rendered family"):
        read(tmp_path)


def test_a_broken_manifest_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(CallError, match=r"manifest\.json:1: is invalid: is not JSON"):
        read(tmp_path)


@pytest.mark.parametrize(
    "name", ["../x.py", "/x.py", "a/x.py", "_runtime/../x.py", "x.sh", "x.py\n", "", ".", "a\\x.py", "\0.py"]
)
def test_a_file_has_a_plain_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(CallError, match="is invalid: files must not contain"):
        read(ladder(tmp_path, lambda manifest: manifest["files"].update({name: "0" * 64})))


def test_a_file_may_be_in_the_folder_of_what_all_kernels_share(tmp_path: Path) -> None:
    folder = ladder(tmp_path, lambda manifest: manifest["files"].update({"_runtime/launch.py": "0" * 64}))
    assert "_runtime/launch.py" in read(folder).files
