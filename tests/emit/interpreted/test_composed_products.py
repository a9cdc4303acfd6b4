"""Families whose rows are alike: the same bits in batches of every size, also of torch's own functions."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.helpers.emit.calls import random
from tests.helpers.support import spec

# Different tiles add up K in steps of different lengths, so that another contract or layout has other bits.
SPEC = spec(
    "layout: [rcr, rrr, crr]; dtype: [fp32]; batch: [none, strided]; epilogue: [none, bias, add]; load: pointer; "
    "with: aten; tile: [{m: 16, n: 16, k: 32, warps: 1}]; invariant: rows"
)
H, M, N, K = 2, 5, 24, 40
BATCHES = (1, 2, 7)


@pytest.fixture(autouse=True)
def undone():
    """Every test leaves torch's dispatcher as it was."""
    names = ("matmul", "matmul.out", "linear", "einsum", "mm", "dot", "addmv")
    before = [torch._C._dispatch_dump(f"aten::{name}") for name in names]
    yield
    assert [torch._C._dispatch_dump(f"aten::{name}") for name in names] == before


def behind(x):
    """The same, with heads behind rows in memory, as a model's are that are views of one projection."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


WEIGHT, SQUARE, BIAS = random(N, K, seed=1), random(K, K, seed=2), random(N, seed=3)
ACROSS = WEIGHT.T.contiguous()
#: What models write of a batch `x` (B, H, M, K) and another one `y` (B, H, N, K); row by row it is each sequence's.
CALLS = {
    "4-D": lambda x, y: x @ y.mT,
    "heads behind rows": lambda x, y: behind(x) @ behind(y).mT,
    "one head for all, as a view": lambda x, y: x @ y[:, :1, None].expand(-1, 1, H, -1, -1).reshape(len(x), H, N, K).mT,
    "one matrix for all": lambda x, y: x @ WEIGHT.T,
    "a matrix for each head": lambda x, y: x @ torch.stack([WEIGHT, -WEIGHT]).mT,
    "one row of each sequence": lambda x, y: x[:, 0, -1] @ WEIGHT.T,
    "one column": lambda x, y: x @ y[:, :, :1].mT,
    "a vector": lambda x, y: x @ WEIGHT[0],
    "a matrix by a batch": lambda x, y: (WEIGHT @ x.mT).mT,
    "columns contiguous": lambda x, y: x.mT.contiguous().mT @ ACROSS,
    # `contiguous` keeps the strides of a single row, which are then those of a row-major matrix.
    "rows, columns contiguous": lambda x, y: x[:, 0, 0].T.clone(memory_format=torch.contiguous_format).T @ ACROSS,
    "linear": lambda x, y: functional.linear(x, WEIGHT, BIAS),
    "linear without bias, cut": lambda x, y: functional.linear(x[:, 0, 1:4], WEIGHT),
    "addmm with a matrix": lambda x, y: torch.addmm(x[:, 0, 1], x[:, 0, 0], SQUARE),
    "baddbmm with matrices": lambda x, y: torch.baddbmm(x[:, 0, :, :N], x[:, 0], y[:, 0].mT),
    "baddbmm of one row": lambda x, y: torch.baddbmm(x[:, 0, :1, :N], x[:, 0, :1], y[:, 0].mT),
    "einsum of attention": lambda x, y: torch.einsum("bhqd,bhkd->bhqk", x, y),
    "einsum, the matrix first": lambda x, y: torch.einsum("nk,bmk->bmn", WEIGHT, x[:, 0]),
    "einsum over two": lambda x, y: torch.einsum("bhmk,hnk->bmn", x, torch.stack([WEIGHT, -WEIGHT])),
    "no rows": lambda x, y: x[:, :, :0] @ y.mT,
    "nothing to add up": lambda x, y: x[..., :0] @ y[..., :0].mT,
}


@pytest.mark.parametrize("name", CALLS)
def test_a_sequence_has_the_same_bits_in_every_batch(family, launches, name):
    x, y = random(max(BATCHES), H, M, K), random(max(BATCHES), H, N, K, seed=4)
    call, exact = CALLS[name], CALLS[name](x, y)
    whole_calls, found = [], None
    for count in (*BATCHES[::-1],):
        # New tensors, as a model has them, whose strides follow from their shapes.
        own = x[:count].clone(), y[:count].clone()
        with family.override_aten() as override:
            result = call(*own)
        assert not override.report.kept and override.report.replaced, (count, str(override))
        whole_calls.append({contract for _, contract in override.report.replaced})
        expected = call(*own)
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
        found = result if found is None else found
        assert torch.equal(result, found[:count]), count
    # The bits may agree by chance, the contracts do not.
    assert all(each == whole_calls[0] for each in whole_calls), whole_calls
    torch.testing.assert_close(found, exact, rtol=1e-4, atol=1e-4)


def test_what_is_written_has_the_bits_of_what_is_returned(family):
    x = random(3, M, K)
    with family.override_aten():
        out = torch.empty(3, M, N)
        assert torch.matmul(x, WEIGHT.T, out=out) is out
        assert torch.equal(out, x @ WEIGHT.T)
        # Torch gives it the shape.
        assert torch.matmul(x, WEIGHT.T, out=torch.empty(0)).shape == (3, M, N)


def test_a_product_of_one_step_needs_no_contract(family, launches):
    """The angles of rotary embeddings, of a type that the family does not multiply: each element is one product."""
    rates, places = random(3, 8, 1).double(), torch.arange(16.0).double().expand(3, 1, 16)
    expected = rates @ places
    with family.override_aten() as override:
        assert torch.equal(rates @ places, expected) and not launches
        assert torch.equal(torch.mm(rates[0], places[0]), expected[0])
    assert not override.report.kept
    assert {told for _, told in override.report.replaced} == {"K is 1: elementwise"}


def test_vectors(family):
    x, y = random(K), random(K, seed=1)
    matrix = random(M, K, seed=2)
    calls = {
        "dot": lambda: torch.dot(x, y),
        "dot out": lambda: torch.dot(x, y, out=torch.empty(())),
        "mm": lambda: x @ y,
        "addmv": lambda: torch.addmv(random(M), matrix, y),
        "addmv number": lambda: torch.addmv(torch.tensor(2.0), matrix, y),
        "addmv in place": lambda: random(M).addmv_(matrix, y),
        "addmv without": lambda: torch.addmv(random(M), matrix, y, beta=0),
    }
    for name, call in calls.items():
        expected = call()
        with family.override_aten() as override:
            found = call()
        ((operator, _),) = override.report.replaced
        assert operator == name.split()[0] and not override.report.kept, str(override)
        torch.testing.assert_close(found, expected)


def test_what_torch_refuses_is_torchs_error(family):
    x = random(3, M, K)
    calls = [
        lambda: x @ WEIGHT,
        lambda: torch.tensor(1.0) @ x,
        lambda: functional.linear(x, WEIGHT, BIAS[1:]),
        lambda: torch.einsum("bmk,kn->bmn", x, WEIGHT),
        lambda: torch.addmv(random(2), random(M, K), random(K)),
        lambda: torch.addmm(random(M, 1), random(1, K), random(K, M)),
        lambda: x @ WEIGHT.T.double(),
        lambda: torch.bmm(x, random(3, N, K)),
        lambda: torch.mm(x[0], WEIGHT.T, out=torch.empty(M, N).double()),
    ]
    for call in calls:
        with pytest.raises(RuntimeError) as expected:
            call()
        with family.override_aten(), pytest.raises(RuntimeError) as found:
            call()
        assert str(found.value) == str(expected.value)


def test_other_sums_and_types_are_torchs(family):
    x = random(3, M, K)
    calls = [
        lambda: torch.einsum("bmk->mk", x),
        lambda: torch.einsum("...k,nk->...n", x, WEIGHT),
        lambda: torch.einsum("bmk,bmk->bk", x, x),
        lambda: torch.einsum("bmk,nk->n", x, WEIGHT),
        lambda: torch.einsum("bm,n->bmn", x[..., 0], BIAS),
        lambda: torch.einsum("ii,ij->ij", SQUARE, SQUARE),
        lambda: torch.einsum("bmk,kn,nj->bmj", x, WEIGHT.T, WEIGHT),
        lambda: x.double() @ WEIGHT.T.double(),
        lambda: functional.linear(x, WEIGHT[0]),
    ]
    for call in calls:
        expected = call()
        with family.override_aten():
            torch.testing.assert_close(call(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.complex64])
def test_gradients_of_what_is_left_to_torch(family, dtype):
    # Kernels for a device had changed which kernel of autograd torch's dispatcher gives for that device.
    x, weight, bias = (each.to(dtype).requires_grad_() for each in (random(2, M, K), WEIGHT, BIAS))

    def gradients():
        results = x @ weight.T, x[0] @ weight[0], functional.linear(x, weight, bias)
        results = (*results, functional.linear(x[0, 0], weight), torch.einsum("bmk,nk->bmn", x, weight))
        total = sum(each.abs().square().sum() for each in results)
        return [*torch.autograd.grad(total, (x, weight, bias))]

    expected = gradients()
    with family.override_aten():
        found = gradients()
    torch.testing.assert_close([*found], [*expected])


@pytest.mark.parametrize("recorded", ["x", "bias", "out"])
def test_a_result_that_is_filled_records_no_gradient(family, recorded):
    # Torch refuses it; here the gradient had been recorded, so that a model worked with the family alone.
    given = {"x": random(M, K), "bias": random(N), "out": torch.empty(M, N)}
    given[recorded].requires_grad_()
    linear = torch._C._nn.linear
    with family.override_aten():
        with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
            linear(given["x"], WEIGHT, given["bias"], out=given["out"])
        with torch.no_grad():
            found = linear(given["x"], WEIGHT, given["bias"], out=given["out"])
    torch.testing.assert_close(found, functional.linear(given["x"], WEIGHT, given["bias"]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("how", ["compiled", "exported"])
def test_a_model_compiled_after_it_has_its_gradients(family, how):
    # Torch keeps which kernels an operator had while it traced; with those of the override no gradient was recorded.
    layer, x = nn.Linear(K, N), random(M, K).requires_grad_()
    with family.override_aten():
        if how == "compiled":
            torch.compile(layer, backend="aot_eager")(x)
        else:
            torch.export.export(layer, (x.detach(),))
    torch._dynamo.reset()
    found = torch.compile(layer, backend="aot_eager")(x)
    gradients = torch.autograd.grad(found.square().sum(), (x, *layer.parameters()))
    expected = torch.autograd.grad(layer(x).square().sum(), (x, *layer.parameters()))
    torch.testing.assert_close([*gradients], [*expected])


ALIKE = spec(
    "layout: rcr; dtype: [fp16, bf16]; epilogue: [none, bias+gelu_tanh]; load: {load}; schedule: {schedule}; "
    'invariant: rows; exclude: [{{dtype: fp16, epilogue: bias+gelu_tanh, because: "each type and each chain once"}}, '
    '{{dtype: bf16, epilogue: none, because: "each type and each chain once"}}]'
)
#: One row, a few, those of one tile, one more, and several tiles of which the last is ragged.
ROWS = (1, 2, 3, 17, 64, 65, 100, 130)
WIDTH, DEPTH = 40, 104


@pytest.fixture(scope="module", params=["tiled", "persistent", "split_k", "naive"])
def alike(request, render):
    return render(f"alike_{request.param}", ALIKE.format(load="[pointer, descriptor]", schedule=request.param))


def bits(x):
    return x.contiguous().view(torch.int16).tolist()


def operands(contract, *, pitch=DEPTH):
    """A with the most rows and a row pitch, B, and what the epilogue reads."""
    torch.manual_seed(0)
    dtype = torch.float16 if "fp16" in contract else torch.bfloat16
    b = torch.randn(WIDTH, DEPTH).to(dtype).T
    bias = {"bias": torch.randn(WIDTH).to(dtype)} if "bias" in contract else {}
    return torch.randn(max(ROWS), pitch).to(dtype)[:, :DEPTH], b, bias


# A padded pitch that descriptors can address, and one that they cannot.
@pytest.mark.parametrize("pitch", [DEPTH + 8, DEPTH + 1])
def test_a_row_does_not_depend_on_how_many_there_are(alike, pitch):
    for contract in alike._KERNELS:
        function = getattr(alike, contract)
        a, b, more = operands(contract, pitch=pitch)
        whole = bits(function(a, b, **more))
        assert len({str(row) for row in whole}) == len(whole)
        for m in ROWS[:-1]:
            assert bits(function(a[:m], b, **more)) == whole[:m], (contract, m)
        # Views of a row, or of some rows, at another place and with other neighbours.
        for first, last in ((129, 130), (1, 20)):
            assert bits(function(a[first:last], b, **more)) == whole[first:last], (contract, first)


def test_a_row_does_not_depend_on_what_the_others_hold(alike):
    for contract in alike._KERNELS:
        a, b, more = operands(contract)
        a = a[:20]
        before = bits(getattr(alike, contract)(a, b, **more))
        a[1], a[2:] = float("inf"), float("nan")
        assert bits(getattr(alike, contract)(a, b, **more))[0] == before[0]


def test_rows_of_a_given_result_are_alike_too(alike):
    for contract in alike._KERNELS:
        a, b, more = operands(contract)
        # A descriptor cannot write rows of this pitch, and would not look at that of one row.
        place = torch.zeros(17, WIDTH + 1, dtype=a.dtype)[:, :WIDTH]
        function = getattr(alike, contract)
        expected = bits(function(a[:17], b, **more, out=place))
        for first, last in ((0, 1), (1, 2), (3, 17)):
            place.zero_()
            assert bits(function(a[first:last], b, **more, out=place[first:last])) == expected[first:last]


@pytest.mark.parametrize("load", ["pointer", "descriptor"])
def test_a_row_of_a_group_depends_on_no_other_rows(render, load):
    """Neither on how many its group has and where it begins, nor on how many groups have rows at all."""
    spec = "summary: Rows alike.\nlayout: rcr\ndtype: fp16\nbatch: grouped\nepilogue: [none, swiglu]\n"
    more = f"load: {load}\nstore: pointer\nschedule: [tiled, persistent]\ninvariant: rows\n"
    family = render(f"alike_groups_{load}", spec + more)
    torch.manual_seed(0)
    a, b = torch.randn(150, DEPTH).half(), torch.randn(3, WIDTH, DEPTH).half().mT

    def product(function, *counts):
        """The rows of `a` in the second group; the others have as many rows as they are given, of any values."""
        before, own, behind = counts
        x = torch.cat([torch.randn(before, DEPTH).half(), a[:own], torch.randn(behind, DEPTH).half()])
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
    spec = ALIKE.partition("exclude")[0].format(load="pointer", schedule="tiled") + "backward: kernels\n"
    family = render("alike_trained", spec)
    for contract in ("gemm_fp16_rcr_none", "gemm_bf16_rcr_bias_gelutanh"):
        a, b, more = operands(contract)
        weight = torch.randn(len(a), WIDTH).to(a.dtype)

        def gradient(m, a=a, weight=weight):
            x = a[:m].clone().requires_grad_()
            getattr(family, contract)(x, b, **more).backward(weight[:m])  # noqa: B023
            assert x.grad is not None
            return bits(x.grad)

        whole = gradient(66)
        assert all(gradient(m) == whole[:m] for m in (1, 17))
