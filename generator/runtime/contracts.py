"""The types of kernels and functions, and what every function does with its results and its errors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from torch import Tensor

from .call import Call, Row

#: An entry of a kernel's CONFIGS.
Config: TypeAlias = Row
#: M, N and K; of a batch or of groups with their number in front.
Sizes: TypeAlias = tuple[int, ...]
#: The operands of a call besides `a`, `b` and `out`, by keyword: tensors and numbers, and auxiliary outputs or None.
Operands: TypeAlias = dict[str, Any]
#: What a call returns: C, or C and the auxiliary outputs.
Result: TypeAlias = Tensor | tuple[Tensor, ...]
#: `a`, `b`, `out` and the other operands of a call.
CallOperands: TypeAlias = tuple[Tensor, Tensor, Tensor | None, Operands]
#: Runs a call of a known signature: it takes `a`, `b`, `out` and the other operands.
CachedCall: TypeAlias = Callable[[Tensor, Tensor, Tensor | None, Operands], Result]
#: A call by the operators of a contract: it takes `a`, `b`, `out`, `config` and the other operands.
ConfiguredCall: TypeAlias = Callable[[Tensor, Tensor, Tensor | None, Config | int | None, Operands], Result]

#: A call for which a gradient is recorded: it takes `a`, `b`, `out`, whose rows `scatter` names, or None, `config`, the
#: other operands, and whether `a` and `b` are the input (..., K) and the weight (N, K) of a layer, whose result is
#: (..., N).
RecordedCall: TypeAlias = Callable[[Tensor, Tensor, Tensor | None, Config | int | None, Operands, bool], Result]


def without_sum(found: Any) -> Result:
    """What a contract returns, of the results of the one that saves the sum, its second result, in its place."""
    result: Result = (found[0], *found[2:]) if len(found) > 2 else found[0]
    return result


class KernelModule(Protocol):
    """The module of a kernel."""

    __name__: str
    CONFIGS: list[Config]
    CALL: Call
    #: Launches the kernel; raises TypeError and ValueError for operands that it does not take.
    gemm: Callable[..., Result]


#: A kernel, and the configuration with which it is to be launched.
Choice: TypeAlias = tuple[KernelModule, Config]


class AnyCopier(Protocol):
    """Copies `a` and `b`, or views them in another way; `like` returns what a call does, not filled, `launch` how."""

    __call__: Callable[..., Any]
    like: Callable[..., Any]
    launch: Callable[..., Any]


#: What a call does next: it continues as a call of a function, with what a copier returns for `a` and `b`; or it
#: launches a kernel with a configuration, or with None for one that the kernel chooses itself.
Step: TypeAlias = "tuple[AnyCopier, Function, None] | tuple[None, KernelModule, Config | None]"


class Function(Protocol):
    """The function of a contract: returns a new result, or `out` filled; with auxiliary outputs, a tuple.

    `check` raises TypeError unless the keywords are those of the contract. `step` returns what a call does next.
    `register` registers the operators, and `records` says whether calls record gradients. `recorded` is a call for
    which a gradient is recorded, and `direct` one that torch need not see; `layer` is such a call of a layer, or
    None where it is another. `repeated` returns what a call with `a` and `b` alone has cached, or None. `table` is
    the call of its first kernel. `which` and `prepare` are those of the modules of these names, for this function.
    """

    __name__: str
    __qualname__: str
    check: Callable[[Operands], None]
    step: Callable[[Tensor, Tensor, Tensor | None, Operands], Step]
    register: Callable[[], bool]
    records: bool
    direct: ConfiguredCall
    repeated: Callable[[Tensor, Tensor], CachedCall | None]
    recorded: Callable[..., Result]
    layer: Callable[[Tensor, Tensor, Operands], Result | None]
    table: Call
    which: Callable[..., tuple[str, Config]]
    prepare: Callable[..., int]
    __call__: Callable[..., Any]


class _Within(threading.local):
    """Whether this thread is within an operator of `operators`, or a call of one with operands of the class DTensor."""

    operator: bool = False
    sharded: bool = False


within = _Within()

# Operators and recorded calls are made once, by one thread.
registering = threading.RLock()
