"""Run one case of one launcher and say what is wrong with what it did."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from generator.model import Kernel, Variant
from generator.verify.arithmetic import Bounded
from generator.verify.cases import Case, leading_extents
from generator.verify.compare import compare
from generator.verify.elements import SATURATED, quantise, torch_type
from generator.verify.operands import INTEGER_POISON, NoMemory, poison, unwritten
from generator.verify.order import wrong_order
from generator.verify.reference import reference
from generator.verify.setup import Setup, prepare
from generator.vocabulary import SCHEDULE

Launcher = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Outcome:
    """What became of a case: `fault` or `not_run` says why it did not pass; errors as in `jobs.Result`."""

    fault: str | None = None
    not_run: str | None = None
    worst_error: float = 0.0
    vendor_error: float | None = None


class Fault(Exception):
    """What is wrong, as a sentence."""


class _Fresh(TorchFunctionMode):
    """Poisons every tensor that a launcher allocates without filling it, and hands each to `register`."""

    UNFILLED = (
        torch.empty,
        torch.empty_strided,
        torch.empty_like,
        torch.Tensor.new_empty,
        torch.Tensor.new_empty_strided,
    )
    FILLED = (torch.zeros, torch.zeros_like, torch.Tensor.new_zeros)

    def __init__(self, register: Callable[[torch.Tensor], None]) -> None:
        super().__init__()
        self.register = register

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in self.UNFILLED + self.FILLED and result.numel() and result.device.type != "meta":
            if func in self.UNFILLED:
                poison(result)
            self.register(result)
        return result


class Machine:
    """Where kernels run: the interpreter, or a GPU."""

    hardware: bool
    device: torch.device

    @contextmanager
    def running(self, setup: Setup) -> Iterator[None]:
        """Everything that a launch needs around it."""
        yield

    def written(self, result: torch.Tensor, finite: torch.Tensor) -> int:
        """How many elements of `result` the last call did not write; `finite` are those that cannot be NaN."""
        return int((unwritten(result) & finite).sum())

    def corners(self, result: torch.Tensor) -> list[tuple[int, ...]]:
        """The least index along each dimension of each store to `result`, in the programs' order; none if not known."""
        return []

    def witness(self, a: torch.Tensor, b: torch.Tensor, variant: Variant) -> torch.Tensor | None:
        """The product by the vendor's library, float64, or None where it has none of that kind."""
        return None

    def lost(self) -> bool:
        """Whether the device answers no more in this process, as after an illegal access."""
        return False


class Interpreter(Machine):
    """Triton's interpreter on the CPU, every address checked."""

    hardware = False
    device = torch.device("cpu")

    def __init__(self) -> None:
        from generator.verify import guard

        guard.install()
        self.guard = guard
        self.outputs: list[tuple[int, Any]] = []

    @contextmanager
    def running(self, setup: Setup) -> Iterator[None]:
        regions = [self.guard.Region.of(operand.name, operand.view) for operand in setup.inputs]
        self.outputs = []
        if setup.out is not None:
            region = self.guard.Region.of("out", setup.out.view, writable=True)
            self.outputs.append((setup.out.view.data_ptr(), region))
            regions.append(region)

        def register(tensor: torch.Tensor) -> None:
            self.outputs.append((tensor.data_ptr(), self.guard.allow("a tensor of the launcher's", tensor)))

        with self.guard.watch(regions), _Fresh(register):
            yield

    def written(self, result: torch.Tensor, finite: torch.Tensor) -> int:
        for address, region in self.outputs:
            if address == result.data_ptr():
                return int((~region.written).sum())
        return super().written(result, finite)

    def corners(self, result: torch.Tensor) -> list[tuple[int, ...]]:
        # The launcher may have made the result as the transposed of what it allocated.
        dimensions = self.guard.Region.of("the result", result).dimensions
        for address, region in self.outputs:
            if address == result.data_ptr():
                found = [dict(zip(dimensions, corner, strict=True)) for corner in region.corners]
                return [tuple(least.get(number, 0) for number in range(result.dim())) for least in found]
        return []


class Gpu(Machine):
    """The current CUDA (or ROCm) device."""

    hardware = True

    def __init__(self) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device())

    @contextmanager
    def running(self, setup: Setup) -> Iterator[None]:
        with _Fresh(lambda tensor: None):
            yield
        torch.cuda.synchronize(self.device)

    def lost(self) -> bool:
        try:
            torch.cuda.synchronize(self.device)
        except RuntimeError:
            return True
        return False

    def witness(self, a: torch.Tensor, b: torch.Tensor, variant: Variant) -> torch.Tensor | None:
        if a.element_size() == 1 or variant.dtype.precision == "tf32x3":
            return None
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = variant.dtype.precision == "tf32"
        try:
            return torch.matmul(a, b).double()
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before


