"""Peers: calls of torch that compute the same problem, by cuBLAS, cuBLASLt or torch.compile."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from generator.bench.eager import apply as eager_epilogue
from generator.bench.random_operands import Operands
from generator.bench.suite import PEERS as WORDS
from generator.cost.torch_operators import SCALED
from generator.epilogue.chain import Epilogue
from generator.language.dtypes import QUANTISED
from generator.language.elements import ELEMENTS
from generator.language.model import Dtype
from generator.problem.element_types import saturated, torch_type
from generator.problem.product import Problem

#: Computes the result of an operand set and returns it: in a new tensor, or in `out` if that is given and the side
#: supports it. With auxiliary outputs it returns a tuple, the result first.
Launch = Callable[[Operands, torch.Tensor | None], Any]
#: Finds the scales of A and of B among the operands.
_Scales = Callable[[Operands], tuple[torch.Tensor, torch.Tensor]]


class NoPeer(Exception):
    """torch has no call that computes this problem."""


@dataclass(frozen=True)
class Peer:
    """A peer for one problem."""

    #: The call that it makes: `torch.addmm + relu`.
    name: str
    launch: Launch
    #: Whether it returns new tensors even if an output is given.
    fresh: bool = False
    #: How many operations of the epilogue it computes in addition to the product.
    steps: int = 0


def set_precision(problem: Problem) -> None:
    """Set how torch multiplies fp32: in tf32 if the problem's precision is tf32, else in full precision."""
    fast = problem.dtype.precision == "tf32"
    matmul = torch.backends.cuda.matmul
    # torch 2.9 renamed the setting; mixing the two names is an error there.
    if hasattr(matmul, "fp32_precision"):
        matmul.fp32_precision = "tf32" if fast else "ieee"
    else:
        matmul.allow_tf32 = fast


def cublas(problem: Problem) -> Peer:
    """torch's product, then a call of torch for each operation; raise `NoPeer` if torch has no such product.

    A leading `bias` is fused by torch.addmm.
    """
    return _followed(problem, _addmm(problem) or _product(problem))


def eager(problem: Problem) -> Peer:
    """torch's product alone, then a call of torch for each operation; raise `NoPeer` if torch has no such product."""
    return _followed(problem, _product(problem))


def fused(problem: Problem) -> Peer:
    """The call that fuses the most operations with the product, then a call of torch for each other operation.

    Raises `NoPeer` if torch has no call that fuses the first operation.
    """
    call = _addmm(problem, activated=True) or _addmm(problem) or _scaled(problem)
    if call is None:
        dtype, epilogue = problem.dtype.word, problem.epilogue.word
        raise NoPeer(f"torch has no call that fuses a product of {dtype} with the first operation of {epilogue}")
    return _followed(problem, call)


def _followed(problem: Problem, call: Peer) -> Peer:
    """`call`, then the rest of the epilogue, one call of torch for each operation, in the type of its operands."""
    if problem.epilogue.quantisation is not None:
        raise NoPeer("torch has no call that quantises blocks of a result")
    rest = Epilogue(problem.epilogue.steps[call.steps :])
    own = next((x.name for x in (*problem.call.operands, *problem.call.outputs) if x.extents[:1] == ("G",)), None)
    if own is not None:
        raise NoPeer(f"torch has no call for {own!r}, of which each group has its own")
    out = problem.dtype.out
    if not rest.steps and out not in QUANTISED:
        return call
    name = " + ".join([call.name, *(step.word for step in rest.steps)])
    name += f", then {out}" if out in QUANTISED else ""
    converted = torch_type(problem.operand_type)

    def launch(operands: Operands, out: torch.Tensor | None) -> Any:
        x = call.launch(operands, None)
        outputs: list[torch.Tensor] = []
        if rest.steps:
            x = eager_epilogue(rest, x.to(converted), operands.epilogue, outputs)
        # A saved matrix has the layout of the result.
        beside = [
            value if output.reduced else _deliver(value, operands, None)
            for output, value in zip(rest.outputs, outputs, strict=True)
        ]
        result = _deliver(x, operands, out)
        return (result, *beside) if beside else result

    return Peer(name, launch)


