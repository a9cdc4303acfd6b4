"""What docs/gpus.md says of fp8 on GPUs whose matrix unit does not multiply it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import triton
from triton.compiler import ASTSource, CompilationError

from generator.emit.loading import load_kernel
from generator.emit.manifest_reader import read
from generator.verify.launches import launches
from generator.verify.specialise import gpu_target, specialise
from tests.helpers import shipped
from tests.helpers.support import ROOT, Spoken
from tests.helpers.verify.rendered import rendered

PAGE = (ROOT / "docs" / "gpus.md").read_text(encoding="utf-8").partition("## fp8 on an A100\n")[2].partition("\n## ")[0]
SPEC = "summary: On an A100.\nlayout: rcr\nload: pointer\nmasking: mnk\ntile: [{m: 16, n: 64, k: 64, warps: 4}]\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kernels of both types, rendered for sm90."""
    spec = f"{SPEC}dtype: [fp8e4m3, fp8e5m2]\ntargets: [sm90]\n"
    return rendered(tmp_path_factory.mktemp("fp8"), "eight", spec).folder


def compiled(folder: Path, dtype: str) -> str:
    """The PTX of a kernel for an A100, as its launch there asks for it."""
    (kernel,) = (each for each in read(folder).kernels if each.variant.dtype.a == dtype)
    (launch,) = (each for each in launches(kernel, "sm90") if each.case.name == "aligned")
    (wanted,) = specialise(load_kernel(folder / f"{kernel.name}.py"), kernel, launch, "sm80")
    source = ASTSource(wanted.function, wanted.signature, wanted.constants, wanted.known)  # type: ignore[arg-type]
    ptx: str = triton.compile(source, target=gpu_target("sm80"), options=wanted.options).asm["ptx"]
    return ptx


def test_triton_refuses_one_type_for_an_a100_and_converts_the_other(folder: Path) -> None:
    told = "type fp8e4nv not supported in this architecture"
    with pytest.raises(CompilationError, match=told):
        compiled(folder, "fp8e4m3")
    assert "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" in compiled(folder, "fp8e5m2")
    assert f"ends with `{told}`" in PAGE and "elements are converted to fp16" in PAGE


@pytest.mark.parametrize("sizes", ["64,4096,4096", "1:64:*8,4096,4096"])
def test_explain_says_that_they_cannot_run(cli: Callable[..., Spoken], sizes: str) -> None:
    said = cli("explain", shipped.folder("fp8e4m3_rcr"), "--only", "*e?m?_rcr_none*", "--sizes", sizes, "--gpu", "a100")
    assert said.status == 0 and said.out.count("cannot run") == 2 and "estimate" not in said.out
    assert said.out.count("sm80 does not multiply fp8e") == 2
