"""`explain` says what a spec renders and why, and what a call of its functions would run, on absent GPUs."""

import contextlib
import io
import multiprocessing
import os
import re
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from generator.commands.command_line import main
from generator.emit.manifest_reader import read
from generator.plan.devices import DEVICES
from generator.tune.predicted_choice import choices
from tests.helpers import shipped
from tests.helpers.support import BASE, GENERATED, ROOT
from tests.helpers.tuned_file import GOOD, SPEC

KERNEL = "gemm_fp16_rcr_none__naive_pointer_mnk_linear"


def test_a_spec_in_words(cli):
    Path("family.yaml").write_text(
        f"{BASE}epilogue: [none, bias]\nmasking: [auto, none]\nload: [pointer, descriptor]\n"
    )
    said = cli("explain", "family.yaml")
    assert (said.status, said.err) == (0, "")
    for line in (
        "family: 6 kernels of 2 contracts",
        "  gemm_fp16_rcr_bias: C = A @ B + bias; 3 kernels",
        "  tiled_descriptor_auto_grouped: of each contract, for sm90, with 10 configurations, Triton >=3.6,<3.10",
        "    masking none (line 5 of the spec): M, N and K must be multiples of the tile",
        "    schedule tiled (default): one program computes one tile, in a loop over K",
        "  the hardware bounds descriptor accesses, so 'masking: none' has no effect; use mnk or auto",
        "How a call chooses: computed from M, N, K and the device (select: heuristic).",
    ):
        assert f"{line}\n" in said.out


def test_measurements_are_the_reason(cli):
    Path("family.yaml").write_text(SPEC)
    Path("found.json").write_text(GOOD)
    assert cli("explain", "family.yaml").out.count("measured on Some GPU: the fastest at 1 of 2 sizes") == 2
    Path("fastest.yaml").write_text(f"{BASE}select: fastest\nload: descriptor\ntargets: [sm90]\n")
    out = cli("explain", "fastest.yaml").out
    assert "load descriptor (line 5 of the spec)" in out and "schedule persistent (by measurements)" in out
    assert "measured on NVIDIA H200: the fastest at" in out


def test_a_folder_and_a_kernel_without_their_spec(cli):
    said = cli("explain", GENERATED / "ladder" / f"{KERNEL}.py")
    assert said.status == 0 and said.out.startswith("ladder: 1 kernel of 1 contract\n")
    assert "    schedule naive: one program computes one tile, with all of K in one load\n" in said.out
    said = cli("explain", GENERATED / "ladder", "--only", "*naive*")
    assert said.out.startswith("ladder: 1 kernel of 1 contract\n") and "What is left out:\n  excluded: " in said.out


def _without_interpreter():
    os.environ.pop("TRITON_INTERPRET", None)


