"""Torch's `matmul`, `linear` and `einsum` by a family whose rows are alike: the same bits in batches of every size."""

import pytest
import torch
from torch import nn
from torch.nn import functional

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


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def behind(x):
    """The same, with heads behind rows in memory, as a model's are that are views of one projection."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


WEIGHT, SQUARE, BIAS = drawn(N, K, seed=1), drawn(K, K, seed=2), drawn(N, seed=3)
ACROSS = WEIGHT.T.contiguous()
#: What models write of a batch `x` (B, H, M, K) and another one `y` (B, H, N, K); row by row it is each sequence's.
CALLS = {
    "4-D": lambda x, y: x @ y.mT,
    "heads behind rows": lambda x, y: behind(x) @ behind(y).mT,
    "one head for all, as a view": lambda x, y: x @ y[:, :1, None].expand(-1, 1, H, -1, -1).reshape(len(x), H, N, K).mT,
    "one matrix for all": lambda x, y: x @ WEIGHT.T,
    "a matrix for each head": lambda x, y: x @ torch.stack([WEIGHT, -WEIGHT]).mT,
    "3-D by a repeated matrix": lambda x, y: torch.bmm(x[:, 0], WEIGHT.T.expand(len(x), K, N)),
    "one row of each sequence": lambda x, y: x[:, 0, -1] @ WEIGHT.T,
    "one column": lambda x, y: x @ y[:, :, :1].mT,
    "a vector": lambda x, y: x @ WEIGHT[0],
    "a matrix by a batch": lambda x, y: (WEIGHT @ x.mT).mT,
    "columns contiguous": lambda x, y: x.mT.contiguous().mT @ ACROSS,
    # `contiguous` keeps the strides of a single row, which are then those of a row-major matrix.
    "rows, columns contiguous": lambda x, y: x[:, 0, 0].T.clone(memory_format=torch.contiguous_format).T @ ACROSS,
    "linear": lambda x, y: functional.linear(x, WEIGHT, BIAS),
    "linear without bias, cut": lambda x, y: functional.linear(x[:, 0, 1:4], WEIGHT),
    "linear of one row": lambda x, y: functional.linear(x[:, 0, 0], WEIGHT, BIAS),
    "addmm with a matrix": lambda x, y: torch.addmm(x[:, 0, 1], x[:, 0, 0], SQUARE),
    "addmm with a column": lambda x, y: torch.addmm(x[:, 0, 1, :1], x[:, 0, 0], SQUARE),
    "baddbmm with matrices": lambda x, y: torch.baddbmm(x[:, 0, :, :N], x[:, 0], y[:, 0].mT),
    "baddbmm of one row": lambda x, y: torch.baddbmm(x[:, 0, :1, :N], x[:, 0, :1], y[:, 0].mT),
    "einsum of attention": lambda x, y: torch.einsum("bhqd,bhkd->bhqk", x, y),
    "einsum, the matrix first": lambda x, y: torch.einsum("nk,bmk->bmn", WEIGHT, x[:, 0]),
    "einsum over two": lambda x, y: torch.einsum("bhmk,hnk->bmn", x, torch.stack([WEIGHT, -WEIGHT])),
    "einsum, not said": lambda x, y: torch.einsum("bmk,kn", x[:, 0], WEIGHT.T),
    "no rows": lambda x, y: x[:, :, :0] @ y.mT,
    "nothing to add up": lambda x, y: x[..., :0] @ y[..., :0].mT,
}


@pytest.mark.parametrize("name", CALLS)
def test_a_sequence_has_the_same_bits_in_every_batch(family, launches, name):
    x, y = drawn(max(BATCHES), H, M, K), drawn(max(BATCHES), H, N, K, seed=4)
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
    x = drawn(3, M, K)
    with family.override_aten():
        out = torch.empty(3, M, N)
        assert torch.matmul(x, WEIGHT.T, out=out) is out
        assert torch.equal(out, x @ WEIGHT.T)
        # Torch gives it the shape.
        assert torch.matmul(x, WEIGHT.T, out=torch.empty(0)).shape == (3, M, N)


def test_a_product_of_one_step_needs_no_contract(family, launches):
    """The angles of rotary embeddings, of a type that the family does not multiply: each element is one product."""
    rates, places = drawn(3, 8, 1).double(), torch.arange(16.0).double().expand(3, 1, 16)
    expected = rates @ places
    with family.override_aten() as override:
        assert torch.equal(rates @ places, expected) and not launches
        assert torch.equal(torch.mm(rates[0], places[0]), expected[0])
    assert not override.report.kept
    assert {told for _, told in override.report.replaced} == {"K is 1: elementwise"}


def test_vectors(family):
    x, y = drawn(K), drawn(K, seed=1)
    matrix = drawn(M, K, seed=2)
    calls = {
        "dot": lambda: torch.dot(x, y),
        "dot out": lambda: torch.dot(x, y, out=torch.empty(())),
        "mm": lambda: x @ y,
        "addmv": lambda: torch.addmv(drawn(M), matrix, y),
        "addmv number": lambda: torch.addmv(torch.tensor(2.0), matrix, y),
        "addmv in place": lambda: drawn(M).addmv_(matrix, y),
        "addmv without": lambda: torch.addmv(drawn(M), matrix, y, beta=0),
    }
    for name, call in calls.items():
        expected = call()
        with family.override_aten() as override:
            found = call()
        ((operator, _),) = override.report.replaced
        assert operator == name.split()[0] and not override.report.kept, str(override)
        torch.testing.assert_close(found, expected)


def test_what_torch_refuses_is_torchs_error(family):
    x = drawn(3, M, K)
    calls = [
        lambda: x @ WEIGHT,
        lambda: x @ drawn(2, K, N),
        lambda: torch.tensor(1.0) @ x,
        lambda: functional.linear(x, WEIGHT.T),
        lambda: functional.linear(x, WEIGHT, BIAS[1:]),
        lambda: torch.einsum("bmk,kn->bmn", x, WEIGHT),
        lambda: torch.einsum("bmk->mk", x, x),
        lambda: torch.addmv(drawn(2), drawn(M, K), drawn(K)),
        lambda: torch.dot(drawn(2), drawn(3)),
        lambda: torch.addmm(drawn(M, 1), drawn(1, K), drawn(K, M)),
        lambda: x @ WEIGHT.T.double(),
    ]
    for call in calls:
        with pytest.raises(RuntimeError) as expected:
            call()
        with family.override_aten(), pytest.raises(RuntimeError) as found:
            call()
        assert str(found.value) == str(expected.value)


def test_other_sums_and_types_are_torchs(family):
    x = drawn(3, M, K)
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
    x, weight, bias = (each.to(dtype).requires_grad_() for each in (drawn(2, M, K), WEIGHT, BIAS))

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
    given = {"x": drawn(M, K), "bias": drawn(N), "out": torch.empty(M, N)}
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
    layer, x = nn.Linear(K, N), drawn(M, K).requires_grad_()
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