def run_case(launcher: Launcher, configs: tuple[Any, ...], kernel: Kernel, case: Case, machine: Machine) -> Outcome:
    """Call `launcher` as `case` says and check all that it did."""
    try:
        setup = prepare(kernel, case, machine.device)
        expected = reference(kernel.variant, setup.a.view, setup.b.view, setup.operands, hardware=machine.hardware)
        result = _call(launcher, configs, case, setup, machine)
        worst = _check(kernel.variant, setup, case, result, expected, machine)
        if case.row is not None:
            fault = wrong_order(kernel.variant, kernel.tiles[case.row], case.sizes, case.batch, machine.corners(result))
            if fault is not None:
                raise Fault(fault)
        vendor = None
        if case.repeat and machine.hardware:
            vendor = _against_vendor(kernel.variant, setup, result, expected, machine)
            if SCHEDULE[kernel.variant.schedule].repeatable:
                _repeat(launcher, configs, kernel, case, result, machine)
        _check_surroundings(setup, result)
    except NoMemory as error:
        return Outcome(not_run=str(error))
    except Fault as error:
        return Outcome(fault=str(error))
    except Exception as error:
        return Outcome(fault=describe(error))
    return Outcome(worst_error=worst, vendor_error=vendor)


def describe(error: BaseException) -> str:
    """An exception of a kernel or launcher, with the line of the file that raised it."""
    if type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
        # It says no more than what it wraps.
        return describe(error.__cause__)
    text = "".join(traceback.format_exception_only(error)).strip()
    own = str(Path(__file__).parent)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith((own, "<"))]
    rendered = [frame for frame in frames if not {"site-packages", "importlib"} & set(Path(frame.filename).parts)]
    return f"{text} (line {rendered[-1].lineno}: {rendered[-1].line})" if rendered else text


def _call(launcher: Launcher, configs: tuple[Any, ...], case: Case, setup: Setup, machine: Machine) -> torch.Tensor:
    arguments: dict[str, Any] = dict(setup.operands)
    if case.row is not None:
        # A row by its index, and by itself where it is not the row that most cases run on.
        arguments["config"] = dict(configs[case.row]) if case.name.startswith("row") else case.row
    if setup.out is not None:
        arguments["out"] = setup.out.view
    with machine.running(setup):
        return launcher(setup.a.view, setup.b.view, **arguments)


def _check(variant: Variant, setup: Setup, case: Case, result: object, expected: Bounded, machine: Machine) -> float:
    """Raise `Fault` for a result that is not what the contract says; the error as a part of what is allowed."""
    m, n, _ = case.sizes
    shape = (*leading_extents(variant, case), m, n)
    if not isinstance(result, torch.Tensor):
        raise Fault(f"the launcher returned {type(result).__name__}, not a tensor")
    if setup.out is not None and result.data_ptr() != setup.out.view.data_ptr():
        raise Fault("the launcher returned another tensor than the `out` it was given")
    if tuple(result.shape) != shape or result.dtype != torch_type(variant.dtype.out):
        raise Fault(f"the result is {tuple(result.shape)} of {result.dtype}, expected {shape} of {variant.dtype.out}")
    inner = {"row": -1, "column": -2}.get(variant.layout.c)
    if inner is not None and result.shape[inner] > 1 and result.stride(inner) != 1:
        raise Fault(f"the result has strides {result.stride()}, and C is {variant.layout.c}-major")
    certain = expected.value.isfinite()
    if result.dtype == torch.int8:
        # Every byte is a number: where poison may be the result, it says nothing.
        certain = certain & ~((expected.value - INTEGER_POISON).abs() <= expected.error + 1)
    missing = machine.written(result, certain.expand(shape)) if result.numel() else 0
    if missing:
        raise Fault(f"{missing} of {result.numel()} elements of the result were never written")
    verdict = compare(result, expected)
    if verdict.fault is not None:
        raise Fault(verdict.fault)
    return verdict.ratio


def _check_surroundings(setup: Setup, result: torch.Tensor) -> None:
    """Raise `Fault` for a byte that was written where none may be; takes the result's elements back to poison."""
    for operand in setup.inputs:
        fault = operand.changed()
        if fault is not None:
            raise Fault(fault)
    if setup.out is not None:
        fault = setup.out.margins_changed()
        if fault is not None:
            raise Fault(fault)


def _repeat(
    launcher: Launcher, configs: tuple[Any, ...], kernel: Kernel, case: Case, first: torch.Tensor, machine: Machine
) -> None:
    """Raise `Fault` unless a second call on the same operands gives the same bytes."""
    again = prepare(kernel, case, machine.device)
    second = _call(launcher, configs, case, again, machine)
    if not torch.equal(first.contiguous().view(torch.uint8), second.contiguous().view(torch.uint8)):
        raise Fault("a second call on the same operands gave other bytes, and the kernel promises the same")


def _against_vendor(
    variant: Variant, setup: Setup, result: torch.Tensor, expected: Bounded, machine: Machine
) -> float | None:
    """The result's root mean square error as a part of that of the vendor's product under the same epilogue."""
    from generator.verify.reference import finish

    product = machine.witness(setup.a.view, setup.b.view, variant)
    if product is None or not result.dtype.is_floating_point or not result.numel():
        return None
    vendor = finish(variant, Bounded(product, torch.zeros_like(product)), setup.operands).value
    vendor = quantise(vendor, result.dtype) if result.dtype in SATURATED else vendor.to(result.dtype)
    theirs = float((vendor.double() - expected.value).square().mean().sqrt())
    ours = float((result.double() - expected.value).square().mean().sqrt())
    return ours / theirs if theirs else None
