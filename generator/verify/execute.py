"""Run one case of one launcher and say what is wrong with what it did."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from generator.epilogue.quantisation import OUT_SCALE
from generator.plan.contract_call import Argument, call
from generator.plan.kernels import Kernel
from generator.problem.compare import Fault, compare, results_of
from generator.problem.element_types import torch_type
from generator.problem.error_propagation import Bounded
from generator.problem.grouping import spans
from generator.problem.poisoned_operands import INTEGER_POISON, poison, unwritten
from generator.problem.quantised_values import compare_elements, compare_scales
from generator.problem.reference import references
from generator.verify.case_setup import Setup
from generator.verify.case_sizes import Case
from generator.verify.gpu import architecture
from generator.verify.tile_order import wrong_order


class _Fresh(TorchFunctionMode):
    """Poisons every tensor that a launcher allocates without filling it, and hands each to `register`.

    Raises `Fault` at its end where a counter, which a launcher makes at zero for each tile, is not at zero again:
    a family's functions launch the kernel a second time without clearing it.
    """

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
        self.counters: list[torch.Tensor] = []

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)  # type: ignore[no-untyped-call]
        if raised[0] is None and any(bool(counters.any()) for counters in self.counters):
            raise Fault("a counter is not at zero behind the launch, where the next one needs it")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in self.UNFILLED + self.FILLED and result.numel() and result.device.type != "meta":
            if func in self.UNFILLED:
                poison(result)
            elif result.dtype == torch.int32:
                self.counters.append(result)
            self.register(result)
        return result


class Machine:
    """Where kernels run: the interpreter, or a GPU."""

    hardware: bool
    device: torch.device
    #: The architecture of a GPU, as targets are named.
    architecture: str | None = None
    #: The tensors that the last call could write to, each with what the interpreter saw of its stores; a GPU sees none.
    outputs: list[tuple[torch.Tensor, Any]]

    @contextmanager
    def running(self, setup: Setup) -> Iterator[None]:
        """Everything that a launch needs around it."""
        yield

    def lost(self) -> bool:
        """Whether the device answers no more in this process, as after an illegal access."""
        return False

    def region(self, result: torch.Tensor) -> Any:
        """What was seen of the stores to `result`, an `interpreter.Region`; None if nothing was."""
        return next((region for tensor, region in self.outputs if tensor.data_ptr() == result.data_ptr()), None)


class Interpreter(Machine):
    """Triton's interpreter on the CPU, every address checked."""

    hardware = False
    device = torch.device("cpu")

    def __init__(self) -> None:
        from generator.verify import interpreter

        interpreter.install()
        self.guard = interpreter
        self.outputs = []

    @contextmanager
    def running(self, setup: Setup) -> Iterator[None]:
        region = self.guard.Region.of
        read = [region(operand.name, operand.view) for operand in setup.inputs]
        self.outputs = [(each.view, region(each.name, each.view, writable=True)) for each in setup.outputs.values()]

        def register(tensor: torch.Tensor) -> None:
            self.outputs.append((tensor, self.guard.allow("a tensor of the launcher's", tensor)))

        with self.guard.watch([*read, *(written for _, written in self.outputs)]), _Fresh(register):
            yield


class Gpu(Machine):
    """The current CUDA (or ROCm) device."""

    hardware = True

    def __init__(self) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.architecture = architecture()
        self.outputs = []

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


