"""`combine` of a family: rows of a product that are weighted and added for each token, and the gradients of that."""

import importlib
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from generator.verify import interpreter
from tests.helpers.support import spec

SPEC = spec("layout: rcr; dtype: [bf16, fp32]; batch: grouped; load: pointer; backward: kernels")
#: Tokens, terms of each, rows, and columns: one of each, none, primes, a block and one more with many terms.
SIZES = ((1, 1, 1, 1), (0, 2, 5, 7), (3, 0, 5, 7), (3, 2, 0, 7), (3, 2, 5, 0), (7, 3, 13, 129), (5, 9, 45, 1025))


def drawn(tokens, terms, rows, columns, dtype):
    """Rows, indices of which some are outside, and weights, which are NaN for those."""
    generator = torch.Generator().manual_seed(tokens + rows)
    y = torch.randn(rows, columns, generator=generator).to(dtype)
    index = torch.randint(-1, rows + 1, (tokens, terms), generator=generator, dtype=torch.int32)
    weights = torch.randn(tokens, terms, generator=generator)
    if index.numel() > 3:
        index[-1, -1], index[0, 0] = 2**31 - 1, -(2**31)
    return y, index, weights.masked_fill((index < 0) | (index >= rows), float("nan"))


def by_torch(y, index, weights):
    """The sums by operations of torch in fp32, term after term, rounded once."""
    total = torch.zeros(len(index), y.shape[1])
    for j in range(index.shape[1]):
        there = (index[:, j] >= 0) & (index[:, j] < len(y))
        if len(y):
            factor = 1.0 if weights is None else weights[:, j, None].float()
            term = y.float()[index[:, j].clamp(0, len(y) - 1).long()] * factor
            total = total + torch.where(there[:, None], term, 0.0)
    return total.to(y.dtype)


def of_torch(y, index, weights, grad):
    """The gradient of y with its terms in their order, bit for bit, and that of the weights in float64."""
    of_y, of_weights = torch.zeros(y.shape), torch.zeros(index.shape, dtype=torch.float64)
    for t in range(len(index)):
        for j in range(index.shape[1]):
            place = int(index[t, j])
            if 0 <= place < len(y):
                of_y[place] += grad[t].float() * (1.0 if weights is None else weights[t, j].float())
                of_weights[t, j] = grad[t].double() @ y[place].double()
    return of_y.to(y.dtype), of_weights


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_bits_are_those_of_terms_added_in_their_order(family, sizes, dtype):
    y, index, weights = drawn(*sizes, dtype)
    for given in (weights, weights.to(torch.bfloat16), weights.double(), None):
        found = family.combine(y, index, given)
        assert found.dtype == dtype and torch.equal(found, by_torch(y, index, given))
    out = torch.full((len(index), y.shape[1]), 7, dtype=dtype)
    turned = y.T.contiguous().T, index.T.contiguous().T, weights.repeat_interleave(2, 1)[:, ::2]
    for given, held in (((y, index, weights), out), (turned, out.T.contiguous().T)):
        assert family.combine(*given, out=held) is held and torch.equal(held, by_torch(y, index, weights))


