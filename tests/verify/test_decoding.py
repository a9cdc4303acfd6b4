"""A kernel that decodes B, held to the reference: values, scales, zero points, rounded once; and what is compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from generator.emit.loading import load_kernel
from generator.emit.manifest_reader import Rendered
from generator.language.model import Dtype
from generator.problem import stored_values
from generator.verify import execute
from generator.verify.case_setup import prepare
from generator.verify.jobs import Job, JobResult, JobState
from generator.verify.launches import launches
from generator.verify.refusals import right_case
from generator.verify.specialise import specialise
from generator.verify.worker_pool import Pool
from tests.helpers.verify.rendered import Mistake, assert_told, changed, compiled, rendered

SPEC = """\
summary: Decoded first.
layout: [rcr, rrr]
dtype:
  - {a: fp16, b: uint4, scales: {b: [32, 1]}, zeros: {b: true}}
  - {a: bf16, b: int8, scales: {b: [0, 1]}}
  - fp32
epilogue: [none, swiglu]
schedule: decoded
load: [pointer, descriptor]
tile: [{m: 32, n: 32, k: 64, group: 2, warps: 4, stages: 2}]
targets: [sm90]
"""
ZEROS = "gemm_fp16xuint4_fp32_fp16_b32x1_zeros_rcr_none__decoded_pointer_auto_grouped"
GATED = "gemm_fp16xuint4_fp32_fp16_b32x1_zeros_rrr_swiglu__decoded_descriptor_auto_grouped"
COPIED = "gemm_fp32_rcr_swiglu__decoded_pointer_auto_grouped"
WHOLE = "gemm_bf16xint8_fp32_bf16_ballx1_rcr_none__decoded_descriptor_auto_grouped"


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    return rendered(tmp_path_factory.mktemp("dense"), "dense", SPEC)


#: A kernel, what of it is replaced, and what the interpret level says.
MISTAKES = {
    "as it is, with zero points": (ZEROS, "", "", None),
    "as it is, gated": (GATED, "", "", None),
    "as it is, a scale a column": (WHOLE, "", "", None),
    "as it is, fp32 that is copied row-major": (COPIED, "", "", None),
    "columns copied as rows": (
        COPIED,
        "offs_k[None, :] * lddecoded + offs_n[:, None]",
        "offs_k[None, :] + offs_n[:, None] * lddecoded",
        "",
    ),
    "the nibbles exchanged": (
        ZEROS,
        "tl.join((b & 0xFFFF).to(tl.uint16), (b >> 16).to(tl.uint16))",
        "tl.join((b >> 16).to(tl.uint16), (b & 0xFFFF).to(tl.uint16))",
        "are wrong",
    ),
    "the zero point forgotten": (ZEROS, "(b.to(tl.float32) - b_zero[:, None])", "b.to(tl.float32)", "are wrong"),
    "the scale forgotten": (WHOLE, "(b.to(tl.float32) * b_scale[:, None])", "b", "are wrong"),
    "the scale of the block before": (ZEROS, "k // 32 * stride_b_scalek", "k // 64 * stride_b_scalek", "are wrong"),
    "the scale of the next block": (ZEROS, "k // 32 * stride_b_zerok", "(k // 32 + 1) * stride_b_zerok", ""),
    "bytes of another block": (ZEROS, "offs_p = k // 2", "offs_p = k", ""),
    "a block that is not stored": (
        GATED,
        "tl.store(decoded_ptrs, decoded, mask=in_n[:, None] & in_k[None, :])",
        "tl.store(decoded_ptrs, decoded, mask=in_n[:, None] & in_k[None, :] & (pid_k == 0))",
        "",
    ),
    "gates read from the other half": (GATED, "in_n = offs_n < 2 * N", "in_n = offs_n < N", ""),
    "rounded twice": (
        ZEROS,
        "- b_zero[:, None]) * b_scale[:, None]).to(tl.float16)",
        "- b_zero[:, None]).to(tl.float8e5) * b_scale[:, None]).to(tl.float16)",
        "are wrong",
    ),
}


def test_mistakes_are_found(family: Rendered, tmp_path: Path, pools: Callable[[str], Pool]) -> None:
    jobs = []
    for number, (kernel, old, new, _) in enumerate(MISTAKES.values()):
        folder = changed(family, tmp_path / str(number), kernel, old, new) if old else family.folder
        jobs.append(Job("interpret", folder, kernel))
    for (name, (*_, told)), result in zip(MISTAKES.items(), [pools("interpret").submit(job).result() for job in jobs]):
        said = "\n".join(failure.message for failure in result.failures)
        assert result.state is JobState.PASSED if told is None else result.failures and told in said, (name, said)


#: A kernel, what of it is replaced, and what the compile level says of its launch `row0-aligned`.
COMPILED: dict[str, Mistake] = {
    "as it is, with zero points": (ZEROS, "", "", None),
    "as it is, gated": (GATED, "", "", None),
    "as it is, a scale a column": (WHOLE, "", "", None),
    "another configuration": (ZEROS, "(row if self.configured", "({**row, 'BLOCK_K': 32} if self.configured", ""),
    "one launch": (
        WHOLE,
        "for each in plan.launches]",
        "for each in plan.launches[1:]]",
        "came to 1 launches, expected 2",
    ),
    "the product masked": (
        ZEROS,
        "in_n = tl.full((BLOCK_N,), True, tl.int1) if EVEN_N else offs_n < N",
        "in_n = offs_n < N",
        "accesses are masked, although every dimension is a multiple of the tile",
    ),
}


@pytest.fixture(scope="module")
def results(
    family: Rendered, tmp_path_factory: pytest.TempPathFactory, pools: Callable[[str], Pool]
) -> dict[str, JobResult]:
    return compiled(family, tmp_path_factory.mktemp("spoilt"), COMPILED, pools("compile"))


@pytest.mark.parametrize("name", COMPILED)
def test_both_kernels_are_held_to_what_is_expected(name: str, results: dict[str, JobResult]) -> None:
    assert_told(COMPILED[name][-1], results[name])


def test_a_launch_is_specialised_for_each(family: Rendered) -> None:
    kernel = family.by_name[ZEROS]
    (launch,) = [each for each in launches(kernel, "sm90") if each.name == "row0-aligned"]
    first, second = specialise(load_kernel(family.file(ZEROS)), kernel, launch, "sm90")
    assert (first.passed["BLOCK_N"], first.passed["BLOCK_K"]) == (256, 32) and "BLOCK_M" not in first.passed
    assert (second.passed["BLOCK_M"], second.passed["BLOCK_K"]) == (32, 64) and first.on_device and second.on_device


def test_the_bound_counts_the_rounding_of_each_value() -> None:
    """A product with a row of ones is the sum of what is rounded: half a unit in the last place of bf16 each."""
    dtype = Dtype("bf16", "int8", "fp32", "bf16", None).scaled_by({"b": (0, 1)})
    a, b = torch.ones(1, 64, dtype=torch.bfloat16), torch.full((64, 1), 127, dtype=torch.int8)
    read: dict[str, torch.Tensor | float] = {"b_scale": torch.full((1, 1), 0.0078)}
    exact, fused = stored_values.product(dtype, a, b, read, hardware=False)
    value, bound = stored_values.product_of_decoded(dtype, a, b, read, hardware=False)
    assert torch.allclose(exact, value) and float(fused) < 0.001
    # Values just below 1 are 2**-8 apart.
    assert 64 * 2**-9 <= float(bound) < 64 * 2**-8
    rounded = (b.float() * read["b_scale"]).bfloat16().double()
    assert float((a.double() @ rounded - value).abs()) <= float(bound)


def test_a_function_is_held_to_the_rounding_of_the_kernel_that_it_runs(tmp_path: Path) -> None:
    """Where only some kernels of a contract decode B, and round it once more."""
    several = rendered(tmp_path, "several", SPEC.replace("schedule: decoded", "schedule: [tiled, decoded]"))
    among = {name: kernel for name, kernel in several.by_name.items() if "int8" in name and "rcr_none" in name}
    tiled = next(kernel for kernel in among.values() if not kernel.variant.traits.decodes)
    setup = prepare(tiled, right_case(tiled, 0), torch.device("cpu"))
    asked = []

    class Function:
        @staticmethod
        def which(a: torch.Tensor, b: torch.Tensor, **others: object) -> tuple[str, dict[str, int]]:
            asked.append(sorted(others))
            return WHOLE, {}

    assert execute._chosen(Function, setup, among, tiled) is among[WHOLE] and asked == [["b_scale", "out"]]
    alike = {name: kernel for name, kernel in among.items() if not kernel.variant.traits.decodes}
    assert execute._chosen(Function, setup, alike, tiled) is tiled and len(asked) == 1
