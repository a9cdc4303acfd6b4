"""`copies` of a family's `_runtime`: what is copied, when that pays, and that a launch of copies is kept."""

import importlib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.helpers.stand_ins import Kernel
from tests.helpers.support import ROOT, forget, python, render_spec, spec

SPEC = spec("layout: [rcr, rrr]; dtype: [fp16, fp32]; select: fastest")


@pytest.fixture
def copies(tmp_path, monkeypatch):
    render_spec(tmp_path, "again", SPEC)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("again._runtime.copies")
    forget("again")


def test_copies_are_aligned_and_equal(copies):
    """In the interpreter, which wants a process of its own."""
    folder, script = Path(copies.__file__ or "").parents[2], ROOT / "tests" / "helpers" / "copied.py"
    env = {"PYTHONPATH": str(folder), "TRITON_INTERPRET": "1"}
    ran = python(script, "again._runtime.copies", cwd=folder, env=env)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["13", "copied"]


@pytest.mark.parametrize("keep", [True, False])
def test_a_second_copy_of_a_kind_repeats_the_launch_with_its_own_addresses(copies, monkeypatch, keep):
    kernel = Kernel([])
    active = SimpleNamespace(get_current_stream=lambda index: ("stream", index), get_current_device=lambda: None)
    monkeypatch.setattr(copies.fast, "_driver", lambda: active)
    monkeypatch.setattr(copies.fast, "KNOWN", keep)
    monkeypatch.setattr(copies, "_copy_kernel", kernel)
    first, second = ((torch.randn(33, 35).half(), torch.randn(37, 35).half().T) for _ in range(2))
    copier = copies.aligning(*first)
    copier(*first)
    a, b = copier(*second)
    assert (a.stride(), b.stride()) == ((64, 1), (1, 64))
    ((grid, arguments, options), *later) = kernel.launches
    assert not options and [len(later), len(kernel.compiled.runs)] == ([0, 1] if keep else [1, 0])
    if keep:
        (run,) = kernel.compiled.runs
        assert run[:4] == (*grid, ("stream", None))
        assert run[4:9] == (kernel.compiled.function, kernel.compiled.packed_metadata, None, None, None)
        one, other, *rest = run[9:]
    else:
        ((_, (one, other, *rest), _),) = later
    assert (*rest,) == arguments[2:] and (one[2:], other[2:]) == (arguments[0][2:], arguments[1][2:])
    given = [x.data_ptr() for pair in (one, other) for x in pair[:2]]
    assert given == [x.data_ptr() for x in (second[0], a, second[1], b)]


def test_only_what_is_unaligned_counts_against_a_copy(copies):
    narrow, wide = torch.randn(3328, 10).T, torch.randn(3328, 984)
    assert copies.worth_aligning(narrow, wide), "each element of a is in 984 products"
    assert not copies.worth_aligning(narrow[:, :1000].contiguous(), wide[:1000]), "both are aligned"
    assert not copies.worth_aligning(torch.randn(10, 3328), torch.randn(3328, 983)), "each element of b is in 10"


def test_one_matrix_for_a_whole_batch_is_not_copied(copies):
    one, batch = torch.randn(1, 301, 303).expand(4, -1, -1), torch.randn(4, 303, 305)
    assert copies.worth_aligning(batch.mT, batch) and not copies.worth_aligning(one, batch)
    assert copies.worth_turning(torch.randn(2, 1024, 1024), torch.randn(2, 1024, 1024), {"a": None}, "") == "a"
    assert copies.worth_turning(torch.randn(1, 1024, 1024).expand(4, -1, -1), batch, {"a": None}, "") is None


def test_what_lies_across_the_lines_of_the_l2(copies):
    alignment = importlib.import_module("again._runtime.alignment")
    # Of no memory, whose address is 0.
    whole, longer = (torch.empty(64, n, dtype=torch.float16, device="meta")[:, :128] for n in (128, 136))
    assert [alignment.crosses(x) for x in (whole, whole.T, longer, longer.T)] == [False, False, True, True]
    # One row is as long as it is, several may share a line, and bytes are what counts.
    assert not alignment.crosses(longer[:1]) and not alignment.crosses(torch.empty(64, 160, device="meta"))
    short = [torch.empty(64, n, dtype=torch.float16, device="meta") for n in (8, 32, 24)]
    assert [alignment.crosses(x) for x in short] == [False, False, True]
    assert copies.lining(whole, longer.T).along == [None, -2]