def test_nothing_outside_the_operands_is_read_or_written(family):
    """Every address of the kernels is one of an operand's own elements."""
    interpreter.install()
    kernels = importlib.import_module(f"{family.__name__}._runtime.combined")
    for sizes in SIZES:
        y, index, weights = drawn(*sizes, torch.float32)
        grad, out = torch.randn(len(index), y.shape[1]), torch.empty(len(index), y.shape[1])
        order, ends = importlib.import_module(f"{family.__name__}._runtime.combine").inverse(index, len(y))
        read = {"y": y, "index": index, "weights": weights, "grad": grad, "order": order, "ends": ends}
        results = {"out": out, "of_y": torch.empty_like(y), "of_weights": torch.empty_like(weights)}
        regions = [interpreter.Region.of(name, x) for name, x in read.items()]
        regions += [interpreter.Region.of(name, x, writable=True) for name, x in results.items()]
        for table in (kernels.SUM, kernels.SPREAD, kernels.DOTS):
            given = {x.name: {**read, **results}[x.name] for x in (*table.operands, *table.results)}
            with interpreter.watch(regions):
                table(**given)
        assert all(bool(region.written.all()) for region in regions[-3:])


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_gradients_are_added_in_the_order_of_tokens(family, sizes, weighted):
    y, index, weights = drawn(*sizes, torch.bfloat16)
    grad = torch.randn(len(index), y.shape[1]).bfloat16()
    of_y, of_weights = of_torch(y, index, weights if weighted else None, grad)

    def step(run):
        a, b = y.clone().requires_grad_(), weights.clone().requires_grad_()
        run(a, index, b if weighted else None).backward(grad)
        return a.grad, b.grad

    runs = [family.combine]
    if sizes[0] == 7:
        runs.append(torch.compile(lambda *x: family.combine(*x), fullgraph=True, backend="aot_eager"))
    for run in runs:
        first, second = step(run)
        assert first is not None and first.dtype == y.dtype and torch.equal(first, of_y)
        if weighted:
            assert second is not None
            torch.testing.assert_close(second, of_weights.to(second.dtype), rtol=1e-5, atol=1e-5)


def test_wrong_calls_are_refused(family):
    y, index, weights = drawn(7, 3, 13, 129, torch.float32)
    for error, words, wrong in (
        (TypeError, "index must be torch.int32, got torch.int64", (y, index.long(), weights)),
        (TypeError, "y must be of a floating type", (y.int(), index, weights)),
        (TypeError, "weights must be of a floating type", (y, index, index)),
        (ValueError, r"weights must have shape \(7, 3\), got \(7, 2\)", (y, index, weights[:, :2])),
        (ValueError, "index must have two dimensions", (y, index[0], weights)),
        (TypeError, "y must be a torch.Tensor, got list", (y.tolist(), index, weights)),
    ):
        with pytest.raises(error, match=f"combine: {words}"):
            family.combine(*wrong)
    with pytest.raises(ValueError, match=r"combine: out must have shape \(7, 129\)"):
        family.combine(y, index, weights, out=torch.zeros(7, 128))
    with pytest.raises(ValueError, match="combine: out shares memory with y"):
        family.combine(y, index[:, :1], out=y[:7])
    with pytest.raises(RuntimeError, match=r"combine: y requires a gradient, .*do not give it"):
        family.combine(y.requires_grad_(), index, weights, out=torch.zeros(7, 129))


def test_a_gradient_of_a_gradient_is_refused_and_not_left_out(family):
    """Also where the first one depends on the weights alone, which torch's own check does not look at."""
    y, index, weights = drawn(7, 3, 13, 129, torch.float32)
    given = y.requires_grad_(), index, weights.nan_to_num().requires_grad_()
    compiled = torch.compile(family.combine, fullgraph=True, backend="aot_eager")
    for run, told in (
        (family.combine, "^combine: a gradient of its gradient is asked for"),
        (compiled, "double backward"),
    ):
        for power in (1, 2):
            (first,) = torch.autograd.grad(run(*given).pow(power).sum(), y, create_graph=True)
            with pytest.raises(RuntimeError, match=told):
                (first.sum() + given[2].sum()).backward()
    found = torch.utils.checkpoint.checkpoint(family.combine, *given, use_reentrant=False)
    found.sum().backward()
    assert torch.equal(found, family.combine(*given)) and y.grad is not None


def test_without_gradients_and_for_torch_alone(render):
    y, index, weights = drawn(7, 3, 13, 129, torch.float32)
    family = render("combined_alone", SPEC.replace("backward: kernels\n", ""))
    assert torch.equal(family.combine(y, index, weights), by_torch(y, index, weights))
    with pytest.raises(RuntimeError, match=r"combine: weights requires a gradient, .*backward: kernels"):
        family.combine(y, index, weights.clone().requires_grad_())
    plain = render("combined_plain", SPEC.replace("backward: kernels\n", "package: plain\n"))
    assert torch.equal(plain.combine(y, index, weights), by_torch(y, index, weights))
    with pytest.raises(TypeError, match="combine: index must be"):
        plain.combine(y, index.long())
    assert "combine" in dir(family) and "combine" in plain.__all__
    single = render(
        "combined_not", SPEC.replace("batch: grouped", "batch: grouped_k").replace("backward: kernels\n", "")
    )
    assert not hasattr(single, "combine")


