"""Plants a mutation: a copy of what is needed of a rendered family, with one file of it changed."""

from __future__ import annotations

import json
from pathlib import Path

from generator.emit.apply import MANIFEST, digest
from generator.emit.render import DIGEST_LINE, RUNTIME, stated_and_actual_digest
from tests.helpers import shipped
from tests.helpers.call_functions import with_names

from .mutation import Mutation


class Rotten(Exception):
    """The rendered file no longer holds a text that a mutation replaces."""


def mutated(mutation: Mutation) -> str:
    """The text of the mutation's file, changed; the digest in it follows, unless the mutation leaves it stale."""
    path = shipped.folder(mutation.family) / mutation.file
    text = path.read_text()
    for old, new in mutation.changes:
        if text.count(old) != 1:
            raise Rotten(
                f"the mutation {mutation.name!r} replaces a text that is {text.count(old)} times in "
                f"{mutation.family}/{mutation.file}, and must be there once; the template has changed, so let the "
                f"mutation follow it:\n{old}"
            )
        if old == new:
            raise Rotten(f"the mutation {mutation.name!r} changes nothing: {old!r}")
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
    source, target = shipped.folder(mutation.family), folder / mutation.family
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
