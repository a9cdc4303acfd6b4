"""The versions of the packages that an import would take, without importing them."""

from __future__ import annotations

import ast
from importlib.metadata import PackageNotFoundError, distributions, version
from importlib.util import find_spec
from pathlib import Path

#: The modules of packages that have another name.
_MODULES = {"z3-solver": "z3"}
#: The files of a package that may state its version.
_STATING = ("__init__.py", "version.py", "_version.py")


def installed(package: str) -> str:
    """The version of the package that an import would take; raises PackageNotFoundError if there is none.

    A folder that is put first in PYTHONPATH may hold another version than the one that `importlib.metadata` finds, and
    no metadata: the version is then the one that the package's own text states.
    """
    spec = find_spec(_MODULES.get(package, package))
    if spec is None or spec.origin is None:
        return version(package)
    folder = Path(spec.origin).parent
    for found in distributions(name=package, path=[str(folder.parent)]):
        return found.version
    for name in _STATING:
        stated = _stated(folder / name)
        if stated is not None:
            return stated
    raise PackageNotFoundError(package)


def _stated(file: Path) -> str | None:
    """The text that a module assigns to `__version__`, or None."""
    if not file.is_file():
        return None
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign([ast.Name("__version__")], ast.Constant(str(stated))):
                return stated
            case ast.AnnAssign(ast.Name("__version__"), _, ast.Constant(str(stated))):
                return stated
    return None
