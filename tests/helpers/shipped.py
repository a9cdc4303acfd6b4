"""The rendered families of specs/: those of `generated/`, and the others rendered once into `build/families`.

Pages take figures from them, too: nothing here imports pytest.
"""

from __future__ import annotations

import functools
from pathlib import Path

from generator.emit import kept_digests
from generator.emit.apply import MANIFEST
from generator.emit.file_digests import digest
from generator.plan.families import families

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / "generated"
#: What git ignores, and all processes of a run of the tests share.
_ASIDE = ROOT / "build" / "families"
kept_digests.aside = lambda: _ASIDE


@functools.cache
def folder(name: str) -> Path:
    """The rendered folder of a family of specs/."""
    if (GENERATED / name / MANIFEST).is_file():
        return GENERATED / name
    manifest, wanted = _ASIDE / name / MANIFEST, kept_digests.digests(GENERATED).get(name)
    if manifest.is_file() and digest(manifest.read_text(encoding="utf-8")) == wanted:
        return manifest.parent
    # The spec is expanded to find the folder, which takes a second for all.
    return kept_digests.folder(*families([ROOT / "specs" / f"{name}.yaml"]), GENERATED)


def folders() -> list[Path]:
    """The rendered folders of all families of specs/, by name."""
    return [folder(path.stem) for path in sorted((ROOT / "specs").glob("*.yaml"))]
