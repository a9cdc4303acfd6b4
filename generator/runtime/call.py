"""A call of a kernel: what its operands must be, how a configuration is chosen, and what is launched.

The file of a kernel has a `Call`, `CALL`. Its functions take by name what is known of a call: tensors and numbers of
the caller, None for one that is left out; sizes; the configuration.
"""

# Triton has no type hints.
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import contextlib
import functools
import operator
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeAlias

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton import knobs

from .launchable import launchable, require_apart, surely, written

#: An element of a kernel's CONFIGS: the sizes of a tile, the numbers of warps and stages, and others, by name.
Row: TypeAlias = dict[str, int]
#: What a caller gives for one: the element, its index, or None for the kernel's own choice.
Config: TypeAlias = Row | int | None
#: The types that scales may have.
SCALES = (torch.float32, torch.float16, torch.bfloat16)
#: The types of masks, which an operand of any floating type may have too.
MASKS = (torch.bool, torch.uint8)
# The largest size: the offsets of a tile that begins below it are 32-bit integers.
MOST = 2**31 - 2**16
# One for all families of a process, which interpret by the same module.
_interpreting = vars(triton).setdefault("interpreting", threading.RLock())  # pyright: ignore[reportAttributeAccessIssue]
_NAME = re.compile(r"[A-Za-z_]\w*")
_FACTORS = re.compile(r"(?:(?P<times>\d+)\*)?(?P<size>\w+)(?://(?P<together>\d+))?")


# What the functions of `CALL` may call.


