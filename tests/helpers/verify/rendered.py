"""Families that a test renders from a spec of its own, and one of their kernels with a mistake."""

from __future__ import annotations

from pathlib import Path

from generator.emit.manifest_reader import Rendered, read
from generator.emit.render import RUNTIME
from tests.helpers.call_functions import with_names
from tests.helpers.support import render_spec


def rendered(folder: Path, name: str, spec: str) -> Rendered:
    """The family `name` of a spec, rendered below `folder`."""
    return read(render_spec(folder, name, spec))


def changed(family: Rendered, folder: Path, kernel: str, old: str, new: str) -> Path:
    """A family's folder with one kernel and its library, if any: a text that is once in one of them is replaced."""
    files = [family.file(kernel), *sorted((family.folder / RUNTIME).glob("*.py"))]
    files += family.folder.glob("_shared_memory.py")
    assert [path.read_text().count(old) for path in files if old in path.read_text()] == [1], old
    folder.mkdir(parents=True)
    if len(files) > 1:
        (folder / RUNTIME).mkdir()
    (folder / "manifest.json").write_bytes((family.folder / "manifest.json").read_bytes())
    for path in files:
        (folder / path.relative_to(family.folder)).write_text(with_names(path.read_text().replace(old, new)))
    return folder