def _deliver(result: torch.Tensor, operands: Operands, out: torch.Tensor | None) -> torch.Tensor:
    """A result in the output's type; copied to `out` if that is given."""
    result = saturated(result, operands.out.dtype)
    return result.to(operands.out.dtype) if out is None else out.copy_(result)


#: The explicit bits of a mantissa that one operand of torch._scaled_mm has at least.
_LEAST_MANTISSA = 3
#: The operations after a bias that torch._addmm_activation computes, each with its `use_gelu`.
_ACTIVATIONS = {"relu": False, "gelu_tanh": True}


def _addmm(problem: Problem, *, activated: bool = False) -> Peer | None:
    """torch.addmm, which computes product and bias; `activated`, the activation behind it too.

    None if the problem does not begin so, with a bias of the operands' type, of a single product.
    """
    words = [step.word for step in problem.epilogue.steps]
    if words[:1] != ["bias"] or problem.shape.products != "none":
        return None
    if problem.operand_type != problem.dtype.a or not problem.dtype.plain:
        return None
    function: Callable[..., torch.Tensor] = torch.addmm
    call = "torch.addmm"
    if activated:
        if len(words) < 2 or words[1] not in _ACTIVATIONS:
            return None
        function = functools.partial(torch._addmm_activation, use_gelu=_ACTIVATIONS[words[1]])
        call = f"torch._addmm_activation({words[1]})"

    def launch(operands: Operands, out: torch.Tensor | None) -> torch.Tensor:
        return function(operands.epilogue["bias"], operands.a, operands.b, out=out)

    return Peer(call, launch, steps=1 + activated)


def _scaled(problem: Problem) -> Peer | None:
    """torch._scaled_mm with a scale for each row and each column; None if the problem does not begin so."""
    words = {step.word for step in problem.epilogue.steps[:2]}
    # With scales for each row, cuBLASLt writes bf16 only.
    if (
        words != {"scale_m", "scale_n"}
        or not problem.dtype.plain
        or not (problem.dtype.stored_a.element.floating and problem.dtype.stored_a.bits == 8)
        or _unscaled(problem.dtype) != "bf16"
        or problem.shape.groups
    ):
        return None
    return Peer("torch._scaled_mm by rows and columns", _scaled_mm(problem, by_rows=True), steps=2)


def _unscaled(dtype: Dtype) -> str:
    """The result type of torch's product before an epilogue or a quantisation."""
    if not dtype.stored_a.element.floating:
        return ELEMENTS[dtype.a].result
    if dtype.stored_a.bits == 8:
        return "bf16" if dtype.out in QUANTISED else dtype.out
    return dtype.a


def _product(problem: Problem) -> Peer:
    """torch's product alone; raise `NoPeer` if torch has none for these types, layouts and sizes."""
    dtype, shape = problem.dtype, problem.shape
    if shape.groups:
        return _product_of_groups(problem)
    if not dtype.plain:
        return _product_of_stored(problem)
    if problem.epilogue.steps or dtype.out in QUANTISED:
        dtype = replace(dtype, out=_unscaled(dtype))
        problem = replace(problem, dtype=dtype)
    if shape.batch and dtype.stored_a.bits == 8:
        raise NoPeer(f"torch multiplies no batches of {dtype.a}")
    if shape.batch and dtype.out == dtype.a:
        return Peer("torch.bmm", lambda operands, out: torch.bmm(operands.a, operands.b, out=out))
    if not dtype.stored_a.element.floating:
        product = _int_mm(shape.m, problem.columns, shape.k)
        if dtype.out == ELEMENTS[dtype.a].result:
            return Peer("torch._int_mm", product)
        return _converted("torch._int_mm", product, dtype.out)
    if dtype.stored_a.bits == 8:
        return Peer("torch._scaled_mm", _scaled_mm(problem))

    def matmul(operands: Operands, out: torch.Tensor | None) -> torch.Tensor:
        return torch.matmul(operands.a, operands.b, out=out)

    if dtype.out == dtype.a:
        return Peer("torch.matmul", matmul)
    return _converted("torch.matmul", matmul, dtype.out)


