"""The reference against torch's own functions, and its bound against fp32 arithmetic."""

from __future__ import annotations

import ast

import pytest
import torch
from torch.nn import functional

from generator import formula
from generator.bench import eager
from generator.epilogue import Epilogue
from generator.model import Dtype, Layout, Variant
from generator.operations import OPERATIONS, SCALAR
from generator.verify.arithmetic import FUNCTIONS, Bounded
from generator.verify.compare import compare
from generator.verify.reference import evaluate, finish, reference
from generator.vocabulary import DEFAULTS


def variant(dtype: str = "fp32", *operations: str) -> Variant:
    words = {axis: DEFAULTS[axis] for axis in ("batch", "masking", "swizzle", "schedule", "load", "store")}
    return Variant(Layout.of("rrr"), Dtype.of(dtype), epilogue=Epilogue.of(operations), **words)


def operands(chain: Epilogue, m: int, n: int) -> dict[str, torch.Tensor | float]:
    shapes = {"M": (m,), "N": (n,), "MN": (m, n)}
    found: dict[str, torch.Tensor | float] = {}
    for index, operand in enumerate(chain.operands):
        random = torch.Generator().manual_seed(index)
        found[operand.name] = 1.7 if operand.shape == SCALAR else torch.randn(shapes[operand.shape], generator=random)
    return found


#: torch's word for each operation, on the float64 accumulator.
WITNESSES = {
    "bias": lambda x, o: x + o["bias"].double(),
    "bias_m": lambda x, o: x + o["bias_m"].double()[:, None],
    "scale": lambda x, o: x * o["scale"],
    "add": lambda x, o: x + o["add"].double(),
    "relu": lambda x, o: functional.relu(x),
    "gelu": lambda x, o: functional.gelu(x),
    "gelu_tanh": lambda x, o: functional.gelu(x, approximate="tanh"),
    "silu": lambda x, o: functional.silu(x),
    "sigmoid": lambda x, o: torch.sigmoid(x),
    "tanh": lambda x, o: torch.tanh(x),
}


def test_every_function_of_the_formula_language_has_a_reference() -> None:
    assert FUNCTIONS.keys() == eager.FUNCTIONS.keys() == formula.FUNCTIONS.keys()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_operation_is_what_torch_calls_it(operation: str) -> None:
    a, b = torch.randn(33, 20) * 2, torch.randn(20, 17)
    chain = variant("fp32", operation)
    given = operands(chain.epilogue, 33, 17)
    expected = WITNESSES[operation](a.double() @ b.double(), given)
    torch.testing.assert_close(reference(chain, a, b, given, hardware=False).value, expected, rtol=1e-12, atol=1e-12)


def test_a_chain_is_applied_left_to_right_and_a_second_operand_is_its_own() -> None:
    chain = variant("fp32", "add", "relu", "add", "scale")
    given = operands(chain.epilogue, 3, 4)
    a, b = torch.randn(3, 5), torch.randn(5, 4)
    x = functional.relu(a.double() @ b.double() + given["add"].double()) + given["add2"].double()
    torch.testing.assert_close(reference(chain, a, b, given, hardware=False).value, x * 1.7)


def in_fp32(tree: ast.expr, names: dict[str, torch.Tensor]) -> torch.Tensor:
    """A formula in plain fp32 arithmetic, as a kernel computes it."""
    match tree:
        case ast.Name(id=name):
            return names[name]
        case ast.Constant(value=value):
            return torch.tensor(float(value), dtype=torch.float32)
        case ast.UnaryOp(operand=operand):
            return -in_fp32(operand, names)
        case ast.BinOp(left=left, op=op, right=right):
            x, y = in_fp32(left, names), in_fp32(right, names)
            return {ast.Add: x + y, ast.Sub: x - y, ast.Mult: x * y, ast.Div: x / y}[type(op)]
        case ast.Call(func=ast.Name(id=function), args=arguments):
            values = [in_fp32(argument, names) for argument in arguments]
            if function == "max":
                return torch.maximum(*torch.broadcast_tensors(*values))
            if function == "sigmoid":
                return 1 / (1 + torch.exp(-values[0]))
            return {"erf": torch.erf, "tanh": torch.tanh}[function](values[0])
    raise TypeError(ast.dump(tree))


