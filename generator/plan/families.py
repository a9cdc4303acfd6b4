"""Read and expand several specs, and report the mistakes of all of them together."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from generator.files.reading import real_path
from generator.language.errors import CallError, Mistake, SpecError
from generator.language.spec import read
from generator.language.vocabulary import ADDITIONS
from generator.plan.expand import expand
from generator.plan.kernels import Family


def families(paths: Iterable[Path], package: str | None = None, additions: Collection[str] = ()) -> list[Family]:
    """The families of the specs at `paths`, each once: several paths to one spec are one.

    `package`, if it is not None, takes the place of what the specs say for the key of this name. `additions` are added
    to the words of the key `with`.

    A link with another name is another spec, since the file's name gives the family its name. Raises `SpecError` with
    the mistakes of all specs; two specs with the same name are a mistake, too. Raises `CallError` for a folder, and for
    a word that is no file and has no suffix.
    """
    paths = list(paths)
    for path in paths:
        _require_spec(path)
    families_read: list[Family] = []
    mistakes: list[Mistake] = []
    known: set[tuple[str, str]] = set()
    for path in paths:
        spelled = path.name, real_path(path)
        if spelled in known:
            continue
        known.add(spelled)
        try:
            spec = read(path)
            words = tuple(word for word in ADDITIONS if word in {*spec.additions, *additions})
            family = expand(replace(spec, package=package or spec.package, additions=words))
        except SpecError as error:
            mistakes += error.mistakes
            continue
        twin = next((other for other in families_read if other.spec.name == family.spec.name), None)
        if twin is not None and real_path(twin.spec.path) == real_path(path):
            continue
        if twin is not None:
            reason = f"{family.spec.name!r} is also the name of {twin.spec.path}; two specs cannot share a folder"
            mistakes.append(family.spec.mistake(f"name: {reason}", "name"))
        families_read.append(family)
    if mistakes:
        raise SpecError(mistakes)
    return families_read


def _require_spec(path: Path) -> None:
    """Raise `CallError` for what cannot be meant as the path of a spec."""
    if path.is_dir():
        rendered = (path / "manifest.json").is_file()
        description = "a rendered family, which commands such as verify take" if rendered else "a folder"
        spec = min(path.glob("*.yaml"), default=None)
        such = "" if spec is None else f", such as {spec}"
        raise CallError(f"{path} is {description}; a spec is a YAML file{such}")
    if not path.suffix and not path.exists():
        near = [each for each in (path.with_suffix(".yaml"), "specs" / path.with_suffix(".yaml")) if each.is_file()]
        hint = f"; did you mean {near[0]}?" if near else ""
        raise CallError(f"there is no file or folder {str(path)!r}{hint}")
