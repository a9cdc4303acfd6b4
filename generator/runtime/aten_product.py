"""Torch's own product as one more candidate of the choice (`backends: [triton, aten]`).

It is taken at sizes where it was measured to be faster on a device of that name, and at others where a rule says so
that was fitted to measurements of that device. A device without measurements runs the family's kernels.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from . import private
from .alignment import crosses
from .call import Call
from .launch import Function, Operands, Result, deterministic, recording
from .launchable import address, require_apart
from .precision import fp32_precision

#: Comparisons of features with limits, each with what follows below the limit, and from it on: the number of another
#: comparison, or the backend that is faster.
Rule: TypeAlias = Sequence[tuple[str, float, int | str, int | str]]
#: The rules by device and types; and by device and contract the measured sizes, and whether torch's was faster.
Rules: TypeAlias = Mapping[tuple[str, str], Rule]
Measured: TypeAlias = Mapping[tuple[str, str], Mapping[tuple[int, ...], bool]]
#: A call of torch with the operands of a call.
Run: TypeAlias = Callable[[Tensor, Tensor, Tensor | None, Operands], Result]
#: The extents of the tiles that are counted, and how many run at a time.
TILE, TOGETHER = 128, 132
#: The alignment in bytes beyond which no product gains.
ALIGNED = 16


class AtenOperator(NamedTuple):
    """The operator of torch that computes a contract.

    `detail` is the keyword of what it adds, or how it multiplies fp8. `rule` names the rule of the contract's types,
    and `measured` the contract whose measured sizes count. `precision` is how torch must be set to multiply fp32.
    """

    operator: str
    detail: str = ""
    rule: str = ""
    measured: str = ""
    precision: str = ""


def features(sizes: Sequence[int], alignment: int, *, a_column: bool, b_row: bool) -> dict[str, float]:
    """What rules compare: of a call's sizes, the alignment of all rows of A and B in bytes, and their layouts."""
    *batch, M, N, K = sizes
    products = batch[0] if batch else 1
    tiles = products * -(-M // TILE) * -(-N // TILE)
    return {
        "M": M,
        "N": N,
        "K": K,
        "work": products * M * N * K,
        "intensity": M * N * K / (M * K + K * N + M * N),
        "tiles": tiles,
        "filled": tiles / (-(-tiles // TOGETHER) * TOGETHER),
        "aligned": math.gcd(alignment, ALIGNED),
        "a_column": a_column,
        "b_row": b_row,
    }


def faster(rule: Rule, given: Mapping[str, float]) -> str:
    """The backend that a rule says is faster, for `features`."""
    at: int | str = 0
    while isinstance(at, int):
        name, limit, below, above = rule[at]
        at = below if given[name] < limit else above
    return at


class AtenProducts:
    """The products of torch for the contracts of a family.

    `measured` has, for a device and a contract, the sizes at which both were measured, and whether torch's product was
    faster. `rules` has the rule for a device and types.
    """

    #: Seconds by which a call of a layer, or of an operator in compiled code, takes the host longer than torch's own,
    #: at most: 10 to 40 µs were measured beside an H100.
    HOST = 40e-6

    def __init__(self, contracts: Mapping[str, AtenOperator], measured: Measured, rules: Rules) -> None:
        self.contracts, self.measured, self.rules = contracts, measured, rules

    def chosen(self, function: Function, given: Operands) -> Run | None:
        """The call of torch, if it is what a call is to run; raises what the call does for wrong operands."""
        known, table = self.contracts.get(function.name), function.table
        # Where torch has to be deterministic, it refuses cuBLAS unless the environment has a variable for it.
        if known is None or deterministic() or not self.prefers(function, given):
            return None
        run = _RUNS[known.operator](known, table, given)
        if run is None or (known.precision and fp32_precision() != known.precision):
            return None
        state = table.checked(given)
        require_apart({"out": given["out"]}, {x.name: given.get(x.name) for x in table.operands})
        (result,) = table.results
        if result.unit not in (None, len(result.words) - 1):
            run = _placed(run, result.new(state))
        if known.precision:
            run = _while_set(run, known.precision, function)
        return run

    def prefers(self, function: Function, given: Operands) -> bool:
        """Whether torch's product is the faster one for operands of a call, of which fake ones suffice."""
        known = self.contracts.get(function.name)
        if known is None:
            return False
        numbers = function.table.state(given).numbers
        sizes, a, b = tuple([numbers[x] for x in function.table.sizes]), given["a"], given["b"]
        # Sizes that only the run knows are no numbers.
        if not all(type(x) is int for x in (*sizes, *a.stride(), *b.stride())) or min(sizes) == 0:
            return False
        device, lines = name_of(a.device), [_line(a), _line(b)]
        measured = self.measured.get((device, known.measured), {}).get(sizes)
        rule = self.rules.get((device, known.rule))
        if None in lines or (measured is None and rule is None):
            return False
        # Winners are measured with rows of whole lines, and run with these alone.
        if measured is not None and not (crosses(a) or crosses(b)):
            return measured
        lies = {"a_column": a.stride(-1) != 1 and a.shape[-1] > 1, "b_row": b.stride(-1) == 1 and b.shape[-1] > 1}
        compared = features(sizes, math.gcd(*filter(None, lines)), **lies)
        return rule is not None and faster(rule, compared) == "aten"

    def short(self, function: Function, given: Operands) -> bool:
        """Whether a product takes a measured device less time than a call of ours takes the host more than torch's.

        Operands as of `prefers`, of any contract.
        """
        numbers, a = function.table.state(given).numbers, given["a"]
        sizes = [numbers[x] for x in function.table.sizes]
        measured = any(device == name_of(a.device) for device, _ in self.rules)
        return measured and all(type(x) is int for x in sizes) and least_seconds(sizes, a) < self.HOST

    def of_call(self, function: Any, a: Tensor, b: Tensor, operands: Operands, *, host: bool = False) -> bool:
        """Whether torch's products are the faster ones of a call: its own, and those of recorded gradients.

        With `host`, those count too that are `short`.
        """
        known, (result,) = self.contracts.get(function.name), function.table.results
        # How torch multiplies fp32 is asked at each call; it records no result that lies in another way.
        if known is None or known.precision or deterministic() or result.unit not in (None, len(result.words) - 1):
            return False
        products = [(function, a, b, operands)]
        try:
            if recording(a, b, *operands.values()):
                if function.gradient is None:
                    return False
                sum = a.new_empty((*a.shape[:-1], b.shape[-1]))
                for name, left, right in (("a", sum, b.mT), ("b", a.mT, sum)):
                    contract, turned = function.gradient[name]
                    pair = (right.mT, left.mT) if turned else (left, right)
                    needed = (a if name == "a" else b).requires_grad
                    products += [(function.function(contract), *pair, {})] if needed else []
            for each, left, right, more in products:
                given = {"a": left, "b": right, "out": None, **more}
                if not (self.prefers(each, given) or (host and self.short(each, given))):
                    return False
            return True
        except (TypeError, ValueError, RuntimeError, IndexError):
            # The call itself says what is wrong with its operands.
            return False


@functools.cache
def name_of(device: torch.device) -> str:
    """The name by which measurements know a device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


@functools.cache
def _rates(device: torch.device) -> tuple[float, float]:
    """The most bytes of memory traffic, and bytes of elements of A times columns of B, of a GPU in a second."""
    own = torch.cuda.get_device_properties(device)
    traffic = 2e3 * own.memory_clock_rate * own.memory_bus_width / 8
    # A tensor core of Hopper adds 4096 products of 16 bits in a cycle.
    return traffic, 1e3 * own.clock_rate * own.multi_processor_count * 8192


def least_seconds(sizes: Sequence[int], a: Tensor) -> float:
    """The seconds below which no product of these sizes can take the GPU of `a`; without a limit elsewhere."""
    if not a.is_cuda:
        return math.inf
    *batch, M, N, K = sizes
    products, width = math.prod(batch), a.element_size()
    traffic, rate = _rates(a.device)
    return max(products * width * (M * K + K * N + M * N) / traffic, products * M * N * K * width / rate)


def _line(x: Tensor) -> int | None:
    """The bytes from one row of a matrix to the next, or from one column; None if neither is contiguous."""
    (rows, columns), (down, along) = x.shape[-2:], x.stride()[-2:]
    if along == 1 and columns > 1:
        return (down if rows > 1 else columns) * x.element_size()
    if down == 1 or rows == 1:
        return (along if columns > 1 else rows) * x.element_size()
    return down * x.element_size() if columns == 1 else None


def _aligned(*tensors: Tensor | None) -> bool:
    """Whether matrices begin, and their rows lie, at multiples of 16 bytes, which elements of 8 bits need."""
    return not any(address(x) % ALIGNED or (_line(x) or 1) % ALIGNED for x in tensors if x is not None)


# What runs an operator, or None if it does not take the operands of a call.


def _alone(operator: Callable[..., Tensor]) -> Callable[[AtenOperator, Call, Operands], Run | None]:
    def run(a: Tensor, b: Tensor, out: Tensor | None, operands: Operands) -> Tensor:
        return operator(a, b) if out is None else operator(a, b, out=out)

    return lambda known, table, given: run


def _added(operator: Callable[..., Tensor]) -> Callable[[AtenOperator, Call, Operands], Run | None]:
    def made(known: AtenOperator, table: Call, given: Operands) -> Run | None:
        name = known.detail

        def run(a: Tensor, b: Tensor, out: Tensor | None, operands: Operands) -> Tensor:
            return operator(operands[name], a, b) if out is None else operator(operands[name], a, b, out=out)

        # Torch converts nothing.
        return run if given[name].dtype == given["a"].dtype else None

    return made


def _int_mm(known: AtenOperator, table: Call, given: Operands) -> Run | None:
    a, b, out = given["a"], given["b"], given["out"]
    whole = a.shape[0] > 16 and a.shape[1] % 8 == b.shape[1] % 8 == 0
    ready = whole and _aligned(a, b) and (out is None or out.is_contiguous())
    return _alone(private.int_mm)(known, table, given) if ready and private.int_mm else None


def _scaled_mm(known: AtenOperator, table: Call, given: Operands) -> Run | None:
    a, b, out = given["a"], given["b"], given["out"]
    blocks, fast, dtype = known.detail == "blocks", known.detail == "fast", table.results[0].dtype
    scaled = blocks or known.detail == "rows"
    # Torch neither pads the scales of blocks, which cuBLAS reads in fours along K and M, nor refuses others.
    whole = a.shape[1] % (512 if blocks else 16) == b.shape[1] % 16 == 0 and not (blocks and a.shape[0] % 4)
    ready = whole and a.stride(1) == b.stride(0) == 1 and _aligned(a, b, out) and (out is None or out.is_contiguous())
    # A scale that is made while a graph is captured would be written only where the graph is replayed.
    ready = ready and private.scaled_mm and not (a.is_cuda and torch.cuda.is_current_stream_capturing())
    if not ready or (scaled and not given["a_scale"].dtype == given["b_scale"].dtype == torch.float32):
        return None
    one, product = None if scaled else _one(a.device), private.scaled_mm

    def run(a: Tensor, b: Tensor, out: Tensor | None, operands: Operands) -> Tensor:
        # Torch takes scales of blocks whose columns are contiguous, and vectors.
        scales = [one, one] if one is not None else [operands[x].mT.contiguous().mT for x in ("a_scale", "b_scale")]
        return product(a, b, *scales, out_dtype=dtype, use_fast_accum=fast, out=out)  # type: ignore[no-any-return]

    return run


@functools.cache
def _one(device: torch.device) -> Tensor:
    """The scale of operands without one, which torch requires."""
    return torch.ones((), dtype=torch.float32, device=device)


#: By the name of an operator.
_RUNS: Mapping[str, Callable[[AtenOperator, Call, Operands], Run | None]] = {
    "mm": _alone(torch.mm),
    "bmm": _alone(torch.bmm),
    "addmm": _added(torch.addmm),
    "baddbmm": _added(torch.baddbmm),
    "_int_mm": _int_mm,
    "_scaled_mm": _scaled_mm,
}


def _placed(run: Run, like: Tensor) -> Run:
    """The call with a new result that lies as `like`."""
    shape, strides, dtype, device = like.shape, like.stride(), like.dtype, like.device

    def placed(a: Tensor, b: Tensor, out: Tensor | None, operands: Operands) -> Result:
        result = torch.empty_strided(shape, strides, dtype=dtype, device=device)
        return run(a, b, result if out is None else out, operands)

    return placed


def _while_set(run: Run, precision: str, function: Function) -> Run:
    """The call while torch multiplies fp32 in this way; else that of the function without the candidate."""
    own: Any = object.__new__(type(function))
    own.__dict__.update(function.__dict__, cached={}, choice=copy.copy(function.choice))
    own.choice.aten = None

    def checked(a: Tensor, b: Tensor, out: Tensor | None, operands: Operands) -> Result:
        if fp32_precision() == precision:
            return run(a, b, out, operands)
        return own.direct(a, b, out, None, operands)  # type: ignore[no-any-return]

    return checked