FORMULAS = [(name, operation.formula) for name, operation in OPERATIONS.items() if not operation.operands]
FORMULAS += [("division", "x / (1 + x * x)"), ("cancelling", "(x + 1000) - 1000"), ("minus", "max(-x, 0.1 - x) / 3")]


@pytest.mark.parametrize("spread", [0.01, 1.0, 30.0])
@pytest.mark.parametrize(("name", "text"), FORMULAS)
def test_the_bound_holds_for_fp32_arithmetic_on_an_inexact_accumulator(name: str, text: str, spread: float) -> None:
    random = torch.Generator().manual_seed(1)
    exact = torch.randn(20000, generator=random, dtype=torch.float64) * spread
    error = exact.abs() * 1e-6
    computed = (exact + error * (2 * torch.rand(20000, generator=random, dtype=torch.float64) - 1)).float()
    error = torch.maximum(error, (computed.double() - exact).abs())
    tree = formula.parse(text, frozenset({"x"}))
    expected = evaluate(tree, {"x": Bounded(exact, error)})
    got = in_fp32(tree, {"x": computed}).double()
    assert bool(((got - expected.value).abs() <= expected.error).all())


@pytest.mark.parametrize(("name", "text"), FORMULAS[:-3])
def test_the_bound_is_small_against_the_rounding_of_16_bits(name: str, text: str) -> None:
    x = torch.randn(20000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = evaluate(formula.parse(text, frozenset({"x"})), {"x": Bounded(x, torch.zeros_like(x))})
    assert bool((expected.error <= 1e-5 * expected.value.abs() + 2e-6).all())


@pytest.mark.parametrize("operation", [name for name, operation in OPERATIONS.items() if not operation.operands])
def test_what_is_nan_stays_nan_and_an_exact_infinity_is_no_excuse(operation: str) -> None:
    x = torch.tensor([[float("nan"), float("inf"), 1.0]], dtype=torch.float64)
    expected = finish(variant("fp32", operation), Bounded(x, torch.zeros_like(x)), {})
    assert bool(expected.value[0, 0].isnan())
    assert bool(expected.error.isfinite().all())
    wrong = expected.value.float()
    wrong[0, 0] = 0.0
    assert compare(wrong, expected).fault is not None


def test_operands_are_read_as_fp32() -> None:
    third = torch.tensor([1 / 3], dtype=torch.float64)
    x = Bounded(torch.zeros(1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64))
    expected = finish(variant("fp32", "bias"), x, {"bias": third})
    assert compare(third.float()[None], expected).fault is None
    assert compare(third.half().float()[None], expected).fault is not None


def test_integers_are_exact_until_an_operation_needs_fp32() -> None:
    a, b = torch.full((2, 2000), 127, dtype=torch.int8), torch.full((2000, 2), 127, dtype=torch.int8)
    exact = reference(variant("int8", "relu"), a, b, {}, hardware=True)
    assert float(exact.value[0, 0]) == 2000 * 127 * 127
    assert not bool(exact.error.any())
    rounded = reference(variant("int8", "relu", "scale"), a, b, {"scale": 1.0}, hardware=True)
    assert bool((rounded.error > 0).all())


@pytest.mark.parametrize("shape", [(0, 3, 2), (3, 0, 2), (3, 2, 0)])
def test_empty_sizes_have_a_reference(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    expected = reference(variant("fp32", "sigmoid"), torch.randn(m, k), torch.randn(k, n), {}, hardware=True)
    assert expected.value.shape == (m, n)
    assert bool((expected.value == 0.5).all())
