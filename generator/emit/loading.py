"""Load rendered files as a stranger would: by path, with no help from the generator."""

from __future__ import annotations

import importlib
import importlib.util
import linecache
import os
import re
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from unittest.mock import patch

from generator import runtime
from generator.emit.package_files import imported
from generator.language.family_names import why_no_family


class _SourceLoader(SourceFileLoader):
    """Compiles a module from its text: bytecode beside it may be of another text, or of none."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        # Triton reads the text of a kernel by way of this, which may have that of an earlier file.
        linecache.cache.pop(path, None)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


#: The folders whose modules are compiled from their text.
_FOLDERS: set[str] = set()


def _source_finder(path: str) -> FileFinder:
    """A path hook: the finder of modules in a folder of a family."""
    if os.path.realpath(path) not in _FOLDERS:
        raise ImportError
    return FileFinder(path, (_SourceLoader, SOURCE_SUFFIXES))


def _read_sources_of(folder: Path) -> None:
    """Let whatever is imported from a family's folder, now or later, be compiled from its text."""
    if _source_finder not in sys.path_hooks:
        sys.path_hooks.insert(0, _source_finder)
    for each in (folder, *(path for path in folder.iterdir() if path.is_dir())):
        path = os.path.realpath(each)
        _FOLDERS.add(path)
        sys.path_importer_cache.pop(path, None)


def load_kernel(path: Path) -> ModuleType:
    """The module of one kernel's file, compiled from its text; raises whatever its import raises.

    It is a module of a package that is its folder, but for the functions of contracts: the family's `__init__` does not
    run. The library of the family, `_runtime`, is loaded again where its text is another than before.
    """
    folder = os.path.realpath(path.parent)
    _read_sources_of(Path(folder))
    name = f"_kernels_{zlib.crc32(os.fsencode(folder)):08x}"
    files = (*Path(folder, "_runtime").glob("*.py"), *Path(folder).glob("_shared_memory.py"))
    library = b"".join(each.read_bytes() for each in sorted(files))
    if _LIBRARIES.get(name) != library:
        for loaded in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
            del sys.modules[loaded]
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__path__ = [folder]
        _LIBRARIES[name] = library
    name = f"{name}.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_SourceLoader(name, str(path)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


#: The text of the libraries that `load_kernel` has loaded, by the name of the package.
_LIBRARIES: dict[str, bytes] = {}
#: The packages that `load_family` has loaded, by name.
_FAMILIES: dict[str, ModuleType] = {}


def load_family(folder: Path) -> ModuleType:
    """The package of a family's folder; raises whatever its import raises.

    Its name is that of the folder, unless another module has that name or could be imported under it. A family that was
    loaded under the name before is replaced, with its modules. All are compiled from their text.
    """
    path = os.path.realpath(folder)
    _read_sources_of(Path(path))
    # Else one that no module has: a word, because the family's operators have it as namespace.
    word = re.sub(r"[^A-Za-z0-9]+", "_", os.path.basename(path)).strip("_")
    private = f"_family_{zlib.crc32(os.fsencode(path)):08x}_{word}"
    name = folder.name if _is_free(folder.name, path) else private
    for loaded in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
        del sys.modules[loaded]
    file = os.path.join(path, "__init__.py")
    spec = importlib.util.spec_from_file_location(
        name, file, loader=_SourceLoader(name, file), submodule_search_locations=[path]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = _FAMILIES[name] = module
    spec.loader.exec_module(module)
    return module


def library_module(family: ModuleType, name: str) -> ModuleType:
    """A module of a loaded family's library, which is the generator's own where the family has none of the name."""
    full = f"{family.__name__}._runtime.{name}"
    try:
        return importlib.import_module(full)
    except ModuleNotFoundError as error:
        if error.name != full:
            raise
    path = Path(runtime.__file__).with_name(f"{name}.py")
    for needed in imported(name):
        library_module(family, needed)
    spec = importlib.util.spec_from_file_location(full, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[full] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _is_free(name: str, path: str) -> bool:
    """Whether a family in the folder `path` can be loaded as `name` without hiding a module."""
    if why_no_family(name) is not None:
        return False
    if name in sys.modules:
        return sys.modules[name] is _FAMILIES.get(name)
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is None or spec.origin == os.path.join(path, "__init__.py")


@contextmanager
def taken_for_memory(module: ModuleType) -> Iterator[None]:
    """Within, the call of a kernel's module takes operands on the device "meta" for operands that have memory."""
    if hasattr(module, "CALL"):
        taking = patch.dict(type(module.CALL).plan.__globals__, launchable=lambda given: True)
    else:
        # A file that stands alone has a function for it.
        taking = patch.dict(vars(module), _launchable=lambda read, **results: True)
    with taking:
        yield
