"""Families with less host code, `package: plain` and `package: files`, at each level."""

import importlib.util
import shutil

import pytest

from generator.verify.jobs import LEVELS
from generator.verify.launches import launches
from generator.verify.machine_code import compile_to_machine_code
from generator.verify.specialise import specialise
from tests.helpers.verify.rendered import rendered

SPEC = """\
summary: One kernel.
layout: rcr
dtype: fp16
epilogue: bias+relu
masking: mnk
tile: [{m: 16, n: 16, k: 16, warps: 1}]
targets: [sm90]
package: PACKAGE
"""
KERNEL = "gemm_fp16_rcr_bias_relu__tiled_pointer_mnk_grouped"
ALONE = (
    "bounds: left out: its file stands alone, without the table CALL that is proved; render it with 'package: plain'"
)


def asked(*levels):
    return [word for level in levels for word in ("--level", level)]


@pytest.mark.parametrize(("package", "passed"), [("plain", 5), ("files", 3)])
def test_each_level_proves_what_it_can(package, passed, cli, tmp_path, shared_workers):
    """Of files there is no function of a contract, and no table that the bounds level reads."""
    family = rendered(tmp_path, "few", SPEC.replace("PACKAGE", package))
    said = cli("verify", family.folder, *asked(*LEVELS[:-1]), "--target", "sm90", "--jobs", "1")
    assert said.status == 0 and f"all {passed} passed" in said.out, said
    assert (ALONE in said.out) == (package == "files")


@pytest.mark.parametrize("module", ["linear_layer", "grün", "linear-layer", "1st"])
def test_a_kernel_has_the_name_of_its_file_as_rendered(tmp_path, monkeypatch, module):
    """A copy of any name compiles, and torch finds the function's name in what Triton makes of it."""
    # The assembler has no report of what Triton's cache holds already.
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    family = rendered(tmp_path, "few", SPEC.replace("PACKAGE", "files"))
    path = tmp_path / "1st-grün.py"
    shutil.copy(family.file(KERNEL), path)
    found = importlib.util.spec_from_file_location(module, path)
    loaded = importlib.util.module_from_spec(found)
    found.loader.exec_module(loaded)
    kernel = family.by_name[KERNEL]
    (wanted,) = specialise(loaded, kernel, launches(kernel, "sm90")[0], "sm90")
    # torch._higher_order_ops.triton_kernel_wrap looks for `fn.__name__` in the symbol.
    assert wanted.function.fn.__name__ == wanted.function.__name__ == KERNEL
    assert f"tt.func public @{KERNEL}(" in compile_to_machine_code(wanted, "sm90").ir