def _converted(name: str, product: Launch, out_type: str) -> Peer:
    """A product, then the conversion of its result."""
    return Peer(f"{name}, then {out_type}", lambda operands, out: _deliver(product(operands, None), operands, out))


def _int_mm(m: int, n: int, k: int) -> Launch:
    if m <= 16 or n % 8 or k % 8:
        raise NoPeer(f"torch._int_mm needs M above 16, and N and K that are multiples of 8, not {m}, {n}, {k}")

    def launch(operands: Operands, out: torch.Tensor | None) -> torch.Tensor:
        given = {} if out is None else {"out": out}
        return torch._int_mm(operands.a, operands.b, **given)

    return launch


def _scaled_mm(problem: Problem, *, by_rows: bool = False) -> Launch:
    """torch's product of fp8, with the operands `scale_m` and `scale_n`, or with the scales of 1 that it requires."""
    if max(storage.element.mantissa for storage in problem.dtype.stored) < _LEAST_MANTISSA:
        raise NoPeer(f"torch._scaled_mm does not multiply {problem.dtype.a} by {problem.dtype.b}")
    if (problem.layout.a, problem.layout.b, problem.layout.c) != ("row", "column", "row"):
        raise NoPeer(f"torch._scaled_mm needs the layout rcr, not {problem.layout.word}")
    if problem.columns % 16 or problem.shape.k % 16:
        raise NoPeer(
            f"torch._scaled_mm needs N and K that are multiples of 16, not {problem.columns}, {problem.shape.k}"
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

    return _scaled_by(scales, out_type, fast=fast)


def _product_of_stored(problem: Problem) -> Peer:
    """torch's product of fp8 under the same scales, if it has it, else of the numbers in 16 bits."""
    dtype, layout = problem.dtype, problem.layout
    blocks = SCALED.get((dtype.a_block, dtype.b_block))
    # cuBLAS reads columns of scales in fours; torch 2.11 neither pads nor refuses others, and its results are wrong.
    whole = problem.shape.k % (512 if blocks == "blocks" else 16) == 0
    aligned = problem.columns % 16 == 0 and whole and not problem.shape.batch
    fp8 = all(storage.element.floating and storage.bits == 8 for storage in dtype.stored)
    if fp8 and blocks is not None and aligned and layout.word == "rcr" and dtype.out == "bf16":
        name = f"torch._scaled_mm by {'blocks' if blocks == 'blocks' else 'rows and columns'}"
        return Peer(name, _scaled_by(_scales(), torch.bfloat16))

    def matmul(operands: Operands, out: torch.Tensor | None) -> torch.Tensor:
        assert operands.dense is not None
        if dtype.out == dtype.dense:
            return torch.matmul(*operands.dense, out=out)
        return torch.matmul(*operands.dense).to(torch_type(dtype.out))

    return Peer(f"torch.matmul in {dtype.dense}", matmul)


def _product_of_groups(problem: Problem) -> Peer:
    """torch's product of groups, which makes a new tensor even if an output is given.

    fp8 under scales of rows and columns is multiplied under these; other stored operands, and those of types that torch
    has no such product of, in 16 bits.
    """
    dtype, pitches = problem.dtype, problem.pitches[:2]
    if any(pitch * max(16, dtype.stored_a.bits) % 128 for pitch in pitches):
        raise NoPeer(f"torch multiplies groups of rows that are multiples of 16 bytes, not of {pitches} elements")
    if dtype.plain and dtype.stored_a.bits > 8:
        return Peer("F.grouped_mm", lambda x, out: _grouped_mm(x.a, x.b, x, dtype.out), fresh=True)
    blocks = SCALED.get((dtype.a_block, dtype.b_block))
    aligned = problem.columns % 16 == 0 and problem.shape.k % 16 == 0 and problem.layout.word == "rcr"
    if blocks == "rows" and dtype.out == "bf16" and aligned:

        def scaled(operands: Operands, out: torch.Tensor | None) -> torch.Tensor:
            rows, columns = operands.stored["a_scale"][:, 0], operands.stored["b_scale"][:, 0, :]
            return torch._scaled_grouped_mm(
                operands.a, operands.b, rows, columns, offs=operands.offsets, out_dtype=torch.bfloat16
            )

        return Peer("torch._scaled_grouped_mm", scaled, fresh=True)
    if dtype.plain:
        raise NoPeer(f"torch multiplies no groups of {dtype.a} without scales")

    def converted(operands: Operands, out: torch.Tensor | None) -> torch.Tensor:
        assert operands.dense is not None
        return _grouped_mm(*operands.dense, operands, dtype.out)

    return Peer(f"F.grouped_mm in {dtype.dense}", converted, fresh=True)


def _grouped_mm(a: torch.Tensor, b: torch.Tensor, operands: Operands, word: str) -> torch.Tensor:
    result = torch.nn.functional.grouped_mm(a, b, offs=operands.offsets)
    return result.to(torch_type(word))


def _scales() -> _Scales:
    #: By their address, scales with the blocks along K next to each other, as torch takes them; made before any timing.
    along_k: dict[int, torch.Tensor] = {}

    def scales(operands: Operands) -> tuple[torch.Tensor, torch.Tensor]:
        scale = operands.stored["b_scale"]
        if scale.data_ptr() not in along_k:
            along_k[scale.data_ptr()] = scale.mT.contiguous().mT
        return operands.stored["a_scale"], along_k[scale.data_ptr()]

    return scales


def _scaled_by(scales: _Scales, out_type: torch.dtype, *, fast: bool = False) -> Launch:
    """torch's product of fp8 with the scales of A and of B that `scales` finds among the operands."""

    def launch(operands: Operands, out: torch.Tensor | None) -> torch.Tensor:
        one, other = scales(operands)
        result = torch._scaled_mm(
            operands.a, operands.b, scale_a=one, scale_b=other, out_dtype=out_type, use_fast_accum=fast, out=out
        )
        assert isinstance(result, torch.Tensor)
        return result

    return launch


def inductor(problem: Problem) -> Peer:
    """The same expression compiled by torch.compile, with products tuned for these sizes; it returns new tensors.

    It is compiled at the first call. Earlier compilations are discarded, because torch stops compiling after a few
    sizes.
    """
    if not problem.dtype.plain:
        raise NoPeer(f"torch.compile has no product of {problem.dtype.word}")
    expression = _followed(problem, _scaled(problem) or _addmm(problem) or _product(problem))
    names = [operand.name for operand in problem.epilogue.operands]
    divided = ["offsets"] if problem.shape.groups else []
    # By default torch.compile multiplies groups by torch's own product, beside which the rest is compiled.
    mode = None if divided else "max-autotune-no-cudagraphs"
    typed = torch.empty(0, dtype=torch_type(problem.dtype.out))

    def product(a: torch.Tensor, b: torch.Tensor, *values: torch.Tensor | float) -> Any:
        # Auxiliary outputs are returned, because the compiler removes what a graph does not return.
        given: dict[str, Any] = dict(zip([*divided, *names], values))
        offsets = given.pop("offsets", None)
        return expression.launch(Operands(a, b, given, typed, offsets=offsets), None)

    compiled: list[Callable[..., Any]] = []

    def launch(operands: Operands, out: torch.Tensor | None) -> Any:
        values = (operands.a, operands.b, *(operands.keywords[name] for name in (*divided, *names)))
        if not compiled:
            # One eager call first, so that tensors such as scales exist and are not part of the graph.
            expression.launch(operands, None)
            # A graph of torch operations, because the compiler cannot trace the evaluation of formulas.
            graph = make_fx(product)(*values)
            torch._dynamo.reset()
            compiled.append(torch.compile(graph, mode=mode, dynamic=False))
        return compiled[0](*values)

    return Peer(f"torch.compile({expression.name})", launch, fresh=True)


#: Peers by the word of `--peer`.
PEERS: Mapping[str, Callable[[Problem], Peer]] = dict(zip(WORDS, (cublas, eager, fused, inductor), strict=True))