def cdiv(x: Any, y: Any) -> Any:
    """How many parts of `y` hold `x`."""
    return -(-x // y)


def least(x: Any, y: Any) -> Any:
    """The smaller one of two numbers."""
    return min(x, y)


def index_type(*tensors: Tensor | None) -> tl.dtype:
    """The type of offsets: 64 bits wide if one of the tensors spans more than 2**31 elements."""
    spans = [1 + sum([(n - 1) * step for n, step in zip(x.shape, x.stride())]) for x in tensors if x is not None]
    return tl.int64 if max(spans) > 2**31 else tl.int32


@functools.cache
def extents(words: str) -> Callable[[Mapping[str, int]], tuple[int, ...]]:
    """What returns the extents that words name, `"B M K//2"`, for the sizes and the configuration by name."""
    named = _NAME.sub(lambda x: x[0] if x[0] == "cdiv" else f"known[{x[0]!r}]", ", ".join(words.split()))
    function: Any = eval(f"lambda known: ({named}{',' * bool(words)})", {"cdiv": cdiv})
    return function  # type: ignore[no-any-return]


class Planned(NamedTuple):
    """A launch for a call: `kernel[grid](**arguments)`."""

    kernel: Any
    grid: Any
    arguments: dict[str, Any]


@dataclass
class State:
    """A call: its tensors and numbers, its sizes and its configuration by name; and what it launches, in order."""

    given: dict[str, Any]
    numbers: dict[str, int]
    device: torch.device
    #: The operand whose device that is.
    first: str
    #: Those of the caller, or new ones.
    results: dict[str, Tensor] = field(default_factory=dict)
    launches: list[Planned] = field(default_factory=list)

    @property
    def known(self) -> dict[str, Any]:
        """What functions of `CALL` take by name."""
        return {**self.given, **self.numbers}

    @property
    def result(self) -> Any:
        """The only result, or a tuple of all."""
        results = tuple(self.results.values())
        return results[0] if len(results) == 1 else results


@dataclass(frozen=True)
class Operand:
    """A tensor of a call: `shape` has a word for each dimension, "M K//2"; `dtype` None is any floating or a mask's."""

    name: str
    shape: str
    dtype: torch.dtype | tuple[torch.dtype, ...] | None = None
    #: The dimension of stride 1, None if there is none.
    unit: int | None = None
    #: If set, the operand may be left out, and counts as of this size.
    absent: str | None = None
    #: Whether a result must be given, because it is read.
    read: bool = False
    #: Whether the products may share one, which then lacks the first dimension.
    shared: bool = False
    #: Whether an operand of any floating type may be a mask.
    masks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        # Torch's compiler, which may trace a call, evaluates no text, and traces no lock of a property.
        _ = self.sized, self.words, self.sizes, self.factors

    @functools.cached_property
    def sized(self) -> Callable[[Mapping[str, int]], tuple[int, ...]]:
        """What returns its shape, for the sizes by name."""
        return extents(self.shape)

    @functools.cached_property
    def words(self) -> list[str]:
        """The word of each dimension."""
        return self.shape.split()

    @functools.cached_property
    def sizes(self) -> list[str]:
        """The sizes in its shape."""
        return [name for name in _NAME.findall(self.shape) if name != "cdiv"]

    @functools.cached_property
    def factors(self) -> list[tuple[str, int, int]]:
        """For each word its size, and by what the size is multiplied and divided: `2*N`, `K//8`."""
        matches = (_FACTORS.fullmatch(word) for word in self.words)
        return [(x["size"], int(x["times"] or 1), int(x["together"] or 1)) if x else ("", 1, 1) for x in matches]

    def typed(self, x: Any, given: Mapping[str, Any]) -> Tensor:
        """The tensor of the caller; raises TypeError for what is none, or one of another type."""
        if not isinstance(x, Tensor):
            raise TypeError(f"{self.name} must be a torch.Tensor, got {type(x).__name__}")
        dtypes = self.dtype if isinstance(self.dtype, tuple) else (self.dtype,)
        taken = x.is_floating_point() or (self.masks and x.dtype in MASKS) if self.dtype is None else x.dtype in dtypes
        if not taken:
            masks = ", bool or uint8" * self.masks
            wanted = " or ".join(map(str, dtypes)) if self.dtype else f"of a floating type{masks}"
            stored = " as `_pack` makes it" * (self.name == "b" and not {"b_scale", "b_index"}.isdisjoint(given))
            raise TypeError(f"{self.name} must be {wanted}{stored}, got {x.dtype}")
        return x

    def measure(self, x: Tensor, known: dict[str, int]) -> None:
        """Learn sizes from `x`; raises ValueError where one is too large, or another operand has another one."""
        if x.dim() != len(self.words):
            wanted = ("no dimensions", "one dimension", "two dimensions", "three dimensions")[len(self.words)]
            raise ValueError(f"{self.name} must have {wanted}, got shape {tuple(x.shape)}")
        self.require_whole(known)
        for word, number, (name, times, together) in zip(self.words, x.shape, self.factors):
            size = number // times * together
            if times > 1 and surely(number % times):
                raise ValueError(f"{self.name} has {number} columns: the number must be even, two for one of out")
            # A symbolic size, which torch.compile traces, would get a guard.
            if (type(number) is int and number > MOST) or (type(size) is int and size > MOST):
                raise ValueError(f"{word} is {number}: a size must be at most 2**31 - 2**16")
            if surely(known.setdefault(name, size) != size):
                turned = name == "K" and x.dim() > 1 and surely(known[name] == x.shape[-1])
                hint = f"; was .mT forgotten? {self.name}.mT has that size" * turned
                hint += "; expand a single matrix" * (name == "B") + "; C is symmetric, so N is M" * (name == "M")
                own = f"{self.name}{f', which has {number}' * (size != number)}"
                raise ValueError(f"{name} is {known[name]} in a and {size} in {own}: they must be equal{hint}")

    def require_whole(self, known: Mapping[str, int]) -> None:
        """Raise ValueError where what is stored together, as 8 of `K//8` are, would not be whole."""
        for size, _, together in self.factors:
            if together > 1 and surely(known.get(size, 0) % together):
                reason = f"{self.name} stores {together} of its elements together: it must be a multiple of {together}"
                raise ValueError(f"{size} is {known[size]}: {reason}")

    def taken(self, x: Any, state: State) -> Any:
        """The tensor of the caller; raises TypeError or ValueError unless it is what the operand must be."""
        if x is None and self.absent is not None:
            return None
        x, shape, unit = self.typed(x, state.given), self.sized(state.numbers), self.unit
        whole = shape
        if self.shared and x.dim() == len(shape) - 1:
            shape, unit = shape[1:], 0
        if x.dim() != len(shape) or any(map(surely, map(operator.ne, x.shape, shape))):
            raise ValueError(f"{self.name} must have shape {shape}, got {tuple(x.shape)}")
        if x.layout != torch.strided:
            raise TypeError(f"{self.name} must be a dense tensor, got one of layout {x.layout}")
        if x.device != state.device:
            raise ValueError(f"{self.name} must be on {state.device} as {state.first} is, got {x.device}")
        if unit is not None and surely(x.stride(unit) != 1) and surely(x.shape[unit] > 1) and surely(x.numel() > 0):
            turned = x.dim() > 1 and surely(x.stride(2 * x.dim() - 3 - unit) == 1)
            hint = f"; was .mT forgotten? {self.name}.mT has it" * turned
            raise ValueError(f"{self.name} must have stride 1 along dimension {unit}, got strides {x.stride()}{hint}")
        # A kernel, and a descriptor, read the bytes of a mask.
        x = x.view(torch.uint8) if x.dtype == torch.bool else x
        return x if shape is whole else x.expand(whole)

    def learn(self, known: dict[str, int], given: Mapping[str, Any]) -> None:
        """Learn what other sizes a result has, when those of all operands are known (`scattered`)."""

    def filled(self, x: Any, state: State) -> Any:
        """A result: the tensor of the caller, or a new one; raises as `taken`, and for one that overlaps itself."""
        if x is None and self.read:
            raise ValueError(f"{self.name} must be given: it is C, which is read, scaled by beta and added")
        if x is None:
            return self.new(state)
        reach, dimensions = 0, [*zip(self.taken(x, state).stride(), x.shape)]
        # Where torch.compile traces it, sizes are no numbers; the call that it records asks again.
        traced = torch.compiler.is_compiling() or any(type(n) is not int for pair in dimensions for n in pair)
        for stride, size in () if traced or not x.numel() else sorted(dimensions):
            if size > 1 and stride <= reach:
                how = f"shape {tuple(x.shape)} with strides {x.stride()}"
                raise ValueError(f"{self.name} must not overlap itself, got {how}")
            reach += (size - 1) * stride
        return x

    def new(self, state: State) -> Any:
        """A new tensor, contiguous along its unit. It is a fake one if the first operand is."""
        shape, like = self.sized(state.numbers), state.given[state.first]
        if self.unit in (None, len(shape) - 1):
            return like.new_empty(shape, dtype=self.dtype)
        # No view, which autograd would not let be changed in place.
        rows, columns = (torch.sym_max(1, size) for size in shape[-2:])  # type: ignore[no-untyped-call]
        return like.new_empty_strided(shape, (rows * columns, 1, rows)[-len(shape) :], dtype=self.dtype)


@dataclass(frozen=True, eq=False)
class Launch:
    """A launch of a call: functions of what is known by name return the grid and the arguments of the kernel."""

    kernel: Any
    grid: Callable[..., tuple[int, ...]]
    arguments: Callable[..., dict[str, Any]]
    #: Whether the configuration is passed too.
    configured: bool = True

    def planned(self, known: Mapping[str, Any], row: Row) -> Planned:
        """The launch for a call, with a configuration."""
        return Planned(self.kernel, self.grid(**known), self.arguments(**known) | (row if self.configured else {}))


@dataclass(frozen=True, eq=False)
class Call:
    """What a kernel's file says of a call."""

    configs: list[Row]
    operands: tuple[Operand, ...]
    results: tuple[Operand, ...]
    launches: tuple[Launch, ...]
    #: Which of the configurations is taken for sizes on a device; without it the first.
    choose: Callable[[list[Row], tuple[int, ...], torch.device], Row] | None = None
    #: Why the kernel does not accept a call that its contract allows, or None.
    refuse: Callable[..., str | None] | None = None
    #: Why a configuration does not suit the sizes, or None.
    fits: Callable[..., str | None] | None = None
    #: Counts PROGRAMS for a configuration and a device.
    programs: Any = None
    #: What is allocated for a call beside its results.
    memory: tuple[Any, ...] = ()
    #: Results that are zero before the launches.
    cleared: tuple[str, ...] = ()
    #: Results that are made of partial ones after the launches.
    reduced: tuple[Any, ...] = ()
    #: Measures the configurations for a call that is given none.
    tuner: Any = None
    #: Bytes of shared memory of each configuration (None: it cannot run), by kind of device; others count as the first.
    needs: Mapping[str, Sequence[int | None]] = field(default_factory=dict)
    #: By target, the indices of configurations that it does not hold.
    too_large: Mapping[str, Sequence[int]] = field(default_factory=dict)
    #: `sizes`, where the first two operands are no factors of products.
    sized: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # What both return is found once.
        vars(self)["offered"] = functools.cache(self.offered)
        vars(self)["chosen"] = functools.lru_cache(maxsize=4096)(self.chosen)
        _ = self.names, self.measured, self.sizes

    def __call__(self, config: Config = None, **given: Any) -> Any:
        """Run the call; return the result, or all results as a tuple.

        Raises RuntimeError where a gradient would be recorded, TypeError for what is no tensor and for a wrong dtype,
        else ValueError. Nothing is launched for tensors without memory.
        """
        plan = self.plan(config, **given)
        if plan.launches:
            with in_turn(), torch.cuda.device_of(given[self.operands[0].name]):  # type: ignore[no-untyped-call]
                self.start(plan)
            written(*(given.get(each.name) for each in self.results))
        return plan.result

    def start(self, plan: State) -> list[Any]:
        """Launch a plan on the current device; return what Triton returns for each launch."""
        for name in self.cleared:
            plan.results[name].zero_()
        launched = [each.kernel[each.grid](**each.arguments) for each in plan.launches]
        for reduction in self.reduced:
            reduction.fill(plan)
        return launched

    def plan(self, config: Config = None, **given: Any) -> State:
        """What the call launches; raises what the call does."""
        return self.plan_of(self.state(given), config)

    def plan_of(self, state: State, config: Config = None, *, accepted: bool = False) -> State:
        """As `plan`, for a call whose sizes are known; `accepted`: the kernel is known to accept it."""
        given = {x.name: x.taken(state.given.get(x.name), state) for x in self.operands}
        results = {x.name: x.filled(state.given.get(x.name), state) for x in self.results}
        filled = {name: x for name, x in results.items() if state.given.get(name) is not None}
        state = State({**state.given, **given, **results}, dict(state.numbers), state.device, state.first, results)
        if not launchable(given | results):
            return state
        require_apart(filled, given)
        if not accepted and (reason := self.reason(state)) is not None:
            raise ValueError(reason)
        if 0 in [state.numbers[size] for size in self.outer]:
            for reduction in self.reduced:
                if results[reduction.name] is not None:
                    results[reduction.name].zero_()
            return state
        if config is None and self.tunes:
            return self.tuner.plan(self, state)  # type: ignore[no-any-return]
        return self.planned(state, self.row(config, state))

    @property
    def tunes(self) -> bool:
        """Whether configurations are measured for a call that is given none; Triton's interpreter measures nothing."""
        return self.tuner is not None and not knobs.runtime.interpret

    def checked(self, given: Mapping[str, Any]) -> State:
        """The call with its sizes; raises what the call does for a wrong operand or result, and makes no results."""
        state = self.state(given)
        for operand in self.operands:
            operand.taken(state.given[operand.name], state)
        for result in self.results:
            if result.read or state.given[result.name] is not None:
                result.filled(state.given[result.name], state)
        return state

    def planned(self, state: State, row: Row) -> State:
        """The call with what is launched with a configuration."""
        state.numbers |= row
        if self.programs is not None:
            state.numbers["PROGRAMS"] = self.programs(row, state.device)
        for each in self.memory:
            state.given[each.name] = each.new(state)
        known = state.known
        state.launches = [launch.planned(known, row) for launch in self.launches]
        return state

    def row(self, config: Config, state: State) -> Row:
        """The configuration that the caller gave, or the one that is chosen; raises ValueError for a wrong one."""
        if config is None:
            return self.chosen(tuple([state.numbers[size] for size in self.sizes]), state.device)
        index = index_of(config)
        row: Any = dict(enumerate(self.configs)).get(index) if type(index) is int else config
        if row not in self.configs:
            most, note = len(self.configs), "" if type(config) in (int, dict) else f", a {type(config).__name__}"
            raise ValueError(f"config must be an element of CONFIGS or an index below {most}, got {config!r}{note}")
        if (reason := self.misfit([row], state.numbers)) is not None:
            raise ValueError(reason)
        return row  # type: ignore[no-any-return]

    def chosen(self, sizes: tuple[int, ...], device: torch.device) -> Row:
        """The configuration that is chosen for sizes on a device."""
        rows = self.fitting(self.offered(device), dict(zip(self.sizes, sizes)))
        return rows[0] if self.choose is None else self.choose(rows, sizes, device)

    def fitting(self, rows: list[Row], numbers: Mapping[str, int]) -> list[Row]:
        """Those of the configurations that are legal for the sizes."""
        return rows if self.fits is None else [row for row in rows if self.fits(**{**numbers, **row}) is None]

    def misfit(self, rows: list[Row], numbers: Mapping[str, int]) -> str | None:
        """Why none of the configurations is legal for the sizes, or None."""
        reasons = [self.fits and self.fits(**{**numbers, **row}) for row in rows]
        return None if None in reasons else "; ".join(dict.fromkeys(map(str, reasons)))

    def reason(self, state: State) -> str | None:
        """The first of the reasons for which the kernel does not accept a call, or None."""
        if self.refuse is not None and (reason := self.refuse(**state.known)) is not None:
            return reason
        if rows := self.offered(state.device):
            return self.misfit(rows, state.numbers)
        name = torch.cuda.get_device_name(state.device)
        return f"no configuration fits into the registers and the shared memory of this device, {name}"

    def refusal(self, **given: Any) -> str | None:
        """Why this kernel does not accept operands that its contract allows; None where it does, and for wrong ones."""
        try:
            return self.reason(self.state(given))
        except (TypeError, ValueError):
            return None

    @property
    def described(self) -> bool:
        """Whether the kernel is passed descriptors, which need operands that are aligned."""
        return any("a_desc" in each.kernel.arg_names for each in self.launches)

    def offered(self, device: torch.device) -> list[Row]:
        """The configurations that a device can run."""
        if device.type != "cuda":
            return self.configs
        rows = [*self.configs]
        has: Any = torch.cuda.get_device_properties(device)
        if self.too_large:
            left_out = self.too_large.get(target_of(device), ())
            rows = [row for row in rows if self.configs.index(row) not in left_out]
        if self.needs:
            most = has.shared_memory_per_block if torch.version.hip else has.shared_memory_per_block_optin
            needed = self.needs.get(kind_of(device)) or next(iter(self.needs.values()))
            rows = [row for row, each in zip(self.configs, needed) if row in rows and each is not None and each <= most]
        return rows

    @functools.cached_property
    def sizes(self) -> tuple[str, ...]:
        """The sizes of the products, of which the last is summed over."""
        if self.sized:
            return self.sized
        a, b, out = (x.sizes for x in (*self.operands[:2], self.results[0]))
        return (*[name for name in b[:1] if "T" in out], *out, *[name for name in a if name in b and name not in out])

    @property
    def outer(self) -> tuple[str, ...]:
        """The sizes of a result."""
        return self.sizes[:-1]

    @functools.cached_property
    def measured(self) -> list[Operand]:
        """The operands as sizes are taken from them: what gives one where it is left out before what must have it."""
        return sorted(self.operands, key=lambda x: (x.name not in ("a", "b"), x.absent in (None, *x.words)))

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """The names of operands and results."""
        return tuple([x.name for x in (*self.operands, *self.results)])

    def state(self, given: Mapping[str, Any]) -> State:
        """The call with its sizes; raises TypeError or ValueError where the operands do not agree on them."""
        known: dict[str, int] = {}
        given = {**dict.fromkeys(self.names), **given}
        for operand in self.measured:
            x = given[operand.name]
            if operand.absent is not None and (x is None or operand.absent in operand.words):
                known.setdefault(operand.words[0], known[operand.absent])
            elif operand.name == "b" or any(size not in known for size in operand.sizes):
                # The type first: a dense weight has other sizes than a stored one.
                operand.measure(operand.typed(x, given), known)
        for tensor in (*self.operands, *self.results):
            tensor.require_whole(known)
        for result in self.results:
            result.learn(known, given)
        first = self.operands[0].name
        device = given[first].device
        # torch.compile traces no knobs of Triton; the call that it records asks again.
        if not (device.type in ("cuda", "meta") or torch.compiler.is_compiling() or knobs.runtime.interpret):
            how = "Triton's interpreter: TRITON_INTERPRET=1, set before Python starts"
            raise ValueError(f"{first} is on {device}: a GPU is needed, or {how}")
        return State(given, known, device, first)


def in_turn() -> contextlib.AbstractContextManager[Any]:
    """Within, a thread has Triton's interpreter for itself, if kernels are interpreted."""
    return _interpreting if knobs.runtime.interpret else contextlib.nullcontext()


def index_of(config: Any) -> Any:
    """A configuration as a caller gave it; a whole number of another class than int, as NumPy's, as an int."""
    if type(config) in (int, bool) or isinstance(config, Tensor) or not hasattr(config, "__index__"):
        return config
    return operator.index(config)


# What is known of a device, and the choice of a configuration by what it costs there.


def target_of(device: torch.device) -> str:
    """The architecture of a GPU, as in `sm90` and `gfx942`."""
    has = torch.cuda.get_device_properties(device)
    return has.gcnArchName.partition(":")[0] if torch.version.hip else f"sm{has.major}{has.minor}"


def kind_of(device: torch.device) -> str:
    """The kind of a GPU's matrix instructions, on which the shared memory of a program depends."""
    has = torch.cuda.get_device_properties(device)
    if torch.version.hip:
        # Those of data centres, whose warps have 64 threads, and others.
        return str(has.gcnArchName[:4])
    return {9: "sm90", 10: "sm100", 11: "sm100"}.get(has.major, "sm80")


def figures_of(device: torch.device) -> tuple[int, int]:
    """The multiprocessors of a device, and the bytes of shared memory of each."""
    has = torch.cuda.get_device_properties(device) if device.type == "cuda" else None
    return getattr(has, "multi_processor_count", 1), getattr(has, "shared_memory_per_multiprocessor", 2**16)


def cheapest(
    cost: Callable[..., float], typical_m: Sequence[int] = ()
) -> Callable[[list[Row], tuple[int, ...], torch.device], Row]:
    """The choice of the least `cost(row, *sizes, multiprocessors, shared)`; `shared` is bytes of each.

    With `typical_m` it is the one that loses least on average over these numbers of rows, for any number of rows of a
    call: so a row of the result has the same bits whatever other rows there are.
    """

    def choose(rows: list[Row], sizes: tuple[int, ...], device: torch.device) -> Row:
        figures = figures_of(device)
        ways = [(m, *sizes[-2:]) for m in typical_m] or [sizes]
        costs = [[cost(row, *each, *figures) for row in rows] for each in ways]
        slowdowns = [sum(each / min(way) for each, way in zip(of_row, costs)) for of_row in zip(*costs)]
        return rows[slowdowns.index(min(slowdowns))]

    return choose
