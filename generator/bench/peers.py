"""The other side: what the same product costs with the library a user has anyway."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from generator.bench.eager import apply as eager_epilogue
from generator.bench.eager import saturated
from generator.bench.problem import Problem
from generator.bench.random_operands import Operands
from generator.bench.suite import PEERS as WORDS
from generator.epilogue.chain import Epilogue
from generator.language.model import Dtype
from generator.language.vocabulary import ELEMENTS, QUANTISED
from generator.verify.element_types import torch_type

#: Computes the result of a set and returns it: a new tensor, or `out` filled where one is given and the side can. With
#: outputs beside the result it returns a tuple of all, the result first.
Launch = Callable[[Operands, torch.Tensor | None], Any]


@dataclass(frozen=True)
class Peer:
    """A peer for one problem, under the name of the call that it is."""

    name: str
    launch: Launch
    #: Whether it computes into tensors of its own even where an output is given.
    fresh: bool = False


class NoPeer(Exception):
    """The library does not compute this problem."""


def set_precision(problem: Problem) -> None:
    """Let torch multiply fp32 as the problem does: as tf32 where it says so, else with IEEE products."""
    fast = problem.dtype.precision == "tf32"
    matmul = torch.backends.cuda.matmul
    # torch 2.9 renamed the setting; mixing the two names is an error there.
    if hasattr(matmul, "fp32_precision"):
        matmul.fp32_precision = "tf32" if fast else "ieee"
    else:
        matmul.allow_tf32 = fast


@dataclass(frozen=True)
class _Call:
    """A call of the library: its name, and how many operations of the epilogue it computes besides the product."""

    name: str
    launch: Launch
    steps: int = 0


def cublas(problem: Problem) -> Peer:
    """torch's own product, then a call of torch for each operation; raise `NoPeer` where it has no such product.

    A leading `bias` goes through torch.addmm, which fuses it.
    """
    return _followed(problem, _addmm(problem) or _product(problem))


def eager(problem: Problem) -> Peer:
    """The same with nothing fused: torch's product by itself, then a call for each operation."""
    return _followed(problem, _product(problem))


def fused(problem: Problem) -> Peer:
    """The call of the library that computes most of the epilogue besides the product, then a call for each other
    operation; raise `NoPeer` where it has none.
    """
    call = _activated(problem) or _addmm(problem) or _scaled(problem)
    if call is None:
        dtype, epilogue = problem.dtype.word, problem.epilogue.word
        raise NoPeer(f"torch has no call for a product of {dtype} and the first operation of {epilogue}")
    return _followed(problem, call)


def _followed(problem: Problem, call: _Call) -> Peer:
    """A call, then what is left of the epilogue in the type of its operands, as torch does one after another."""
    rest = Epilogue(problem.epilogue.steps[call.steps :])
    out = problem.dtype.out
    name = " + ".join([call.name, *(step.word for step in rest.steps)])
    name += f", then {out}" if out in QUANTISED else ""
    if not rest.steps and out not in QUANTISED:
        return Peer(name, call.launch)
    converted = torch_type(problem.operand_type)

    def launch(operands: Operands, out: torch.Tensor | None) -> Any:
        x = call.launch(operands, None)
        outputs: list[torch.Tensor] = []
        if rest.steps:
            x = eager_epilogue(rest, x.to(converted), operands.epilogue, native=True, outputs=outputs)
        # What is saved lies in memory as the result does.
        beside = [
            found if output.tap.reduction else _deliver(found, operands, None)
            for output, found in zip(rest.outputs, outputs, strict=True)
        ]
        result = _deliver(x, operands, out)
        return (result, *beside) if beside else result

    return Peer(name, launch)


def _deliver(result: torch.Tensor, operands: Operands, out: torch.Tensor | None) -> torch.Tensor:
    """A result in the output's type, copied where an output is given."""
    result = saturated(result, operands.out.dtype)
    return result.to(operands.out.dtype) if out is None else out.copy_(result)


