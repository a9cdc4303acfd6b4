"""The data files of the package: templates, measurements, operations, suites."""

from __future__ import annotations

from pathlib import Path

from generator.files.generator_error import GeneratorError

PACKAGE = Path(__file__).resolve().parents[1]


class NotInstalled(GeneratorError):
    """The package has no data files where it is, as in a zip archive."""


def data(*parts: str) -> Path:
    """A data file or folder, by the parts of its path in the package; raises `NotInstalled` if it is not there."""
    path, name = PACKAGE.joinpath(*parts), "/".join(parts)
    if path.exists():
        return path
    if PACKAGE.is_dir():
        raise NotInstalled(f"{PACKAGE}: the package's {name} is missing: install gemm-generator with pip again")
    reason = f"templates and other data, such as {name}, are read as files"
    raise NotInstalled(f"{PACKAGE}: the package is in an archive; install it with pip: {reason}")


def shared(name: str, checkout: str) -> Path:
    """A folder that a wheel has inside the package, and a checkout as `checkout`; raises `NotInstalled`."""
    return shared_if_there(name, checkout) or data(name)


def shared_if_there(name: str, checkout: str) -> Path | None:
    """The same, or None for a package that works without it."""
    return next((folder for folder in (PACKAGE / name, PACKAGE.parent / checkout) if folder.is_dir()), None)
