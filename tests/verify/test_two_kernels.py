"""A schedule of two kernels, held to its promises: both are compiled, and the order of tiles is that of the first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from generator.emit.loading import load_kernel
from generator.emit.manifest_reader import Rendered
from generator.verify.jobs import Job, JobResult, JobState
from generator.verify.launches import launches
from generator.verify.machine_code import MachineCode
from generator.verify.specialise import specialise
from generator.verify.tile_order import wrong_order
from generator.verify.worker_pool import Pool
from tests.helpers.verify.rendered import Mistake, assert_told, changed, compiled, rendered

SPEC = """\
summary: Summed in parts.
layout: rcr
dtype: bf16
epilogue: [bias+silu, swiglu]
rounding: [late, torch]
schedule: split_k
load: [pointer, descriptor]
tile: [{m: 32, n: 32, k: 32, group: 2, warps: 4, split: 3}]
targets: [sm90]
"""
PLAIN = "gemm_bf16_rcr_bias_silu__splitk_pointer_auto_grouped"
COPIED = "gemm_bf16_rcr_bias_silu__splitk_descriptor_auto_grouped"
ROUNDED = "gemm_bf16_rcr_bias_silu_roundingtorch__splitk_pointer_auto_grouped"
GATED = "gemm_bf16_rcr_swiglu__splitk_pointer_auto_grouped"

#: Down the columns of a band, and along its rows instead.
DOWN = "    pid_m = first_m + within % height\n    pid_n = within // height\n"
ALONG = "    pid_m = first_m + within // num_n\n    pid_n = within % num_n\n"


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    return rendered(tmp_path_factory.mktemp("parts"), "parts", SPEC)


#: A kernel, what of it is replaced, the case that finds it, and what is said.
ORDERS = [
    (PLAIN, DOWN, ALONG, "in the order grouped it is"),
    (GATED, DOWN, ALONG, "in the order grouped it is"),
    (COPIED, DOWN, ALONG, "in the order grouped it is"),
    # The second kernel has an order of its own, which nothing depends on.
    (PLAIN, "    pid_m = pid // num_n\n    pid_n = pid % num_n\n",
     "    num_m = tl.cdiv(M, BLOCK_M)\n    pid_m = pid % num_m\n    pid_n = pid // num_m\n", None),
    # Sums in the order of K, of all parts.
    (PLAIN, "tl.static_range(1, SPLIT)", "tl.static_range(1, SPLIT - 1)", "are wrong"),
    (COPIED, "sums_ptr + part * stride_sumsp", "sums_ptr", ""),
]  # fmt: skip


def test_the_order_of_tiles_is_checked_on_the_partial_sums(
    family: Rendered, tmp_path: Path, pools: Callable[[str], Pool]
) -> None:
    jobs = []
    for number, (kernel, old, new, _) in enumerate(ORDERS):
        folder = changed(family, tmp_path / str(number), kernel, old, new)
        jobs.append(Job("interpret", folder, kernel))
    for (kernel, old, _, told), result in zip(ORDERS, [pools("interpret").submit(job).result() for job in jobs]):
        said = "\n".join(failure.message for failure in result.failures)
        assert (result.state is JobState.PASSED) if told is None else (result.failures and told in said), (kernel, old)


def test_columns_of_sums_are_counted_in_tiles_of_the_result(family: Rendered) -> None:
    """With a gated linear unit a tile of 32 columns has 64 columns of sums."""
    kernel = family.by_name[GATED]
    (tile,) = kernel.tiles
    sums = [(0, 0), (0, 64), (32, 0), (32, 64)]
    down = [sums[0], sums[2], sums[1], sums[3]]
    assert wrong_order(kernel.variant, tile, (64, 64, 32), 1, down) is None
    assert "tile 1 in the order of stores is (0, 1)" in str(wrong_order(kernel.variant, tile, (64, 64, 32), 1, sums))


#: How the library makes the launches of a call, and how it would make some.
RUN = "                self.start(plan)\n"
SOME = "self.start(Plan(plan.results, plan.launches[{}], plan.known))\n"

#: A kernel, what of it is replaced, and what the compile level says of its launch `row0-aligned`.
COMPILED: dict[str, Mistake] = {
    "as it is": (COPIED, "", "", None),
    "an error in the second": (COPIED, "x = acc + bias[None, :]", "x = acc + bias[None, :, None]", "CompilationError"),
    "other constants of the second": (COPIED, '"SPLIT": SPLIT,', '"SPLIT": 1,', "the second kernel is launched"),
    "one launch": (COPIED, RUN, " " * 16 + SOME.format(":1"), "came to 1 launches, expected 2"),
    "the second on another device": (
        COPIED,
        RUN,
        " " * 16 + SOME.format(":1") + " " * 12 + SOME.format("1:"),
        "launched on the current device",
    ),
    "fused where each is rounded": (
        ROUNDED,
        '                "enable_fp_fusion": False,\n',
        "",
        "rounds after each operation, but the launch lets the compiler fuse operations",
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


def test_the_instructions_are_those_of_both(results: dict[str, JobResult]) -> None:
    """The first copies operands in and multiplies, the second computes the epilogue and copies the result out."""
    ((_, figures),) = results["as it is"].measured
    assert {"mma.sync", "bulk copy in", "bulk copy out", "approximation"} <= dict(figures).keys()


def test_a_launch_is_specialised_for_each(family: Rendered) -> None:
    kernel = family.by_name[PLAIN]
    module = load_kernel(family.file(PLAIN))
    (launch,) = [each for each in launches(kernel, "sm90") if each.name == "row0-aligned"]
    first, second = specialise(module, kernel, launch, "sm90")
    assert (first.passed["BLOCK_M"], first.passed["SPLIT"]) == (32, 3)
    assert (second.passed["BLOCK_M"], second.passed["BLOCK_N"], second.passed["SPLIT"]) == (16, 32, 3)
    assert "BLOCK_K" not in second.passed and first.key != second.key and first.on_device and second.on_device


def test_figures_of_both_are_the_larger_and_instructions_are_added() -> None:
    first = MachineCode(100, 0, 40, 0, {"wgmma": 2, "bulk copy out": 0}, "first")
    second = MachineCode(20, 0, 60, 8, {"wgmma": 0, "bulk copy out": 1}, "second")
    assert first.beside(second) == MachineCode(100, 0, 60, 8, {"wgmma": 2, "bulk copy out": 1}, "firstsecond")
