"""Plants a mutation: a copy of what is needed of a rendered family, with one file of it changed."""

from __future__ import annotations

import json
from pathlib import Path

from generator.emit.apply import MANIFEST
from generator.emit.file_digests import digest
from generator.emit.render import DIGEST_LINE, RUNTIME, stated_and_actual_digest
from tests.helpers import shipped
from tests.helpers.call_functions import with_names

from .catalogue import Mutation


def mutated(mutation: Mutation) -> str:
    """The text of the mutation's file, changed; the digest in it follows, unless the mutation leaves it stale."""
    path = shipped.folder(mutation.kernel[0]) / mutation.file
    text = path.read_text()
    for old, new in mutation.changes:
        told = (
            f"{mutation.name!r} replaces a text that is {text.count(old)} times in {path}; let it follow the template"
        )
        assert text.count(old) == 1 and old != new, f"{told}:\n{old}"
        text = text.replace(old, new)
    text = with_names(text)
    return text if "digest" in mutation.stale else _restated(text)


def _restated(text: str) -> str:
    """The same body under a digest that is its own."""
    stated, actual = stated_and_actual_digest(text)
    assert stated is not None
    return text.replace(f"{DIGEST_LINE}{stated}\n", f"{DIGEST_LINE}{actual}\n", 1)


def plant(mutation: Mutation, folder: Path) -> Path:
    """Write to `folder` the part of the family that `mutation` is about, changed; return the family's folder there.

    It is the kernel with the library and the manifest, which tells of no other kernel; for a contract's function the
    whole family.
    """
    source, target = shipped.folder(mutation.kernel[0]), folder / mutation.kernel[0]
    manifest = json.loads((source / MANIFEST).read_text())
    if mutation.contract is None:
        manifest["kernels"] = {mutation.kernel[1]: manifest["kernels"][mutation.kernel[1]]}
        manifest.pop("never_chosen", None)
        own = f"{mutation.kernel[1]}.py"
        manifest["files"] = {
            name: stated
            for name, stated in manifest["files"].items()
            if name in (own, "_shared_memory.py") or name.startswith(f"{RUNTIME}/")
        }
    target.mkdir(parents=True)
    for name in manifest["files"]:
        text = mutated(mutation) if name == mutation.file else (source / name).read_text()
        (target / name).parent.mkdir(exist_ok=True)
        (target / name).write_text(text)
        if name == mutation.file and "manifest" not in mutation.stale:
            manifest["files"][name] = digest(text)
            if mutation.own is None:
                manifest["kernels"][mutation.kernel[1]]["sha256"] = stated_and_actual_digest(text)[1]
    (target / MANIFEST).write_text(json.dumps(manifest))
    return target