def run_case(module: Any, kernel: Kernel, case: Case, machine: Machine, among: Mapping[str, Kernel]) -> float:
    """Call `gemm` of `module` as `case` says, and check all that it did; the largest ratio of an error to its bound.

    A contract's function chooses `among` these kernels, by name. Raises `Fault` for what is wrong, one of
    SHORT_OF_MEMORY if there is no memory for the operands, and whatever the launcher raises.
    """
    run = partial(_call, module, machine)
    setup = Setup(kernel, case, machine.device)
    v = _chosen(module.gemm, setup, among, kernel).variant
    expected, *beside = references(v, setup.a.view, setup.b.view, setup.read, hardware=machine.hardware)
    result, outputs = results_of(v.epilogue, run(setup))
    # A quantised result's scales are compared with what was to be quantised, as the result is.
    scales = outputs[len(beside) :]
    wanted = [expected, *beside, *[expected] * len(scales)]
    checked = zip(call(v).results, [result, *outputs], wanted, strict=True)
    worst = max(_check(*each, scales, setup, machine) for each in checked)
    if case.row is not None and not case.scattered:
        corners = _corners(machine, None if v.traits.joins else result)
        matrices = setup.sizes.get(v.products.count, 1)
        groups = spans(case.offsets(case.sizes[0]), case.sizes[0]) if v.products.divided == "M" else None
        fault = wrong_order(v, kernel.tiles[case.row], case.sizes, matrices, corners, groups)
        if fault is not None:
            raise Fault(fault)
    stores = machine.region(result)
    if v.symmetric and stores is not None and stores.again:
        raise Fault(f"{stores.again} elements of the result were stored twice")
    if case.repeat and machine.hardware and kernel.variant.traits.repeatable:
        again, outputs_again = results_of(v.epilogue, run(Setup(kernel, case, machine.device)))
        pairs = zip([result, *outputs], [again, *outputs_again], strict=True)
        if not all(torch.equal(x.contiguous().view(torch.uint8), y.contiguous().view(torch.uint8)) for x, y in pairs):
            raise Fault("a second call on the same operands gave other bytes, and the kernel promises the same")
    # No byte may be written around the operands and the results.
    changed = [operand.changed() for operand in setup.inputs]
    for fault in changed + [operand.margins_changed() for operand in setup.outputs.values()]:
        if fault is not None:
            raise Fault(fault)
    return worst


def _chosen(function: Any, setup: Setup, among: Mapping[str, Kernel], otherwise: Kernel) -> Kernel:
    """The kernel that a contract's function runs, where some of its kernels round B once more, when they decode it."""
    if len({kernel.variant.traits.decodes for kernel in among.values()}) < 2:
        return otherwise
    name, _ = function.which(setup.a.view, setup.b.view, **setup.keywords)
    return among.get(name, otherwise)


def describe(error: BaseException) -> str:
    """A fault, or an exception of a kernel or launcher with the line of the file that raised it."""
    if isinstance(error, Fault):
        return str(error)
    if type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
        # It says no more than what it wraps.
        return describe(error.__cause__)
    text = "".join(traceback.format_exception_only(error)).strip()
    own = str(Path(__file__).parent)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith((own, "<"))]
    rendered = [frame for frame in frames if not {"site-packages", "importlib"} & set(Path(frame.filename).parts)]
    return f"{text} (line {rendered[-1].lineno}: {rendered[-1].line})" if rendered else text


def _call(module: Any, machine: Machine, setup: Setup) -> object:
    arguments, case = setup.keywords, setup.case
    if case.row is not None:
        # A row by its index, and by itself where it is not the row that most cases run on.
        arguments["config"] = dict(module.CONFIGS[case.row]) if case.name.startswith("row") else case.row
    with machine.running(setup):
        return module.gemm(setup.a.view, setup.b.view, **arguments)


def _corners(machine: Machine, result: torch.Tensor | None) -> list[tuple[int, ...]]:
    """The least index along each dimension of each store to `result`, in the programs' order; none if not known.

    Without a result those of the partial sums that the launcher made room for, without the index of the part.
    """
    sums = next((tensor for tensor, _ in machine.outputs if tensor.dim() == 3), None) if result is None else result
    region = None if sums is None else machine.region(sums)
    if sums is None or region is None:
        return []
    # The launcher may have made the result as the transposed of what it allocated.
    dimensions = region.of("the result", sums).dimensions
    corners = [dict(zip(dimensions, corner, strict=True)) for corner in region.corners]
    # 0 along the dimensions that a region drops.
    return [tuple(least.get(number, 0) for number in range(result is None, sums.dim())) for least in corners]