def _biased(problem: Problem) -> bool:
    """Whether torch.addmm begins the chain: a bias of the type that everything has."""
    if [step.word for step in problem.epilogue.steps[:1]] != ["bias"] or problem.shape.batch:
        return False
    return problem.operand_type == problem.dtype.a


def _addmm(problem: Problem) -> _Call | None:
    """Product and bias."""
    if not _biased(problem):
        return None

    def launch(operands: Operands, out: torch.Tensor | None) -> torch.Tensor:
        bias = operands.epilogue["bias"]
        assert isinstance(bias, torch.Tensor)
        return torch.addmm(bias, operands.a, operands.b, out=out)

    return _Call("torch.addmm", launch, 1)


#: The operations behind a bias that torch._addmm_activation computes, each as its `use_gelu` has it.
_ACTIVATIONS = {"relu": False, "gelu_tanh": True}


def _activated(problem: Problem) -> _Call | None:
    """Product, bias and activation."""
    word = problem.epilogue.steps[1].word if len(problem.epilogue.steps) > 1 else ""
    if word not in _ACTIVATIONS or not _biased(problem):
        return None

    def launch(operands: Operands, out: torch.Tensor | None) -> torch.Tensor:
        bias = operands.epilogue["bias"]
        assert isinstance(bias, torch.Tensor)
        return torch._addmm_activation(bias, operands.a, operands.b, use_gelu=_ACTIVATIONS[word], out=out)

    return _Call(f"torch._addmm_activation({word})", launch, 2)


def _scaled(problem: Problem) -> _Call | None:
    """A product of fp8 with a scale for each row and one for each column."""
    words = {step.word for step in problem.epilogue.steps[:2]}
    # The library writes bf16 alone where it scales by rows.
    if words != {"scale_m", "scale_n"} or not problem.dtype.a.startswith("fp8") or _unscaled(problem.dtype) != "bf16":
        return None
    return _Call("torch._scaled_mm by rows and columns", _scaled_mm(problem, by_rows=True), 2)


def _unscaled(dtype: Dtype) -> str:
    """The type that torch's product has before an epilogue, or before it is quantised."""
    if dtype.a == "int8":
        return "int32"
    if ELEMENTS[dtype.a].bits == 8:
        return "bf16" if dtype.out in QUANTISED else dtype.out
    return dtype.a


def _product(problem: Problem) -> _Call:
    """torch's product by itself; raise `NoPeer` where it has none of that kind."""
    dtype, shape = problem.dtype, problem.shape
    if problem.epilogue.steps or dtype.out in QUANTISED:
        dtype = replace(dtype, out=_unscaled(dtype))
        problem = replace(problem, dtype=dtype)
    if shape.batch and ELEMENTS[dtype.a].bits == 8:
        raise NoPeer(f"torch multiplies no batches of {dtype.a}")
    if shape.batch and dtype.out == dtype.a:
        return _Call("torch.bmm", lambda operands, out: torch.bmm(operands.a, operands.b, out=out))
    if dtype.a == "int8":
        product = _int_mm(shape.m, problem.columns, shape.k)
        if dtype.out == "int32":
            return _Call("torch._int_mm", product)
        name = f"torch._int_mm, then {dtype.out}"
        return _Call(name, lambda operands, out: _deliver(product(operands, None), operands, out))
    if ELEMENTS[dtype.a].bits == 8:
        return _Call("torch._scaled_mm", _scaled_mm(problem))
    if dtype.out == dtype.a:
        return _Call("torch.matmul", lambda operands, out: torch.matmul(operands.a, operands.b, out=out))

    def converted(operands: Operands, out: torch.Tensor | None) -> torch.Tensor:
        return _deliver(torch.matmul(operands.a, operands.b), operands, out)

    return _Call(f"torch.matmul, then {dtype.out}", converted)