def _explained(arguments):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        status = main(["explain", *arguments])
    return status, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def sizes():
    """What a call runs, in a process whose Triton is no interpreter."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, _without_interpreter) as process:

        def explained(subject, *arguments):
            status, out, err = process.submit(_explained, [str(subject), *arguments]).result()
            assert (status, err) == (0, "")
            return out[re.search(r"^(A call of|\d+ calls with)", out, re.M).start() :]

        yield explained


def test_a_measured_size_and_another(sizes):
    spec = ROOT / "specs" / "fp16_rcr.yaml"
    out = sizes(spec, "--sizes", "4096,4096,4096", "--only", "gemm_fp16_rcr_none")
    assert "chosen: it is the fastest of those measured at this size" in out
    assert "µs by the model fitted to measurements" in out and "    measured: 18" in out
    assert "the vendor's library 18" in out
    out = sizes(GENERATED / "fp16_rcr", "--sizes", "1000,1000,1000", "--only", "gemm_fp16_rcr_bias")
    assert "chosen: the model fitted to measurements gives it the least time" in out
    assert "measured: nothing at this size" in out


def test_what_is_not_chosen_by_measurements(sizes, tmp_path):
    spec = tmp_path / "family.yaml"
    spec.write_text(BASE + "masking: none\n")
    assert "chosen: computed from M, N, K and the device" in sizes(spec, "--sizes", "4096,4096,4096")
    assert "gemm_fp16_rcr_none: cannot run\n    no kernel accepts the operands" in sizes(spec, "--sizes", "5,4096,4096")
    spec.write_text(BASE + "select: autotune\n")
    assert "the tuner measures 7 configurations at the first call" in sizes(spec, "--sizes", "64,64,64")
    spec.write_text(BASE + "select: fastest\n")
    out = sizes(spec, "--sizes", "512,512,512", "--device", "nvidia_a100_sxm4_80gb")
    assert "chosen: nothing like it was measured on this device, so the analytic model decides" in out


def test_a_call_that_goes_on_as_another_contract(sizes):
    out = sizes(shipped.folder("tf32"), "--sizes", "4096,4096,4096", "--only", "gemm_tf32_crr_none")
    assert "an operand is copied first" in out and "gemm_tf32_crr_none runs gemm_tf32_rrr_none__" in out


def test_several_sizes_are_a_line_for_each_choice(sizes):
    out = sizes(GENERATED / "fp16_rcr", "--sizes", "1:8192:*2,4096,4096", "--only", "gemm_fp16_rcr_none")
    head, contract, *lines = out.splitlines()
    assert head == "14 calls with contiguous operands on NVIDIA H200:" and contract == "  gemm_fp16_rcr_none"
    assert lines[0].startswith("    1x4096x4096 to ") and "8192x4096x4096: " in lines[-1] and 2 < len(lines) < 14
    assert all("BLOCK_M " in line and " µs" in line for line in lines)
    out = sizes(GENERATED / "ladder", "--sizes", "M=1:2,N=64,K=64", "--gpu", "a100")
    assert out.startswith("2 calls with contiguous operands on NVIDIA A100-SXM4-80GB:\n")


def test_a_batch_and_a_gate(sizes):
    out = sizes(shipped.folder("batched"), "--sizes", "3,512,512,512", "--only", "bmm_bf16_rrr_none")
    assert "A call of 3x512x512x512" in out and "configuration: BLOCK_M" in out
    out = sizes(GENERATED / "fused", "--sizes", "4096,14336,4096", "--only", "*swiglu")
    assert "measured: " in out and "the vendor's library" in out


def test_rows_of_groups_are_those_of_all_together(sizes):
    """481e9 products take an H200 more than 1 ms; of eight times as many rows they would take 8 ms."""
    out = sizes(GENERATED / "grouped", "--sizes", "8,4096,14336,4096", "--only", "gmm_bf16_rcr_swiglu")
    estimates = [float(line.split()[1]) for line in out.splitlines() if line.startswith("    estimate: ")]
    assert len(estimates) == 2 and all(1 < each < 2 for each in estimates) and out.count(" ms by") == 2


@pytest.fixture(scope="module")
def family():
    return read(GENERATED / "fp32")


@pytest.mark.parametrize(
    ("layout", "sizes", "runs"),
    [
        # Of many rows a B whose K is contiguous is copied, and of few rows A.
        *(("rcr", (8192, 4096, 6144), "rrr copied"), ("rcr", (128, 1024, 4096), "rrr copied")),
        *(("rcr", (128, 4096, 4096), "ccr copied"), ("rcr", (127, 4096, 4096), "ccr copied")),
        # Fewest rows are summed, without a copy.
        *(("rcr", (3, 4096, 16384), "rcr summed"), ("rcr", (1, 4096, 4096), "rcr summed")),
        *(("ccr", (2, 4096, 4096), "ccr summed"), ("rcr", (100, 100, 1003), "rcr")),
        # Rows of any length: without descriptors, what was measured of whole rows is the best that is known.
        *(("rrr", (1000, 1000, 1003), "rrr"), ("crr", (301, 1001, 1003), "crr")),
        *(("ccr", (63, 4096, 4096), "ccr"), ("ccr", (6, 45312, 8576), "ccr")),
    ],
)
def test_fp32_is_chosen_by_what_was_measured(family, layout, sizes, runs):
    name = f"gemm_fp32_{layout}_none"
    (found,) = choices(family.folder, [name], family.by_name, [sizes], DEVICES["nvidia_h200"])
    assert found.refused is None and found.contract == name
    other, _, how = runs.partition(" ")
    assert found.kernel.startswith(f"gemm_fp32_{other}_none__") and found.copied == (how == "copied")
    assert how != "summed" or found.kernel.endswith("_productsummed")
    assert found.fitted is not None