def test_torch_sees_operators(family):
    given = drawn(7, 3, 13, 129, torch.float32)
    compiled = torch.compile(lambda *x: family.combine(*x) + 1, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*given), by_torch(*given) + 1)
    with FakeTensorMode() as mode:
        found = family.combine(*map(mode.from_tensor, given))
    assert found.shape == (7, 129) and found.dtype == torch.float32
    assert family.combine(*(x.to("meta") for x in given)).shape == (7, 129)
    operator = getattr(torch.ops, family._runtime.operators.NAMESPACE).combine.default
    torch.library.opcheck(operator, given, test_utils=("test_schema", "test_faketensor", "test_autograd_registration"))


#: Mistakes in the kernels: the texts that are replaced, and which of the three tables gives other bits then.
MISTAKES = {
    "the terms of a token in another order": ("SUM", {"+ j * stride_": "+ (K - 1 - j) * stride_"}),
    "a weight of another term": ("SUM", {"j * stride_wj": "(K - 1 - j) * stride_wj"}),
    "the weight of an index outside": ("SUM", {"tl.where(there, y, 0.0)": "y"}),
    "a rounding after each term": ("SUM", {"y, 0.0)": "y.to(tl.bfloat16).to(tl.float32), 0.0)"}),
    "the terms of a row in another order": (
        "SPREAD",
        {"order_ptr + at": "order_ptr + (first + tl.load(ends_ptr + row) - 1 - at)"},
    ),
    "the terms of a row behind": ("SPREAD", {"tl.maximum(row - 1, 0)": "row"}),
    "the token behind": ("SPREAD", {"token = term // K": "token = tl.maximum(term // K - 1, 0)"}),
    "a dot product without its last block": ("DOTS", {"tl.range(0, N, BLOCK_N)": "tl.range(0, N - 1, BLOCK_N)"}),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_kernel_gives_other_bits(family, mistake):
    interpreter.install()
    right = importlib.import_module(f"{family.__name__}._runtime.combined")
    table, changes = MISTAKES[mistake]
    path = Path(str(right.__file__))
    text = path.read_text()
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    name = f"combined_{list(MISTAKES).index(mistake)}"
    path.with_name(f"{name}.py").write_text(text)
    wrong = importlib.import_module(f"{family.__name__}._runtime.{name}")
    y, index, weights = drawn(5, 9, 45, 1025, torch.float32)
    grad = torch.randn(5, 1025)
    order, ends = importlib.import_module(f"{family.__name__}._runtime.combine").inverse(index, len(y))
    every = {"y": y, "index": index, "weights": weights, "grad": grad, "order": order, "ends": ends}
    tables = [getattr(module, table) for module in (right, wrong)]
    one, other = (each(**{x.name: every[x.name] for x in each.operands}) for each in tables)
    assert not torch.equal(one, other)


def test_derivatives_by_transforms_are_refused_and_not_left_out(family):
    y, index, weights = drawn(7, 3, 13, 16, torch.float32)
    told = "combine: no derivatives in forward mode are computed; use torch.autograd"
    for given, call in ((y, lambda x: family.combine(x, index)), (weights, lambda x: family.combine(y, index, x))):
        with pytest.raises(NotImplementedError, match=told):
            torch.func.jvp(call, (given,), (given,))
        with torch.autograd.forward_ad.dual_level(), pytest.raises(NotImplementedError, match=told):
            call(torch.autograd.forward_ad.make_dual(given, given))
        with pytest.raises(NotImplementedError, match=r"combine: torch\.func\.grad, vjp and jacrev do not reach"):
            torch.func.grad(lambda x, call=call: call(x).sum())(given)
    # Of others within such a level nothing is left out.
    with torch.autograd.forward_ad.dual_level():
        assert torch.equal(family.combine(y, index), by_torch(y, index, None))
