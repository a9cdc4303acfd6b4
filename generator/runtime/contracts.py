"""The types of kernels, calls and functions, and what every function does with its results and its errors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Protocol, TypeAlias, TypedDict

import torch

from .copies import AnyCopier

#: An entry of a kernel's CONFIGS: the sizes of a tile, the numbers of warps and stages, and others, by name.
Config: TypeAlias = dict[str, int]
#: M, N and K; of a batch or of groups with their number in front.
Sizes: TypeAlias = tuple[int, ...]
#: The operands of a call besides `a`, `b` and `out`, by keyword: tensors and numbers, and auxiliary outputs or None.
Operands: TypeAlias = dict[str, Any]
#: What a call returns: C, or C and the auxiliary outputs.
Result: TypeAlias = torch.Tensor | tuple[torch.Tensor, ...]
#: Runs a call of a known signature: it takes `a`, `b`, `out` and the other operands.
CachedCall: TypeAlias = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None, Operands], Result]
#: What is known of an operand: its dtype, those that it may have, or None for any floating one; its shape, by the names
#: of extents; the dimension of stride 1, or None for any; and whether it may be left out.
Description: TypeAlias = tuple[torch.dtype | tuple[torch.dtype, ...] | None, tuple[str, ...], int | None, bool]
#: The operands and outputs of a contract by name.
Table: TypeAlias = dict[str, Description]
#: The extents of shapes that are no size, each as a function of M, N and K, by the names that shapes have for them.
Extents: TypeAlias = dict[str, Callable[[int, int, int], int]]


class PlannedLaunch(Protocol):
    """One launch of a plan: `kernel[grid](**arguments)`.

    `slots` maps parameters of the kernel to the operands, results and temporary tensors that they are of. `grid` is the
    number of programs along each axis, or a function that returns it for the values of the constants. `compiled` is set
    once the kernel is compiled, if the plan has two launches.
    """

    kernel: Any
    grid: Any
    arguments: dict[str, Any]
    slots: dict[str, str]
    compiled: Any


class Plan(PlannedLaunch, Protocol):
    """What a kernel launches for the operands of a call, as `plan` of its module returns it.

    Every plan has `results`, the tensors to return by name, of which `out` is the first, and `grid`, which is None if
    nothing runs; such a plan has nothing else.
    """

    results: dict[str, torch.Tensor]

    # Only some plans have the following: a second launch; temporary tensors; the tensors `work` and `counters`; the
    # results that must be zero before the launch; and the results that are reduced after it, each with its reduction
    # and the name of the tensor of its parts.
    then: PlannedLaunch
    parts: dict[str, torch.Tensor]
    workspace: dict[str, torch.Tensor]
    cleared: Sequence[str]
    reduced: Sequence[tuple[str, Callable[..., torch.Tensor], str]]


class Kernel(Protocol):
    """The module of a kernel. `gemm_kernel` is the function of `triton.jit`, or what wraps it.

    Some have `refusal(a, b, ...)`, why the kernel does not accept operands or None; `_fits(config, M, N, K)`, whether a
    configuration is legal for sizes; and `_offered(device)`, the configurations for a device.
    """

    __name__: str
    CONFIGS: list[Config]
    gemm_kernel: Any

    def gemm(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        *,
        out: torch.Tensor | None = None,
        config: Config | int | None = None,
        **operands: Any,
    ) -> Result:
        """Launch the kernel. Raises TypeError and ValueError for operands that it does not take."""

    def plan(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        *,
        out: torch.Tensor | None = None,
        config: Config | int | None = None,
        **operands: Any,
    ) -> Plan:
        """What `gemm` launches; it raises what `gemm` does."""


#: A kernel, and the configuration with which it is to be launched.
Choice: TypeAlias = tuple[Kernel, Config]

#: `a`, `b`, `out` and the other operands of a call.
CallOperands: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, Operands]
#: A call by the operators of a contract: it takes `a`, `b`, `out`, `config` and the other operands.
ConfiguredCall: TypeAlias = Callable[
    [torch.Tensor, torch.Tensor, torch.Tensor | None, Config | int | None, Operands], Result
]


class Function(Protocol):
    """The function of a contract, as `contract` returns it.

    `check` raises TypeError unless the keywords are those of the contract. `step` returns what a call does next.
    `register` registers the operators. `described` returns the operands and their extents. `which` and `prepare` are
    those of the module `prepare`, for this function.
    """

    __name__: str
    __qualname__: str
    check: Callable[[Operands], None]
    step: Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None, Operands], Step]
    register: Callable[[], bool]
    described: Callable[[], tuple[Table, Extents]]
    which: Callable[..., tuple[str, Config]]
    prepare: Callable[..., int]

    def __call__(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        *offsets: torch.Tensor,
        out: torch.Tensor | None = None,
        config: Config | int | None = None,
        **operands: Any,
    ) -> Result:
        """Compute the contract: a new result, or `out` filled; with auxiliary outputs, a tuple that begins with it.

        Raises TypeError for wrong keywords, for what is not a tensor, and for a wrong dtype; ValueError for wrong
        shapes, strides and devices, and if no kernel accepts the operands.
        """


#: What a call does next: it continues as a call of a function, with what a copier returns for `a` and `b`; or it
#: launches a kernel with a configuration, or with None for one that the kernel chooses itself.
Step: TypeAlias = tuple[AnyCopier, Function, None] | tuple[None, Kernel, Config | None]


class Gradient(TypedDict, total=False):
    """What computes the gradients of a contract; the module `autograd` says what the entries mean."""

    a: tuple[str, bool]
    b: tuple[str, bool]
    chain: str
    sum: str
    saving: str
    called: str
    constant: Collection[str]


class Measured(Protocol):
    """The choice by measurements: the module `_tuned` of a family."""

    def choose(
        self,
        name: str,
        kernels: Iterable[Kernel],
        sizes: Sizes,
        width: int,
        device: torch.device,
        crossing: tuple[bool, bool],
        skewed: tuple[Sizes, ...],
        /,
    ) -> Choice | None:
        """As `measured_choice.Measurements.choose`."""


class Modelled(Protocol):
    """The choice by an analytic cost model: the module `_analytic` of a family."""

    def choose(
        self, name: str, kernels: tuple[Kernel, ...], sizes: Sizes, device: torch.device, skewed: tuple[Sizes, ...], /
    ) -> Choice | None:
        """As `analytic_choice.Choose`."""


def written(*results: torch.Tensor | None) -> None:
    """Tell autograd that tensors of the caller have been written, so that no gradient is computed from old values."""
    for x in results:
        if x is not None and not x.is_inference():
            torch.autograd.graph.increment_version(x)


def name_contract(error: Exception, name: str) -> None:
    """Make the text of a TypeError or ValueError begin with the name of the contract that was called.

    The error gets an attribute `unnamed`, its text without a name. Errors of their subclasses stay as they are.
    """
    if type(error) in (TypeError, ValueError):
        # The error may come from another contract that this one called, and name it.
        marked: Any = error
        marked.unnamed = getattr(error, "unnamed", str(error))
        error.args = (f"{name}: {marked.unnamed}",)
