"""The compile level: what it reads from machine code, and what it refuses."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from generator.emit.render import DIGEST_LINE
from generator.verify.jobs import Job, JobResult
from generator.verify.machine_code import CompileError, _amd_registers, _nvidia_registers
from generator.verify.worker_pool import Pool
from tests.helpers import shipped
from tests.helpers.support import ROOT

RELU = "gemm_fp16_rcr_bias_relu__tiled_pointer_auto_grouped"
DESCRIPTOR = "gemm_fp16_rcr_bias_relu__tiled_descriptor_auto_grouped"
IEEE = "gemm_fp32_rcr_none__tiled_pointer_auto_grouped"
FP8 = "gemm_fp8e4m3_rcr_none__tiled_pointer_auto_grouped"
FAST = "gemm_fp8e4m3_fp32_bf16_fast_rcr_none__tiled_pointer_auto_grouped"
TANH = "gemm_fp16_rcr_tanh_softcap__tiled_pointer_auto_grouped_mathfast"
HELD = "gemm_tf32_rrr_none__tiled_pointer_auto_grouped_productexchanged"
WEIGHTS = "gemm_bf16xint4_fp32_bf16_b128x1_rcr_none__tiled_pointer_auto_grouped_storepointer_productexchanged"
SPARSE = "gemm_fp16_sparse24_rcr_none__tiled_pointer_auto_grouped_storepointer_productexchanged"
SCALED = "gemm_mxfp4_fp32_bf16_rcr_none__tiled_pointer_auto_grouped_productscaled"
MIXED = "gemm_mxfp8e4m3xmxfp4_fp32_bf16_rcr_none__tiled_pointer_auto_grouped_productscaled"
ROUNDED = "gemm_bf16_rcr_scale_biasm_silu_mul_roundingtorch__tiled_pointer_auto_grouped"

#: Family, kernel, target, launch, the text replaced and by what, and what is said of it.
WRONG = {
    "a plain maximum": (
        "fp16_rcr", RELU, "sm90", "row5-aligned",
        ", propagate_nan=tl.PropagateNan.ALL", "", "drops NaN",
    ),
    "tf32 for ieee": (
        "fp32_rcr", IEEE, "sm80", "row2-aligned",
        'input_precision="ieee"', 'input_precision="tf32"', "expected plain arithmetic",
    ),
    "products in the short accumulator": (
        "fp8e4m3_rcr", FP8, "sm90", "row4-aligned",
        ", max_num_imprecise_acc=BLOCK_K if BLOCK_K < 128 else 128", "", "short accumulator",
    ),
    "fast products promoted": (
        "fp8e4m3_rcr", FAST, "sm90", "row0-aligned",
        "acc = tl.dot(a, b, acc)", "acc = tl.dot(a, b, acc, max_num_imprecise_acc=64)",
        "promoted every 64 elements along K",
    ),
    "too much shared memory": (
        "fp16_rcr", RELU, "sm90", "row5-aligned",
        '"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 128, "GROUP_M": 8, "num_warps": 4, "num_stages": 4',
        '"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 128, "GROUP_M": 8, "num_warps": 4, "num_stages": 20',
        "bytes of shared memory, and sm90 has 232448",
    ),
    "no asynchronous copies": (
        "fp16_rcr", RELU, "sm80", "row5-aligned",
        "a_ptrs += BLOCK_K\n        b_ptrs += BLOCK_K",
        "a_ptrs += BLOCK_K\n        b_ptrs += BLOCK_K\n        tl.debug_barrier()", "not pipelined",
    ),
    "no approximate instructions": (
        "fast", TANH, "sm90", "row5-aligned", '"APPROX": approximate(a)', '"APPROX": False',
        "without the hardware's approximate instructions",
    ),
    "a compiler error": (
        "fp16_rcr", RELU, "sm90", "row5-aligned",
        "x = acc + bias[None, :]", "x = acc + bias[None, :, None]", "CompilationError",
    ),
    "fused where each is rounded": (
        "rounding", ROUNDED, "sm90", "row0-scalar-tensor", '                "enable_fp_fusion": False,\n', "",
        "rounds after each operation, but the launch lets the compiler fuse operations",
    ),
    "turned around": (
        "tf32", HELD, "sm90", "row4-aligned",
        "b = (b.to(tl.int32, bitcast=True) & -0x2000).to(tl.float32, bitcast=True)", "pass",
        "wgmma reads b from shared memory",
    ),
    "scaled blocks converted": (
        "mx_scaled", SCALED, "sm100", "row2-aligned",
        '"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 128', '"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 128',
        "matrix products scale blocks, expected all",
    ),
    "no launch": (
        "fp16_rcr", RELU, "sm90", "row5-aligned",
        "    launches=(\n", "    launches=0 * (\n", "0 launches",
    ),
}  # fmt: skip

RIGHT = {
    "approximations": ("fast", TANH, "sm80", "row5-aligned", "approximation, cp.async, mma.sync"),
    "no approximations": ("fast", TANH, "gfx942", "row5-aligned", "mfma"),
    "wgmma": ("fp16_rcr", RELU, "sm90", "row2-aligned", "cp.async, wgmma"),
    "wgmma from registers": ("tf32", HELD, "sm90", "row4-aligned", "cp.async, wgmma, wgmma from registers"),
    "weights from registers": ("int4_rcr", WEIGHTS, "sm90", "row5-aligned", "cp.async, wgmma, wgmma from registers"),
    "half of the weights": ("sparse24", SPARSE, "sm90", "row7-aligned", "cp.async, wgmma, wgmma from registers"),
    "mma.sync": ("fp16_rcr", RELU, "sm80", "row5-aligned", "cp.async, mma.sync"),
    "tcgen05": ("fp16_rcr", RELU, "sm100", "row4-aligned", "cp.async, tcgen05"),
    "tcgen05 with scales": ("mx_scaled", MIXED, "sm100", "row2-aligned", "cp.async, scaled, tcgen05"),
    "tcgen05 of 4 bits": ("mx_scaled", SCALED, "sm100", "row2-aligned", "cp.async, scaled, scaled 4 bits, tcgen05"),
    "mma.sync with scales": ("mx_scaled", SCALED, "sm120", "row2-aligned", "cp.async, mma.sync, scaled, scaled 4 bits"),
    "mfma": ("fp16_rcr", RELU, "gfx942", "row5-aligned", "mfma"),
    "wmma": ("fp16_rcr", RELU, "gfx1100", "row5-aligned", "wmma"),
    "descriptor": ("fp16_rcr", DESCRIPTOR, "sm90", "row5-aligned", "bulk copy in, bulk copy out, mma.sync"),
    "refused": ("fp16_rcr", RELU, "gfx942", "row3-refused", ""),
}


def spoilt(folder: Path, family: str, kernel: str, old: str, new: str) -> Path:
    """A copy of a family with a text of one kernel replaced."""
    shutil.copytree(shipped.folder(family), folder / family)
    file = folder / family / f"{kernel}.py"
    head, line, body = file.read_text().partition(DIGEST_LINE)
    _, _, body = body.partition("\n")
    assert body.count(old) == 1, old
    body = body.replace(old, new)
    file.write_text(f"{head}{line}{hashlib.sha256(body.encode()).hexdigest()}\n{body}")
    return folder / family


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, pools: Callable[[str], Pool]) -> dict[str, JobResult]:
    pool = pools("compile")
    futures = {}
    for name, (family, kernel, target, launch, old, new, _) in WRONG.items():
        folder = spoilt(tmp_path_factory.mktemp("spoilt"), family, kernel, old, new)
        futures[name] = pool.submit(Job("compile", folder, kernel, target=target, chosen=(launch,)))
    for name, (family, kernel, target, launch, _) in RIGHT.items():
        folder = shipped.folder(family)
        futures[name] = pool.submit(Job("compile", folder, kernel, target=target, chosen=(launch,)))
    descriptor = Job("compile", ROOT / "generated" / "fp16_rcr", DESCRIPTOR, target="sm80")
    futures["out of reach"] = pool.submit(descriptor)
    return {name: future.result() for name, future in futures.items()}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_fails_with_its_reason(name: str, results: dict[str, JobResult]) -> None:
    *_, launch, _, _, words = WRONG[name]
    (failure, *_) = results[name].failures
    assert words in "\n".join(failure.message for failure in results[name].failures)
    assert failure.case == launch


@pytest.mark.parametrize("name", RIGHT)
def test_the_instructions_are_those_of_the_target(name: str, results: dict[str, JobResult]) -> None:
    result = results[name]
    assert not result.failures and result.cases == 1
    ((launch, figures),) = result.measured
    found = dict(figures)
    assert launch == RIGHT[name][3]
    own = found.keys() - {"shared", "tensor_memory", "registers", "spilled", "plain max"}
    assert ", ".join(sorted(own)) == RIGHT[name][4]
    # What does not fit is compiled until that is seen, no further.
    assert (found.get("registers", 0) > 0) == (name != "refused") and found["shared"] > 0
    assert (found["tensor_memory"] > 0) == name.startswith("tcgen05")


def test_the_compilers_own_reason_is_given(results: dict[str, JobResult]) -> None:
    (failure,) = results["a compiler error"].failures
    assert "bias[None, :, None]" in failure.message or "rank" in failure.message


def test_a_target_without_the_hardware_is_left_out(results: dict[str, JobResult]) -> None:
    assert results["out of reach"].left_out == "sm80 has no bulk tensor copies; descriptors need sm90 or later"
    assert not results["out of reach"].cases


def test_machine_code_whose_figures_are_not_reported_is_a_failure() -> None:
    amd = ".vgpr_count: 40\n.vgpr_spill_count: 2\n"
    assert _amd_registers(amd) == (40, 8)
    for line in amd.splitlines():
        with pytest.raises(CompileError, match=r"the assembly has no \.?vgpr"):
            _amd_registers(amd.replace(line, ""))
    ptxas = "Used 40 registers\n0 bytes stack frame, 16 bytes spill stores\n"
    assert _nvidia_registers(ptxas) == (40, 16)
    for line in ptxas.splitlines():
        with pytest.raises(CompileError, match="ptxas reported"):
            _nvidia_registers(ptxas.replace(line, ""))
