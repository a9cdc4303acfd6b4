"""Defects planted by hand in rendered source: the interpret level must catch every one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from generator.verify.jobs import Job, Result
from generator.verify.run import Pool, workers_by_default

ROOT = Path(__file__).resolve().parents[2]
FAMILY = "fp16_rcr"
KERNEL = "gemm_fp16_rcr_bias_silu__tiled_pointer_auto_grouped"


@dataclass(frozen=True)
class Defect:
    """What is planted: each text of the rendered file that is replaced, and by what."""

    name: str
    changes: tuple[tuple[str, str], ...]


A_LOAD = "a = tl.load(a_ptrs, mask=in_m[:, None] & in_k[None, :], other=0.0)"
B_LOAD = "b = tl.load(b_ptrs, mask=in_k[:, None] & in_n[None, :], other=0.0)"
BIAS_LOAD = "bias = tl.load(bias_ptr + offs_n, mask=in_n, other=0.0).to(tl.float32)"
STORE = "tl.store(c_ptrs, x.to(tl.float16), mask=in_m[:, None] & in_n[None, :])"
GRID = 'gemm_kernel[(triton.cdiv(M, row["BLOCK_M"]) * triton.cdiv(N, row["BLOCK_N"]),)]'

DEFECTS = (
    Defect(
        "dropped K mask",
        ((A_LOAD, A_LOAD.replace(" & in_k[None, :]", "")), (B_LOAD, B_LOAD.replace("in_k[:, None] & ", ""))),
    ),
    Defect("dropped N load mask", ((B_LOAD, B_LOAD.replace(" & in_n[None, :]", "")),)),
    Defect("dropped store mask", ((STORE, STORE.replace(" & in_n[None, :]", "")),)),
    Defect("swapped strides", (("a.stride(0),\n            b.stride(1),", "b.stride(1),\n            a.stride(0),"),)),
    Defect("missing other", ((A_LOAD, A_LOAD.replace(", other=0.0", "")),)),
    Defect(
        "off by one in the grouped order", (("min(num_m - first_m, GROUP_M)", "min(num_m - first_m + 1, GROUP_M)"),)
    ),
    Defect(
        "epilogue after the rounding",
        (("x = acc + bias[None, :]", "x = acc.to(tl.float16).to(tl.float32) + bias[None, :]"),),
    ),
    Defect(
        "32-bit offsets", (("tl.int64 if max(_extent(a), _extent(b), _extent(out)) > 2**31 else tl.int32", "tl.int32"),)
    ),
    Defect(
        "wrong bias axis",
        ((BIAS_LOAD, BIAS_LOAD.replace("_n", "_m")), ("acc + bias[None, :]", "acc + bias[:, None]")),
    ),
    Defect("unwritten tail tile", ((GRID, GRID.replace("[(", "[(max(1, ").replace(",)]", " - 1),)]")),)),
    # More, of the kinds that the field has met.
    Defect("dropped M load mask", ((A_LOAD, A_LOAD.replace("in_m[:, None] & ", "")),)),
    Defect("K loop one step short", (("range(0, K, BLOCK_K)", "range(0, K - BLOCK_K + 1, BLOCK_K)"),)),
    Defect("mask of K not moved along", (("offs_k < K - k", "offs_k < K"),)),
    Defect(
        "output in another place",
        (("        out,\n            bias,", "        torch.empty_like(out),\n            bias,"),),
    ),
    Defect(
        "narrow accumulator", (("acc = tl.dot(a, b, acc)", "acc = tl.dot(a, b, acc).to(tl.float16).to(tl.float32)"),)
    ),
    Defect("padding read as elements", (("            b.stride(1),", "            K,"),)),
)


def planted(defect: Defect, folder: Path) -> None:
    """Write the kernel with the defect to `folder` / family, each change asserted."""
    text = (ROOT / "generated" / FAMILY / f"{KERNEL}.py").read_text()
    for old, new in defect.changes:
        assert text.count(old) == 1, f"the rendered file holds {text.count(old)} times: {old}"
        assert new != old
        text = text.replace(old, new)
    (folder / FAMILY).mkdir(parents=True)
    (folder / FAMILY / f"{KERNEL}.py").write_text(text)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Result]]:
    """Every defect's result, and under "" that of the kernel as it is."""
    pool = Pool("interpret", workers_by_default())
    futures = {}
    for defect in (*DEFECTS, Defect("", ())):
        folder = tmp_path_factory.mktemp("planted")
        planted(defect, folder)
        job = Job("interpret", ROOT / "specs" / f"{FAMILY}.yaml", folder, KERNEL)
        futures[defect.name] = pool.submit(job)
    yield {name: future.result() for name, future in futures.items()}
    pool.close()


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_caught(defect: Defect, results: dict[str, Result]) -> None:
    assert results[defect.name].failures


def test_the_kernel_as_it_is_passes(results: dict[str, Result]) -> None:
    assert not results[""].failures
    assert results[""].cases > 20


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dropped K mask", "stray load"),
        ("dropped N load mask", "stray load"),
        ("dropped store mask", "stray store"),
        ("32-bit offsets", "stray load"),
        ("unwritten tail tile", "never written"),
        ("epilogue after the rounding", "elements are wrong"),
        ("missing other", "elements are wrong"),
    ],
)
def test_the_message_says_what_is_wrong(name: str, words: str, results: dict[str, Result]) -> None:
    assert any(words in failure.message for failure in results[name].failures)
