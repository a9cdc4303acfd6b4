"""Families and kernels are loaded from their text: bytecode beside it may be of another one."""

import importlib
import importlib.util
import inspect
import os
import py_compile
import shutil
from pathlib import Path

import pytest

from generator.emit.loading import load_family, load_kernel
from generator.verify import folder_files
from tests.helpers.support import forget

KERNEL = "gemm_fp16_rcr_none__naive_pointer_mnk_linear"


@pytest.fixture(autouse=True)
def forgotten():
    yield
    forget("ladder")


def compiled(file, text, mode):
    """Bytecode of another text that Python takes for that of the file."""
    other = file.with_name("other_text.py")
    other.write_text(text)
    made = Path(py_compile.compile(str(other), doraise=True, invalidation_mode=mode) or "").read_bytes()
    shutil.rmtree(file.parent / "__pycache__")
    other.unlink()
    status, source = file.stat(), file.read_bytes()
    state = importlib.util.source_hash(source)
    if mode is py_compile.PycInvalidationMode.TIMESTAMP:
        state = int(status.st_mtime).to_bytes(4, "little") + len(source).to_bytes(4, "little")
    cache = Path(importlib.util.cache_from_source(str(file)))
    cache.parent.mkdir(exist_ok=True)
    cache.write_bytes(made[:8] + state + made[16:])


@pytest.mark.parametrize("mode", list(py_compile.PycInvalidationMode), ids=lambda mode: mode.name)
def test_bytecode_of_another_text_is_not_run_and_is_a_failure(ladder, mode):
    for name in (f"{KERNEL}.py", "nn.py", "__init__.py", "_runtime/launch.py"):
        compiled(ladder / name, "raise SystemExit('bytecode')\n", mode)
        assert load_kernel(ladder / f"{KERNEL}.py").CONFIGS
        family = load_family(ladder)
        assert family.nn.CONTRACTS and family._kernel(KERNEL).CONFIGS and family.gemm_fp16_rcr_none
        found = folder_files.failures(importlib.import_module("generator.emit.manifest_reader").read(ladder))
        folder, _, stem = f"/{name.removesuffix('.py')}".rpartition("/")
        assert [f"{folder}/__pycache__/{stem}." in failure.message for failure in found] == [True]
        shutil.rmtree((ladder / name).parent / "__pycache__")


def test_bytecode_that_python_has_made_is_none(ladder, monkeypatch):
    for name in (f"{KERNEL}.py", "nn.py"):
        for mode in (py_compile.PycInvalidationMode.TIMESTAMP, py_compile.PycInvalidationMode.CHECKED_HASH):
            for level in (0, 1, 2):
                py_compile.compile(str(ladder / name), doraise=True, invalidation_mode=mode, optimize=level)
    family = importlib.import_module("generator.emit.manifest_reader").read(ladder)
    assert not [*folder_files.failures(family)]
    # It is of a text that has changed since, which Python sees.
    (ladder / "nn.py").write_text((ladder / "nn.py").read_text() + "\n")
    assert not [failure for failure in folder_files.failures(family) if "__pycache__" in failure.message]


def test_triton_reads_the_text_that_is_loaded_whatever_its_times(tmp_path):
    """It takes a function's text from the cache of `linecache`, which goes by size and time."""
    file = tmp_path / "kernel.py"
    for number in (1, 2):
        file.write_text(f"def f():\n    return {number}\n")
        os.utime(file, (10**9, 10**9))
        function = load_kernel(file).f
        assert function() == number and f"return {number}" in inspect.getsource(function)
