"""`python -m generator prepare`: a cache that is filled without a GPU, and that launches on the GPU find."""

import re
import shutil

import pytest
import triton
from triton.compiler import ASTSource

from generator.emit.loading import load_kernel
from generator.emit.manifest_reader import read
from generator.verify.launches import launches
from generator.verify.specialise import gpu_target, specialise
from tests.helpers import shipped
from tests.helpers.support import GENERATED, ROOT, forget, python
from tests.helpers.verify.rendered import rendered

SPEC = """\
summary: Compiled ahead.
layout: rcr
dtype: fp16
epilogue: [none, relu]
load: pointer
masking: mnk
tile: [{m: 16, n: 16, k: 16, warps: 1}]
targets: [sm90]
"""


@pytest.fixture
def family(tmp_path):
    return rendered(tmp_path, "ahead", SPEC).folder


def test_a_second_run_compiles_nothing(family, tmp_path):
    (tmp_path / "shapes.txt").write_text("32x32,16  # aligned\n\n32x48,1-2,16\n")
    command = ("-m", "generator", "prepare", family, "--device", "nvidia_h200", "--aligned", "--cache", "cache")
    outputs = []
    for shapes in ("32x32,16", "shapes.txt", "shapes.txt"):
        ran = python(*command, "--only", "*none", "--shapes", shapes, cwd=tmp_path)
        assert (ran.returncode, ran.stderr) == (0, "")
        counts, size = ran.stdout.splitlines()
        found = re.fullmatch(r"(\d+) kernels compiled for NVIDIA H200, (\d+) were in the cache", counts)
        assert found is not None and re.fullmatch(r"cache: \d+\.\d MB", size)
        outputs.append((int(found[1]), int(found[2])))
    (first, none), (more, kept), again = outputs
    assert (first, none) == (1, 0) and more > 1 and kept == 1 and again == (0, more + kept)


@pytest.mark.parametrize(
    ("words", "compiled"),
    [("schedule: tiled", 2), ("schedule: split_k", 4), ("schedule: decoded\ndtype: {a: fp16, b: fp8e5m2}", 4)],
)
def test_the_launch_of_a_call_finds_what_was_compiled(tmp_path, monkeypatch, cli, words, compiled):
    """By what Triton's launch path makes of a call of the kernel's own file, at another path."""
    kept = SPEC.replace("dtype: fp16\n", "") if "dtype" in words else SPEC
    family, cache = rendered(tmp_path, "ahead", f"{kept}{words}\n").folder, tmp_path / "cache"
    monkeypatch.setenv("TRITON_CACHE_DIR", str(cache))
    said = cli("prepare", family, "--device", "nvidia_h200", "--shapes", "32x32,32", "--aligned")
    forget("ahead")
    assert said.status == 0 and said.out.startswith(f"{compiled} kernels compiled")
    hits = []
    monkeypatch.setattr(triton.knobs.compilation, "listener", lambda *, cache_hit, **_: hits.append(cache_hit))
    shutil.copytree(family, tmp_path / "elsewhere")
    for kernel in read(family).by_name.values():
        copy = tmp_path / "elsewhere" / "copy.py"
        copy.write_text((family / f"{kernel.name}.py").read_text())
        module = load_kernel(copy)
        module.__name__ = kernel.name
        (launch,) = [launch for launch in launches(kernel, "sm90") if launch.case.name == "aligned"]
        assert launch.case.sizes == (32, 32, 32)
        for wanted in specialise(module, kernel, launch, "sm90"):
            source = ASTSource(wanted.function, wanted.signature, wanted.constants, wanted.known)
            triton.compile(source, target=gpu_target("sm90"), options=wanted.options)
    assert hits == [True] * compiled


def test_sizes_are_those_of_each_contract(cli, tmp_path):
    """A batch is that of the contracts that have one, and of a symmetric result M is N."""
    rendered(tmp_path, "ahead", f"{SPEC}batch: [none, strided]\nresult: symmetric\n")
    told = []
    for shapes in ("32x32,32", "32x32,16", "32x32,32,16"):
        cache = tmp_path / "cache"
        options = ("--device", "nvidia_h200", "--only", "*none*", "--aligned", "--batch", "3", "--cache", cache)
        told.append(cli("prepare", tmp_path / "ahead", *options, "--shapes", shapes))
        forget("ahead")
    assert told[0].status == 0 and told[0].out.startswith("2 kernels compiled")
    reason = "gemm_fp16_rcr_none_resultsymmetric: M is 16 and N is 32: they must be equal; C is symmetric, so N is M"
    assert {(each.status, each.err.rstrip()) for each in told[1:]} == {(2, f"python -m generator: 32x32: {reason}")}


#: Contracts of which no kernel runs on the first target, and one that does.
LACKING = """\
summary: Results in fp8.
layout: rcr
dtype: fp16
epilogue: [none, [{quantize: {to: fp8e4m3}}]]
load: pointer
tile: [{m: 16, n: 128, k: 32, warps: 4}]
targets: [sm90]
"""


def test_contracts_that_no_kernel_computes_on_the_device_are_left_out(cli, tmp_path):
    """They do not compile there; nothing is said of that in Triton's words."""
    family = rendered(tmp_path, "lacking", LACKING).folder
    reason = "Triton cannot convert results to fp8e4m3 on sm80; use int8"
    call = (family, "--gpu", "a100", "--shapes", "128x32,16", "--cache", tmp_path / "cache", "--aligned")
    said = cli("prepare", *call, "--only", "*quantize*")
    assert said.status == 2 and f"runs on NVIDIA A100-SXM4-80GB: {reason}\n" in said.err and not said.out
    said = cli("prepare", *call)
    assert said.status == 0 and said.out.startswith(f"left out: gemm_fp16_rcr_quantize_fp8e4m3: {reason}\n1 kernels")
    call = ("package", family, "--format", "cubin", *call[1:5], "--out", tmp_path / "made")
    said = cli(*call, "--only", "*quantize*")
    assert said.status == 2 and f"no contract can be packed: gemm_fp16_rcr_quantize_fp8e4m3: {reason}" in said.err
    said = cli(*call)
    assert said.status == 0 and said.out.startswith(f"left out: gemm_fp16_rcr_quantize_fp8e4m3: {reason}\n")
    forget("lacking")


def test_the_interpreter_compiles_nothing(cli, monkeypatch):
    monkeypatch.setattr(triton.knobs.runtime, "interpret", True)
    said = cli("prepare", GENERATED / "fp16_rcr", "--device", "nvidia_h200", "--shapes", "64x64,1")
    assert said.status == 2 and "unset TRITON_INTERPRET" in said.err


@pytest.mark.parametrize("package", ["plain", "files"])
def test_a_family_without_prepare(cli, tmp_path, package):
    cli(ROOT / "specs/fp32_rcr.yaml", "--package", package, "--out", tmp_path)
    said = cli("prepare", tmp_path / "fp32_rcr", "--device", "nvidia_h200", "--shapes", "64x64,1")
    told = f"is rendered with 'package: {package}', which has no prepare; render it with 'package: torch'"
    assert said.status == 2 and told in said.err and not said.out


@pytest.mark.parametrize("sizes", ["64,4096,4096", "1:64:*8,4096,4096"])
def test_explain_says_what_the_device_cannot_run(cli, sizes):
    said = cli("explain", shipped.folder("fp8e4m3_rcr"), "--only", "*e?m?_rcr_none*", "--sizes", sizes, "--gpu", "a100")
    assert said.status == 0 and said.out.count("cannot run") == 2 and "estimate" not in said.out
    assert said.out.count("sm80 does not multiply fp8e") == 2
