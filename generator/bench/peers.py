"""The other side: what the same product costs with the library a user has anyway."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from generator.bench import eager
from generator.bench.operands import Operands
from generator.bench.problem import Problem
from generator.bench.suite import PEERS as WORDS
from generator.verify.elements import torch_type
from generator.vocabulary import ELEMENTS

#: Computes the result of a set and returns it: a new tensor, or `out` filled where one is given and the side can. A
#: kernel with outputs beside its result returns them all.
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


def cublas(problem: Problem) -> Peer:
    """torch's own product, then the epilogue in plain torch operations; raise `NoPeer` where it has no such product.

    A leading `bias` goes through torch.addmm, which fuses it.
    """
    name, product = _product(problem)
    if not problem.epilogue.steps:
        return Peer(name, product)
    converted = torch_type(problem.operand_type)
    words = [step.word for step in problem.epilogue.steps]

    def eager_epilogue(operands: Operands, out: torch.Tensor | None) -> torch.Tensor:
        # What is written beside the result is computed too, and dropped.
        result = eager.apply(problem.epilogue, product(operands, None).to(converted), operands.epilogue, outputs=[])
        return _deliver(result, operands, out)

    fused = words[0] == "bias" and name == "torch.matmul" and not problem.shape.batch
    if not fused:
        return Peer(" + ".join([name, *words]), eager_epilogue)
    rest = type(problem.epilogue)(problem.epilogue.steps[1:])

    def addmm(operands: Operands, out: torch.Tensor | None) -> torch.Tensor:
        bias = operands.epilogue["bias"]
        assert isinstance(bias, torch.Tensor)
        if not rest.steps:
            return torch.addmm(bias, operands.a, operands.b, out=out)
        result = eager.apply(rest, torch.addmm(bias, operands.a, operands.b), operands.epilogue, outputs=[])
        return _deliver(result, operands, out)

    return Peer(" + ".join(["torch.addmm", *words[1:]]), addmm)


def _deliver(result: torch.Tensor, operands: Operands, out: torch.Tensor | None) -> torch.Tensor:
    """A result in the output's type, copied where an output is given."""
    return result.to(operands.out.dtype) if out is None else out.copy_(result)


def _product(problem: Problem) -> tuple[str, Launch]:
    dtype, shape = problem.dtype, problem.shape
    if shape.batch and ELEMENTS[dtype.a].bits == 8:
        raise NoPeer(f"torch multiplies no batches of {dtype.a}")
    if shape.batch and dtype.out == dtype.a:
        return "torch.bmm", lambda operands, out: torch.bmm(operands.a, operands.b, out=out)
    if dtype.a == "int8":
        product = _int_mm(shape.m, shape.n, shape.k)
        if dtype.out == "int32":
            return "torch._int_mm", product
        name = f"torch._int_mm, then {dtype.out}"
        return name, lambda operands, out: _deliver(product(operands, None), operands, out)
    if ELEMENTS[dtype.a].bits == 8:
        return "torch._scaled_mm", _scaled_mm(problem)
    if dtype.out == dtype.a:
        return "torch.matmul", lambda operands, out: torch.matmul(operands.a, operands.b, out=out)

    def converted(operands: Operands, out: torch.Tensor | None) -> torch.Tensor:
        return _deliver(torch.matmul(operands.a, operands.b), operands, out)

    return f"torch.matmul, then {dtype.out}", converted


def _int_mm(m: int, n: int, k: int) -> Launch:
    if m <= 16 or n % 8 or k % 8:
        raise NoPeer(f"torch._int_mm takes M above 16 and N, K that are multiples of 8, not {m}, {n}, {k}")

    def launch(operands: Operands, out: torch.Tensor | None) -> torch.Tensor:
        if out is None:
            return torch._int_mm(operands.a, operands.b)
        return torch._int_mm(operands.a, operands.b, out=out)

    return launch


def _scaled_mm(problem: Problem) -> Launch:
    if problem.dtype.a == problem.dtype.b == "fp8e5m2":
        raise NoPeer("torch._scaled_mm takes no two operands of fp8e5m2")
    if (problem.layout.a, problem.layout.b, problem.layout.c) != ("row", "column", "row"):
        raise NoPeer(f"torch._scaled_mm takes the layout rcr alone, not {problem.layout.word}")
    if problem.shape.n % 16 or problem.shape.k % 16:
        raise NoPeer(
            f"torch._scaled_mm takes N and K that are multiples of 16, not {problem.shape.n}, {problem.shape.k}"
        )
    out_type = torch_type(problem.dtype.out)
    fast = problem.dtype.precision == "fast"
    ones: dict[torch.device, torch.Tensor] = {}

    def launch(operands: Operands, out: torch.Tensor | None) -> torch.Tensor:
        device = operands.a.device
        if device not in ones:
            ones[device] = torch.ones((), dtype=torch.float32, device=device)
        one = ones[device]
        result = torch._scaled_mm(
            operands.a, operands.b, scale_a=one, scale_b=one, out_dtype=out_type, use_fast_accum=fast, out=out
        )
        assert isinstance(result, torch.Tensor)
        return result

    return launch


def inductor(problem: Problem) -> Peer:
    """The same expression compiled by torch.compile, its kernels tuned for these sizes alone, into tensors of its own.

    Compiled at the first call. What was compiled before is forgotten, or torch would stop compiling after a few sizes.
    """
    expression = cublas(problem)
    names = [operand.name for operand in problem.epilogue.operands]
    typed = torch.empty(0, dtype=torch_type(problem.dtype.out))

    def product(a: torch.Tensor, b: torch.Tensor, *values: torch.Tensor | float) -> torch.Tensor:
        result = expression.launch(Operands(a, b, dict(zip(names, values)), typed), None)
        assert isinstance(result, torch.Tensor)
        return result

    compiled: list[Callable[..., object]] = []

    def launch(operands: Operands, out: torch.Tensor | None) -> torch.Tensor:
        values = (operands.a, operands.b, *(operands.epilogue[name] for name in names))
        if not compiled:
            # Once as it is, so that what the library is given besides, such as scales, is there and not computed anew.
            expression.launch(operands, None)
            # As a graph of operations: the compiler does not read the formulas that the epilogue is kept in.
            graph = make_fx(product)(*values)
            torch._dynamo.reset()
            compiled.append(torch.compile(graph, mode="max-autotune-no-cudagraphs", dynamic=False))
        result = compiled[0](*values)
        assert isinstance(result, torch.Tensor)
        return result

    return Peer(f"torch.compile({expression.name})", launch, fresh=True)


#: Peers by the word of `--peer`.
PEERS: Mapping[str, Callable[[Problem], Peer]] = dict(zip(WORDS, (cublas, inductor), strict=True))