@pytest.mark.parametrize(
    ("rows", "ld", "worth"), [(4096, 136, True), (4096, 128, False), (2048, 136, False), (4096, 129, True)]
)
def test_b_is_copied_along_the_lines_of_the_l2_where_it_is_used_often(copies, rows, ld, worth):
    a = torch.empty(rows, 136, dtype=torch.float16, device="meta")[:, :128]
    b = torch.empty(512, ld, dtype=torch.float16, device="meta")[:, :128]
    assert copies.worth_lining(a, b.T) == worth
    assert not copies.worth_lining(a[:, :0], b.T[:0])


TURNED = spec("layout: [rcr, rrr, crr, ccr]; dtype: [tf32, tf32x3, fp32, fp16]; product: {product}; select: fastest")


@pytest.mark.parametrize(
    ("dtype", "layout", "sizes", "lies"),
    [
        # Large ones, for a matrix unit that wants K contiguous; A goes through registers, unless it is small.
        *(("tf32", "crr", (1024, 1024, 512), "ccr"), ("tf32", "rrr", (1024, 1024, 512), "rcr")),
        *(("tf32", "ccr", (2048, 2048, 512), "ccr"), ("tf32", "ccr", (64, 4096, 2048), "rcr")),
        # By an exchanged product B does, too; of two the smaller is copied.
        *(("tf32 exchanged", "rrr", (1024, 1024, 512), "rrr"), ("tf32 exchanged", "rrr", (4096, 1024, 512), "rcr")),
        *(("tf32 exchanged", "crr", (64, 4096, 2048), "rrr"), ("tf32 exchanged", "crr", (4096, 64, 2048), "ccr")),
        *(("tf32 exchanged", "crr", (256, 256, 8192), "crr"), ("fp16", "ccr", (64, 4096, 2048), "ccr")),
        # Too few rows for B to be worth it, and A alone gains nothing.
        *(("tf32", "crr", (64, 4096, 2048), "crr"), ("tf32", "rrr", (512, 512, 512), "rrr")),
        # Columns of A that are shorter than 32 bytes, where there are many.
        *(("fp16", "crr", (8, 64, 4096), "rrr"), ("fp16", "crr", (16, 64, 4096), "crr")),
        *(("fp16", "crr", (8, 64, 4095), "crr"), ("tf32", "ccr", (7, 64, 4096), "rcr")),
        # fp32 without a matrix unit, which wants K across: of B, or of few rows in an exchanged product.
        *(("fp32", "rcr", (128, 1024, 1024), "rrr"), ("fp32", "rcr", (64, 2048, 1024), "rcr")),
        *(("fp32 exchanged", "rcr", (64, 2048, 1024), "ccr"), ("fp32 exchanged", "ccr", (128, 1024, 1024), "ccr")),
        # Short columns of A are no reason to turn it, and it would be turned back.
        *(("fp32 exchanged", "rcr", (7, 8192, 4096), "ccr"), ("fp32 exchanged", "rcr", (1, 8192, 16384), "rcr")),
        # Of few rows a family with summed products copies nothing.
        *(("fp32 summed", "rcr", (9, 8192, 4096), "rcr"), ("fp32 summed", "rcr", (128, 1024, 1024), "rrr")),
        # Three products in tf32 want K contiguous, and read no operand from registers.
        *(("tf32x3", "crr", (1024, 1024, 512), "rcr"), ("tf32x3", "rrr", (256, 4096, 1024), "rrr")),
        # A row that lies as a column: no copy, and rows of its own step.
        ("tf32", "crr", (1, 64, 32), "rrr"),
    ],
)
def test_an_operand_is_turned_where_k_contiguous_is_worth_a_copy(rendered, dtype, layout, sizes, lies):
    dtype, _, product = dtype.partition(" ")
    package = rendered(TURNED.format(product=f"[direct, {product}]" if product else "direct"))
    m, n, k = sizes
    a, b = (torch.randn(size).to(torch.float16 if dtype == "fp16" else torch.float32) for size in ((m, k), (k, n)))
    a, b = a.T.contiguous().T if layout[0] == "c" else a, b.T.contiguous().T if layout[1] == "c" else b
    getattr(package, f"gemm_{dtype}_{layout}_none")(a, b)
    kernels = [package._kernel(name) for names in package._KERNELS.values() for name in names]
    (module,) = [each for each in kernels if each.gemm_kernel.launches]
    ((_, _, given),) = module.gemm_kernel.launches
    assert f"_{lies}_" in module.__name__
    given_a, given_b = (given.get(f"{x}_ptr", getattr(given.get(f"{x}_desc"), "base", None)) for x in "ab")
    assert torch.equal(given_a, a) and torch.equal(given_b, b)
    assert given_a.stride("rc".index(lies[0]) ^ 1) == 1 and given_b.stride("rc".index(lies[1]) ^ 1) == 1
    assert m > 1 or given_a.stride(0) == k
