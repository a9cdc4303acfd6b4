"""Outputs beside C are proved and compared: mistakes planted in them are found, and their bounds hold."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from generator.emit.manifest_reader import Rendered
from generator.language.built_in import chain_of
from generator.language.model import Dtype, Layout, Variant
from generator.problem.compare import compare
from generator.problem.error_propagation import Bounded, sum_along
from generator.problem.reference import references
from generator.verify.jobs import Job, JobState
from generator.verify.worker_pool import Pool
from tests.helpers.verify.rendered import changed, rendered

SPEC = """\
summary: Outputs beside C.
layout: rcr
dtype: fp16
# What is past the edge of a bell is larger than what is within.
ops: {bell: {formula: exp(-x * x)}}
epilogue: [bias+bias_m+save+row_sum+col_sum+row_amax, accumulate, bell+row_amax]
schedule: [tiled, split_k, stream_k]
load: [pointer, descriptor]
tile: [{m: 32, n: 16, k: 16, group: 2, warps: 4, split: 2}]
targets: [sm90]
"""
TILED = "gemm_fp16_rcr_bias_biasm_save_rowsum_colsum_rowamax__tiled_pointer_auto_grouped"
COPIED = "gemm_fp16_rcr_bias_biasm_save_rowsum_colsum_rowamax__tiled_descriptor_auto_grouped"
SPLIT = "gemm_fp16_rcr_bias_biasm_save_rowsum_colsum_rowamax__splitk_pointer_auto_grouped"
BELL = "gemm_fp16_rcr_bell_rowamax__tiled_pointer_auto_grouped"
IN_PLACE = "gemm_fp16_rcr_accumulate__tiled_pointer_auto_grouped"
SAVED = "tl.store(preact_ptrs, x.to(tl.float16), mask=in_m[:, None] & in_n[None, :])"


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    return rendered(tmp_path_factory.mktemp("outputs"), "several", SPEC)


RETURNED = "return results[0] if len(results) == 1 else results"
#: A kernel, what of it is replaced, the case that finds it, and what is said.
MUTANTS = [
    (TILED, SAVED, SAVED.replace("x.to", "acc.to"), "past-tile", "preact: "),
    (TILED, SAVED, "pass", "primes", "elements of preact were never written"),
    (TILED, "tl.sum(tl.where(in_n[None, :], x, 0.0), 1)", "tl.sum(x, 1)", "primes", "row_sum: "),
    (TILED, "tl.sum(tl.where(in_m[:, None], x, 0.0), 0)", "tl.sum(x, 0)", "primes", "col_sum: "),
    (COPIED, "tl.sum(tl.where(in_m[:, None], x, 0.0), 0)", "tl.sum(x, 0)", "primes", "col_sum: "),
    (BELL, "tl.where(in_n[None, :], row_amax, 0)", "row_amax", "primes", "row_amax: "),
    (TILED, " & 0x7FFFFFFF", "", "primes", "row_amax: "),
    (TILED, '"row_amax_parts", "amax"', '"row_amax_parts", "sum"', "past-tile", "row_amax: "),
    (TILED, "if x is None:\n            return self.new(state)",
     'if x is None or self.name == "preact":\n            return self.new(state)', "primes",
     "another tensor than the `preact` it was given"),
    (TILED, "row_sum=row_sum", "row_sum=None", "primes", "another tensor than the `row_sum`"),
    (TILED, RETURNED, RETURNED.partition(" if ")[0], "primes",
     "expected a tuple of the result and 4 outputs"),
    (TILED, "results[reduction.name].zero_()", "pass", "empty-m", "elements of col_sum were never written"),
    (TILED, "if size > 1 and stride <= reach:", 'if size > 1 and self.name == "out" and stride <= reach:',
     "refuse-preact-overlap", "was accepted"),
    (TILED, " or any(map(surely, map(operator.ne, x.shape, shape)))", "", "refuse-row_sum-shape", "was accepted"),
    (COPIED, 'undescribed("preact", preact)', "None", "refuse-base-preact", ""),
    (SPLIT, "tl.sum(tl.where(in_n[None, :], x, 0.0), 1)", "tl.sum(x, 1)", "primes", "row_sum: "),
    (SPLIT, 'Memory("col_sum_parts", "cdiv(M,16)', 'Memory("col_sum_parts", "cdiv(M,BLOCK_M)', "primes", "col_sum"),
    (IN_PLACE, "acc + beta * c", "acc + c", "primes", "are wrong"),
    (IN_PLACE, "if x is None and self.read:", "if x is None and not self.name:", "refuse-out-missing", ""),
]  # fmt: skip


def test_mistakes_in_outputs_are_found_by_running(
    family: Rendered, tmp_path: Path, pools: Callable[[str], Pool]
) -> None:
    jobs = []
    for number, (kernel, old, new, case, _) in enumerate(MUTANTS):
        folder = changed(family, tmp_path / f"mutant{number}", kernel, old, new)
        jobs.append(Job("interpret", folder, kernel, case=case))
    # The same cases of the kernels as they are.
    right = {(kernel, case) for kernel, _, _, case, _ in MUTANTS}
    jobs += [Job("interpret", family.folder, kernel, case=case) for kernel, case in sorted(right)]
    found = [future.result() for future in [pools("interpret").submit(job) for job in jobs]]
    for (_, old, _, case, words), result in zip(MUTANTS, found):
        assert result.cases and any(words in failure.message for failure in result.failures), (old, case, result)
    assert {result.state for result in found[len(MUTANTS) :]} == {JobState.PASSED}


def variant(chain: tuple[str, ...], dtype: str = "fp32") -> Variant:
    how = ("mnk", "grouped", "tiled", "pointer", "as_load")
    return Variant(Layout.of("rcr"), Dtype.of(dtype), "none", chain_of(chain), *how)


def test_what_outputs_are_of_the_chain() -> None:
    a, b = torch.tensor([[1.0, 2.0], [3.0, -7.0]]), torch.eye(2)
    v = variant(("save", "relu", "save", "row_sum", "col_sum", "accumulate", "row_amax"))
    c = torch.full((2, 2), -2.0, dtype=torch.float64)
    found = references(v, a, b, {"beta": 4.0, "c": c}, hardware=False)
    expected = [[[-7.0, -6.0], [-5.0, -8.0]], a.tolist(), [[1, 2], [3, 0]], [3, 3], [4, 2], [7, 8]]
    assert [x.value.tolist() for x in found] == expected


def test_a_maximum_of_absolute_values_is_nan_where_one_is() -> None:
    a = torch.tensor([[math.nan, 1.0], [-math.inf, 1.0], [-0.0, 0.0]])
    *_, largest = references(variant(("row_amax",)), a, torch.eye(2), {}, hardware=False)
    assert largest.value.isnan().tolist() == [True, True, False] and largest.value[2] == 0
    wide = Bounded(torch.tensor([[math.nan, 1.0]], dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64))
    assert compare(torch.tensor([math.inf]), Bounded(wide.value.amax(-1), wide.error.amax(-1))).fault


@pytest.mark.parametrize("order", ["along", "against", "halves"])
def test_the_bound_of_a_sum_holds_in_whichever_order_it_is_made(order: str) -> None:
    terms = torch.randn(64, 1000, generator=torch.Generator().manual_seed(7)) * 100
    exact = sum_along(Bounded(terms.double(), torch.zeros(64, 1000, dtype=torch.float64)), -1)
    if order == "halves":
        got = terms[:, :512].sum(-1) + terms[:, 512:].sum(-1)
    else:
        got = torch.zeros(64)
        for at in range(1000) if order == "along" else reversed(range(1000)):
            got += terms[:, at]
    verdict = compare(got, exact)
    assert verdict.fault is None and 0 < verdict.ratio < 1
    # Nor does it let a term be left out.
    assert compare(got - 10, exact).fault is not None


def test_a_sum_past_fp32_bounds_nothing_and_one_of_infinities_is_exact() -> None:
    zero = torch.zeros(1, 3, dtype=torch.float64)
    past = sum_along(Bounded(torch.tensor([[3e38, 3e38, -3e38]], dtype=torch.float64), zero), -1)
    assert past.error.isnan().all()
    infinite = sum_along(Bounded(torch.tensor([[math.inf, 1.0, 2.0]], dtype=torch.float64), zero), -1)
    assert infinite.value.item() == math.inf and infinite.error.item() == 0
