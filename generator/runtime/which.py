"""What a call of this family's functions would run.

The functions are asked, with tensors that have shape, strides, device and alignment but no memory.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from . import memoryless
from .call import Plan, Planned
from .contract_errors import name_contract
from .contracts import Config, Function, KernelModule, Operands
from .launchable import address


def which(
    gemm: Function, a: Tensor, b: Tensor, offsets: Tensor | None = None, *, out: Tensor | None = None, **operands: Any
) -> tuple[str, Config]:
    """The name of the kernel that `gemm(a, b, out=out, **operands)` would run, and its configuration as a dictionary.

    Nothing is compiled or launched. The configuration is empty if it is measured at the call (`select: autotune`), or
    if the result is empty, so that nothing runs. Raises TypeError and ValueError as the call does.
    """
    operands = operands if offsets is None else {"offsets": offsets, **operands}
    gemm.check(operands)
    for name, x in (("a", a), ("b", b)):
        if not isinstance(x, Tensor):
            raise TypeError(f"{gemm.__name__}: {name} must be a torch.Tensor, got {type(x).__name__}")
    given: Operands = {"a": a, "b": b, "out": out, **operands}
    with memoryless.mode():
        # The call reads a scalar that is on another device.
        like = {name: _like(x) if getattr(x, "device", None) == a.device else x for name, x in given.items()}
        try:
            _, kernel, row, like = followed(gemm, like)
            plan = kernel.CALL.plan(row, **like)
        except (TypeError, ValueError) as error:
            name_contract(error, gemm.__name__)
            raise
    return name_of(kernel), dict(configuration(kernel, plan) or {})


def followed(gemm: Function, given: Operands) -> tuple[list[Any], KernelModule, Config | None, Operands]:
    """What a call of `gemm` comes to: launches of copies, the kernel, its configuration and its operands."""
    copying: list[Any] = []
    while True:
        a, b, out = given["a"], given["b"], given["out"]
        operands = {name: x for name, x in given.items() if name not in ("a", "b", "out")}
        following = gemm.step(a, b, out, operands)
        if following[0] is None:
            _, kernel, row = following
            return copying, kernel, row, given
        copier, target, _ = following
        launched = copier.launch(a, b)
        if launched is not None:
            copying.append(launched)
        a, b = copier.like(a, b)
        given, gemm = {**given, "a": a, "b": b}, target


def configuration(kernel: KernelModule, plan: Plan) -> Config | None:
    """The configuration of a plan; None if its tuner chooses one, or if nothing runs."""
    return next(filter(None, (row_of(kernel, each) for each in plan.launches)), None)


def row_of(kernel: KernelModule, launch: Planned) -> Config | None:
    """The configuration that a launch passes to its kernel, or None."""
    return next((row for row in kernel.CONFIGS if row.items() <= launch.arguments.items()), None)


def name_of(kernel: KernelModule) -> str:
    """The name of a kernel's module, without those of its packages."""
    return kernel.__name__.rpartition(".")[2]


def _like(x: Any) -> Any:
    """A tensor like `x`, without its memory."""
    if not isinstance(x, Tensor):
        return x
    return memoryless.tensor(x.dtype, x.device, x.shape, x.stride(), address(x) % 16 // x.element_size())
