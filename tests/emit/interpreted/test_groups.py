"""Functions of grouped contracts: how they are called, what torch sees of them, and what they choose."""

import itertools

import pytest
import torch

from tests.helpers.emit.calls import Seen, contracts, operands, results
from tests.helpers.support import spec

SPEC = spec(
    "layout: rcr; dtype: [fp16, bf16]; batch: [none, grouped]; epilogue: [none, bias+scale_m+save, swiglu]; "
    "load: pointer; with: prepare"
)
NAME = "gmm_fp16_rcr_none"


def grouped(family):
    return [name for name in contracts(family) if name.startswith("gmm_")]


def test_offsets_are_given_by_place_or_by_keyword(family):
    given = operands(contracts(family)[NAME])
    a, b, offsets = given.values()
    gemm = getattr(family, NAME)
    found = gemm(a, b, offsets)
    ends = [0, *offsets.tolist()]
    for group, (first, last) in enumerate(itertools.pairwise(ends)):
        wanted = a[first:last].float() @ b[group].float()
        torch.testing.assert_close(found[first:last].float(), wanted, rtol=0, atol=0.05)
    filled = torch.full_like(found, 7)
    assert gemm(a, b, offsets=offsets, out=filled) is filled
    assert torch.equal(filled[: ends[-1]], found[: ends[-1]]) and bool((filled[ends[-1] :] == 7).all())
    with pytest.raises(TypeError, match="offsets"):
        gemm(a, b)
    with pytest.raises(TypeError, match="unexpected offsets"):
        family.gemm_fp16_rcr_none(a, b[0], offsets=offsets)


def test_other_offsets_of_the_same_shape_give_their_own_result(family):
    given = operands(contracts(family)[NAME])
    a, b, offsets = given.values()
    gemm = getattr(family, NAME)
    other = torch.tensor([41, 41, 41, 41], dtype=torch.int32)
    gemm(a, b, offsets)
    torch.testing.assert_close(gemm(a, b, other).float(), a.float() @ b[0].float(), rtol=0, atol=0.05)


def test_a_gradient_is_not_lost_and_a_batch_is_none_of_groups(family):
    a, b, offsets = operands(contracts(family)[NAME]).values()
    gemm = getattr(family, NAME)
    with pytest.raises(RuntimeError, match="backward"):
        gemm(a.requires_grad_(), b, offsets)
    with pytest.raises(NotImplementedError, match="lacks"):
        torch.vmap(lambda x: gemm(x, b, offsets))(torch.stack([a.detach(), a.detach()]))


def test_wrong_operands_are_refused_under_the_name_of_the_contract(family):
    a, b, offsets = operands(contracts(family)[NAME]).values()
    gemm = getattr(family, NAME)
    for error, words, wrong in (
        (TypeError, "torch.int32, got torch.int64", (a, b, offsets.long())),
        (ValueError, r"shape \(4,\), got \(3,\)", (a, b, offsets[:3])),
        (ValueError, "offsets must be on cpu", (a, b, offsets.to("meta"))),
        (ValueError, "b must have three dimensions", (a, b[0], offsets)),
    ):
        with pytest.raises(error, match=f"{NAME}: .*{words}"):
            gemm(*wrong)


def test_rows_of_a_may_be_named(family, launches):
    for name in grouped(family):
        given = operands(contracts(family)[name])
        generator = torch.Generator().manual_seed(3)
        rows = torch.randint(0, 7, (41,), generator=generator, dtype=torch.int32)
        rows[4], rows[20] = -1, 7
        named, few = rows.clamp(0, 6).long(), given["a"][:7]
        gathered = few[named].masked_fill(((rows < 0) | (rows > 6))[:, None], 0)
        found = results(getattr(family, name)(**{**given, "a": few, "rows": rows}))
        for x, y in zip(found, results(getattr(family, name)(**{**given, "a": gathered})), strict=True):
            assert x.shape == y.shape and torch.equal(x[:30], y[:30])
        with Seen(family) as seen:
            getattr(family, name)(**{**given, "a": few}, rows=rows)
        torch.library.opcheck(seen.calls[0][0], seen.calls[0][1], test_utils=("test_schema", "test_faketensor"))
        assert "Tensor? rows" in str(seen.calls[0][0]._schema)


def test_rows_are_checked_and_have_no_gradient(family):
    given = operands(contracts(family)[NAME])
    gemm = getattr(family, NAME)
    with pytest.raises(TypeError, match=f"{NAME}: rows must be torch.int32, got torch.int64"):
        gemm(**given, rows=torch.arange(41))
    with pytest.raises(ValueError, match=f"{NAME}: rows must have one dimension,"):
        gemm(**given, rows=torch.zeros(41, 1, dtype=torch.int32))
    rows = torch.arange(5, dtype=torch.int32)
    assert gemm(**given, rows=rows).shape == (5, 24) and gemm.which(**given, rows=rows)[1]["BLOCK_M"] == 16
    with pytest.raises(TypeError, match="unexpected rows"):
        family.gemm_fp16_rcr_none(given["a"], given["b"][0], rows=rows)
