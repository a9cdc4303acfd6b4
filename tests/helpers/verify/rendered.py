"""Families that a test renders from a spec of its own, and one of their kernels with a mistake."""

from __future__ import annotations

from pathlib import Path

from generator.cli import main
from generator.emit.manifest_reader import Rendered, read


def rendered(folder: Path, name: str, spec: str) -> Rendered:
    """The family `name` of a spec, rendered below `folder`."""
    (folder / f"{name}.yaml").write_text(spec)
    assert main([str(folder / f"{name}.yaml"), "--out", str(folder)]) == 0
    return read(folder / name)


def changed(family: Rendered, folder: Path, kernel: str, old: str, new: str) -> Path:
    """A family's folder with one kernel, one text of which is replaced."""
    text = family.file(kernel).read_text()
    assert text.count(old) == 1, old
    folder.mkdir()
    (folder / "manifest.json").write_bytes((family.folder / "manifest.json").read_bytes())
    (folder / f"{kernel}.py").write_text(text.replace(old, new))
    return folder