def _int_mm(m: int, n: int, k: int) -> Launch:
    if m <= 16 or n % 8 or k % 8:
        raise NoPeer(f"torch._int_mm takes M above 16 and N, K that are multiples of 8, not {m}, {n}, {k}")

    def launch(operands: Operands, out: torch.Tensor | None) -> torch.Tensor:
        if out is None:
            return torch._int_mm(operands.a, operands.b)
        return torch._int_mm(operands.a, operands.b, out=out)

    return launch


def _scaled_mm(problem: Problem, *, by_rows: bool = False) -> Launch:
    """torch's product of fp8, with the operands `scale_m` and `scale_n`, or with scales of 1 as it demands some."""
    if problem.dtype.a == problem.dtype.b == "fp8e5m2":
        raise NoPeer("torch._scaled_mm takes no two operands of fp8e5m2")
    if (problem.layout.a, problem.layout.b, problem.layout.c) != ("row", "column", "row"):
        raise NoPeer(f"torch._scaled_mm takes the layout rcr alone, not {problem.layout.word}")
    if problem.columns % 16 or problem.shape.k % 16:
        raise NoPeer(
            f"torch._scaled_mm takes N and K that are multiples of 16, not {problem.columns}, {problem.shape.k}"
        )
    out_type = torch_type(_unscaled(problem.dtype))
    fast = problem.dtype.precision == "fast"
    ones: dict[torch.device, torch.Tensor] = {}

    def scales(operands: Operands) -> tuple[torch.Tensor, torch.Tensor]:
        if by_rows:
            rows, columns = operands.epilogue["scale_m"], operands.epilogue["scale_n"]
            assert isinstance(rows, torch.Tensor) and isinstance(columns, torch.Tensor)
            return rows[:, None], columns[None, :]
        device = operands.a.device
        if device not in ones:
            ones[device] = torch.ones((), dtype=torch.float32, device=device)
        return ones[device], ones[device]

    def launch(operands: Operands, out: torch.Tensor | None) -> torch.Tensor:
        one, other = scales(operands)
        result = torch._scaled_mm(
            operands.a, operands.b, scale_a=one, scale_b=other, out_dtype=out_type, use_fast_accum=fast, out=out
        )
        assert isinstance(result, torch.Tensor)
        return result

    return launch


def inductor(problem: Problem) -> Peer:
    """The same expression compiled by torch.compile, its kernels tuned for these sizes alone, into tensors of its own.

    Compiled at the first call. What was compiled before is forgotten, or torch would stop compiling after a few sizes.
    """
    expression = _followed(problem, _scaled(problem) or _addmm(problem) or _product(problem))
    names = [operand.name for operand in problem.epilogue.operands]
    typed = torch.empty(0, dtype=torch_type(problem.dtype.out))

    def product(a: torch.Tensor, b: torch.Tensor, *values: torch.Tensor | float) -> Any:
        # With the outputs beside the result: what a graph does not return, the compiler leaves out.
        return expression.launch(Operands(a, b, dict(zip(names, values)), typed), None)

    compiled: list[Callable[..., Any]] = []

    def launch(operands: Operands, out: torch.Tensor | None) -> Any:
        values = (operands.a, operands.b, *(operands.epilogue[name] for name in names))
        if not compiled:
            # Once as it is, so that what the library is given besides, such as scales, is there and not computed anew.
            expression.launch(operands, None)
            # As a graph of operations: the compiler does not read the formulas that the epilogue is kept in.
            graph = make_fx(product)(*values)
            torch._dynamo.reset()
            compiled.append(torch.compile(graph, mode="max-autotune-no-cudagraphs", dynamic=False))
        return compiled[0](*values)

    return Peer(f"torch.compile({expression.name})", launch, fresh=True)


#: Peers by the word of `--peer`.
PEERS: Mapping[str, Callable[[Problem], Peer]] = dict(zip(WORDS, (cublas, eager, fused, inductor), strict=True))