def _check(x: Argument, result: object, expected: Bounded, scales: list[Any], setup: Setup, machine: Machine) -> float:
    """Raise `Fault` for a result that is not what the contract says; the error as a part of what is allowed.

    A quantised result, or its `scales`, is compared with the value that was to be quantised.
    """
    label, tensor = _tensor(x, setup, result)
    quantised = setup.variant.quantised if x.name in ("out", OUT_SCALE) else None
    scattered = setup.case.scattered and x.name in ("out", OUT_SCALE)
    divided = "T" in x.extents
    if divided:
        total = setup.sizes["T"]
        used = max((last for _, last in spans(setup.case.offsets(total), total)), default=0)
        # The row of the result for each row of the product, which keeps what it held where that has no row.
        places = setup.tensors["scatter"].view[:used] if scattered else torch.arange(used, device=tensor.device)
        there = (places >= 0) & (places < len(tensor))
        places, kept = places[there].long(), torch.ones(len(tensor), dtype=torch.bool, device=tensor.device)
        kept[places] = False
        rest = tensor[kept]
        before = unwritten(rest) if setup.before is None or x.name != "out" else rest == setup.before[kept]
        if not bool(before.all()):
            where = "that nothing names" if scattered else "past the end of the last group"
            raise Fault(f"elements of {label} {where} were written")
        tensor = tensor[places] if scattered else tensor[:used]
        expected = Bounded(*(each[:used][there] for each in (expected.value, expected.error)))
    if tensor.numel():
        # Poison may be a right element or scale here; the comparison finds what was not written.
        certain = _certain(tensor, expected) if quantised is None else torch.zeros_like(tensor, dtype=torch.bool)
        # Sums are torch's to write, where no kernel is watched.
        stores = machine.region(tensor) if x.layout and not divided else None
        unknown = unwritten(tensor) & certain.expand(tensor.shape) if stores is None else ~stores.written
        if missing := int(unknown.sum()):
            raise Fault(f"{missing} of {tensor.numel()} elements of {label} were never written")
    if quantised is None:
        verdict = compare(tensor, expected)
    elif x.name == OUT_SCALE:
        verdict = compare_scales(tensor, expected, quantised)
    else:
        # Nothing has checked the scales yet.
        _tensor(call(setup.variant).outputs[-1], setup, scales[0])
        verdict = compare_elements(tensor, scales[0][places] if divided else scales[0], expected, quantised)
    if verdict.fault is not None:
        raise Fault(verdict.fault if x.name == "out" else f"{label}: {verdict.fault}")
    return verdict.ratio


def _tensor(x: Argument, setup: Setup, result: object) -> tuple[str, torch.Tensor]:
    """A result's name and tensor; raise `Fault` unless it has its shape, type and layout, as it was given."""
    label, shape = "the result" if x.name == "out" else x.name, x.sizes(setup.sizes)
    if setup.case.scattered and x.name in ("out", OUT_SCALE):
        shape = (setup.sizes["S"], *shape[1:])
    if not isinstance(result, torch.Tensor):
        raise Fault(f"the launcher returned {type(result).__name__}, not a tensor")
    given = setup.outputs.get(x.name)
    if given is not None and result.data_ptr() != given.view.data_ptr():
        raise Fault(f"the launcher returned another tensor than the `{x.name}` it was given")
    assert isinstance(x.dtype, str)
    if tuple(result.shape) != shape or result.dtype != torch_type(x.dtype):
        raise Fault(f"{label} is {tuple(result.shape)} of {result.dtype}, expected {shape} of {x.dtype}")
    if x.unit is not None and result.shape[x.unit] > 1 and result.stride(x.unit) != 1:
        raise Fault(f"{label} has strides {result.stride()}, and needs stride 1 along dimension {x.unit}")
    return label, result


def _certain(result: torch.Tensor, expected: Bounded) -> torch.Tensor:
    """Where poison in `result` tells that nothing was written: it cannot be what is expected."""
    finite = expected.value.isfinite()
    if result.dtype.is_floating_point or result.element_size() > 1:
        return finite
    # Every byte is a number.
    return finite & ~((expected.value - INTEGER_POISON).abs() <= expected.error + 1)
