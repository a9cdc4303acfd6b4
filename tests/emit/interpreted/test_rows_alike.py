"""Families with `invariant: rows`: a row of the result has the same bits whatever other rows there are."""

import pytest
import torch

from tests.helpers.support import spec

SPEC = spec(
    "layout: rcr; dtype: [fp16, bf16]; epilogue: [none, bias+gelu_tanh]; load: {load}; schedule: {schedule}; "
    'invariant: rows; exclude: [{{dtype: fp16, epilogue: bias+gelu_tanh, because: "each type and each chain once"}}, '
    '{{dtype: bf16, epilogue: none, because: "each type and each chain once"}}]'
)
#: One row, a few, those of one tile, one more, and several tiles of which the last is ragged.
ROWS = (1, 2, 3, 17, 64, 65, 100, 130)
N, K = 40, 104


@pytest.fixture(scope="module", params=["tiled", "persistent", "split_k", "naive"])
def family(request, render):
    return render(f"alike_{request.param}", SPEC.format(load="[pointer, descriptor]", schedule=request.param))


def bits(x):
    found = x.contiguous().view(torch.int16).tolist()
    return found


def operands(contract, *, pitch=K):
    """A with the most rows and a row pitch, B, and what the epilogue reads."""
    torch.manual_seed(0)
    dtype = torch.float16 if "fp16" in contract else torch.bfloat16
    b = torch.randn(N, K).to(dtype).T
    bias = {"bias": torch.randn(N).to(dtype)} if "bias" in contract else {}
    return torch.randn(max(ROWS), pitch).to(dtype)[:, :K], b, bias


# A padded pitch that descriptors can address, and one that they cannot.
@pytest.mark.parametrize("pitch", [K + 8, K + 1])
def test_a_row_does_not_depend_on_how_many_there_are(family, pitch):
    for contract in family._KERNELS:
        function = getattr(family, contract)
        a, b, more = operands(contract, pitch=pitch)
        whole = bits(function(a, b, **more))
        assert len({str(row) for row in whole}) == len(whole)
        for m in ROWS[:-1]:
            assert bits(function(a[:m], b, **more)) == whole[:m], (contract, m)
        # Views of a row, or of some rows, at another place and with other neighbours.
        for first, last in ((129, 130), (1, 20)):
            assert bits(function(a[first:last], b, **more)) == whole[first:last], (contract, first)


def test_a_row_does_not_depend_on_what_the_others_hold(family):
    for contract in family._KERNELS:
        a, b, more = operands(contract)
        a = a[:20]
        before = bits(getattr(family, contract)(a, b, **more))
        a[1], a[2:] = float("inf"), float("nan")
        assert bits(getattr(family, contract)(a, b, **more))[0] == before[0]


def test_rows_of_a_given_result_are_alike_too(family):
    for contract in family._KERNELS:
        a, b, more = operands(contract)
        # A descriptor cannot write rows of this pitch, and would not look at that of one row.
        place = torch.zeros(17, N + 1, dtype=a.dtype)[:, :N]
        function = getattr(family, contract)
        expected = bits(function(a[:17], b, **more, out=place))
        for first, last in ((0, 1), (1, 2), (3, 17)):
            place.zero_()
            assert bits(function(a[first:last], b, **more, out=place[first:last])) == expected[first:last]


def test_rows_of_a_batch_depend_on_neither_size(render):
    spec = (
        "summary: Rows alike.\nlayout: rcr\ndtype: fp16\nbatch: strided\nload: [pointer, descriptor]\ninvariant: rows\n"
    )
    function = render("alike_batch", spec).bmm_fp16_rcr_none
    torch.manual_seed(0)
    a, b = torch.randn(3, 18, K).half(), torch.randn(3, N, K).half().mT
    whole = function(a, b)
    for count, m in ((1, 1), (1, 18), (2, 17), (3, 1)):
        assert torch.equal(function(a[:count, :m], b[:count]), whole[:count, :m])


@pytest.mark.parametrize("load", ["pointer", "descriptor"])
def test_a_row_of_a_group_depends_on_no_other_rows(render, load):
    """Neither on how many its group has and where it begins, nor on how many groups have rows at all."""
    spec = "summary: Rows alike.\nlayout: rcr\ndtype: fp16\nbatch: grouped\nepilogue: [none, swiglu]\n"
    more = f"load: {load}\nstore: pointer\nschedule: [tiled, persistent]\ninvariant: rows\n"
    family = render(f"alike_groups_{load}", spec + more)
    torch.manual_seed(0)
    a, b = torch.randn(150, K).half(), torch.randn(3, N, K).half().mT

    def product(function, *counts):
        """The rows of `a` in the second group; the others have as many rows as they are given, of any values."""
        before, own, behind = counts
        x = torch.cat([torch.randn(before, K).half(), a[:own], torch.randn(behind, K).half()])
        offsets = torch.tensor([before, before + own, before + own + behind], dtype=torch.int32)
        return bits(function(x, b, offsets)[before : before + own])

    for contract in family._KERNELS:
        function = getattr(family, contract)
        whole = product(function, 0, 150, 0)
        for counts in ((0, 1, 0), (1, 1, 0), (63, 17, 5), (70, 64, 1), (2, 149, 80)):
            assert product(function, *counts) == whole[: counts[1]], (contract, counts)
        # Rows that `rows` names are those of another kernel where descriptors are what the family has.
        if load == "pointer":
            rows = torch.arange(150, dtype=torch.int32)
            named = function(a, b, torch.tensor([0, 150, 150], dtype=torch.int32), rows=rows)
            assert bits(named) == whole


def test_the_gradient_of_a_row_does_not_depend_on_other_rows(render):
    """That of A: the one of B is a sum over rows."""
    spec = SPEC.partition("exclude")[0].format(load="pointer", schedule="tiled") + "backward: kernels\n"
    family = render("alike_trained", spec)
    for contract in ("gemm_fp16_rcr_none", "gemm_bf16_rcr_bias_gelutanh"):
        a, b, more = operands(contract)
        weight = torch.randn(len(a), N).to(a.dtype)

        def gradient(m, a=a, weight=weight):
            x = a[:m].clone().requires_grad_()
            getattr(family, contract)(x, b, **more).backward(weight[:m])  # noqa: B023
            assert x.grad is not None
            return bits(x.grad)

        whole = gradient(66)
        assert all(gradient(m) == whole[:m] for m in (1, 17))
