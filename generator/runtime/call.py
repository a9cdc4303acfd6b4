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
from typing import Any, TypeAlias

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton import knobs

from .launchable import is_fake, launchable, require_apart, surely, written

#: An element of a kernel's CONFIGS: the sizes of a tile, the numbers of warps and stages, and others, by name.
Row: TypeAlias = dict[str, int]
#: What a caller gives for one: the element, its index, or None for the kernel's own choice.
Config: TypeAlias = Row | int | None
#: The types that scales may have.
SCALES = (torch.float32, torch.float16, torch.bfloat16)
# The largest size: the offsets of a tile that begins below it are 32-bit integers.
MOST = 2**31 - 2**16
# One for all families of a process, which interpret by the same module.
_interpreting = vars(triton).setdefault("interpreting", threading.RLock())  # pyright: ignore[reportAttributeAccessIssue]
_NAME = re.compile(r"[A-Za-z_]\w*")


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
    made: Any = eval(f"lambda known: ({named}{',' * bool(words)})", {"cdiv": cdiv})
    return made  # type: ignore[no-any-return]


@dataclass
class State:
    """A call while its launch is worked out: tensors and numbers of the caller; sizes and configuration by name."""

    given: dict[str, Any]
    numbers: dict[str, int]
    device: torch.device
    #: The operand whose device that is.
    first: str = "a"


@dataclass(frozen=True)
class Operand:
    """A tensor of a call. `shape` has a word for each dimension, "M K//2"; `dtype` None is any floating type.

    `unit` is the dimension of stride 1, None if there is none. With `absent`, its size then, it may be left out.
    A result that is `read` must be given. Where the operand `named` is given, it names the rows of a result to fill:
    then the tensor must be given, with S rows.
    """

    name: str
    shape: str
    dtype: torch.dtype | tuple[torch.dtype, ...] | None = None
    unit: int | None = None
    absent: str | None = None
    read: bool = False
    named: str | None = None

    def __post_init__(self) -> None:
        # Torch's compiler, which may trace a call, evaluates no text.
        _ = self.sized

    @functools.cached_property
    def sized(self) -> Callable[[Mapping[str, int]], tuple[int, ...]]:
        """What returns its shape, for the sizes by name."""
        return extents(self.shape)

    @functools.cached_property
    def words(self) -> tuple[str, ...]:
        """The word of each dimension."""
        return tuple(self.shape.split())

    @functools.cached_property
    def sizes(self) -> set[str]:
        """The sizes in its shape."""
        return {*_NAME.findall(self.shape)} - {"cdiv"}

    def typed(self, x: Any, given: Mapping[str, Any]) -> Tensor:
        """The tensor of the caller; raises TypeError for what is none, or one of another type."""
        if not isinstance(x, Tensor):
            raise TypeError(f"{self.name} must be a torch.Tensor, got {type(x).__name__}")
        dtypes = self.dtype if isinstance(self.dtype, tuple) else (self.dtype,)
        if not (x.is_floating_point() if self.dtype is None else x.dtype in dtypes):
            wanted = " or ".join(map(str, dtypes)) if self.dtype else "of a floating type"
            stored = self.name == "b" and ("b_scale" in given or "b_index" in given)
            # What converts it, if no more than rounding is lost.
            near = self.dtype and not stored and x.is_floating_point() == dtypes[0].is_floating_point  # type: ignore[union-attr]
            hint = f"; pass {self.name}.to({dtypes[0]})" if near and x.dtype.itemsize > 1 else ""
            raise TypeError(f"{self.name} must be {wanted}{' as `_pack` makes it' * stored}, got {x.dtype}{hint}")
        return x

    def measure(self, x: Tensor, known: dict[str, int]) -> None:
        """Learn sizes from `x`; raises ValueError where one is too large, or another operand has another one."""
        if x.dim() != (count := len(self.words)):
            hint = f"; pass a.flatten(0, {-count}), as nn.Linear does" * (self.name == "a" and x.dim() > count)
            wanted = ("no dimensions", "one dimension", "two dimensions", "three dimensions")[count]
            raise ValueError(f"{self.name} must have {wanted}, got shape {tuple(x.shape)}{hint}")
        for word, number in zip(self.words, x.shape):
            name, size = word, number
            if "*" in word:
                part, name = word.split("*")
                size = number // int(part)
                if surely(number % int(part)):
                    raise ValueError(f"{self.name} has {number} columns: the number must be even, two for one of out")
            elif "//" in word:
                name, part = word.split("//")
                size = number * int(part)
            # A symbolic size, which torch.compile traces, would get a guard.
            if (type(number) is int and number > MOST) or (type(size) is int and size > MOST):
                raise ValueError(f"{word} is {number}: a size must be at most 2**31 - 2**16")
            if surely(known.setdefault(name, size) != size):
                turned = name == "K" and x.dim() > 1 and surely(known[name] == x.shape[-1])
                hint = "; expand a single matrix" * (name == "B") + "; C is symmetric, so N is M" * (name == "M")
                turn = "T" if x.dim() == 2 else "mT"
                hint += f"; was .{turn} forgotten? {self.name}.{turn} has that size" * turned
                own = f"{self.name}{f', which has {number}' * (size != number)}"
                raise ValueError(f"{name} is {known[name]} in a and {size} in {own}: they must be equal{hint}")

    def taken(self, x: Any, state: State) -> Any:
        """The tensor of the caller; raises TypeError or ValueError unless it is what the operand must be."""
        if x is None and self.absent is not None:
            return None
        x, shape, unit = self.typed(x, state.given), self.sized(state.numbers), self.unit
        shape = shape if self.named is None else (state.numbers["S"], *shape[1:])
        if x.dim() != len(shape) or any(map(surely, map(operator.ne, x.shape, shape))):
            raise ValueError(f"{self.name} must have shape {shape}, got {tuple(x.shape)}")
        if x.layout != torch.strided:
            raise TypeError(f"{self.name} must be a dense tensor, got one of layout {x.layout}")
        if x.device != state.device:
            raise ValueError(f"{self.name} must be on {state.device} as {state.first} is, got {x.device}")
        if unit is not None and surely(x.stride(unit) != 1) and surely(x.shape[unit] > 1) and surely(x.numel() > 0):
            turned = x.dim() > 1 and surely(x.stride(2 * x.dim() - 3 - unit) == 1)
            turn = "" if unit == x.dim() - 1 else ".T" if x.dim() == 2 else ".mT"
            hint = "was .T forgotten? its transposed is dense there; " * turned
            hint += f"pass {self.name}{turn}.contiguous(){turn}"
            raise ValueError(f"{self.name} must have stride 1 along dimension {unit}, got strides {x.stride()}; {hint}")
        return x

    def rows(self, given: Mapping[str, Any], known: Mapping[str, int]) -> int:
        """S, of a result with `named`; raises TypeError or ValueError for a tensor of which `named` can name no row."""
        if given.get(self.named or "") is None:
            return self.sized(known)[0]
        x = given.get(self.name)
        if x is None:
            raise ValueError(f"{self.name} must be given: {self.named} names its rows")
        rows: int = self.typed(x, given).shape[0] if x.dim() else 0
        if type(rows) is int and rows > MOST:
            raise ValueError(f"{self.name} has {rows} rows: a size must be at most 2**31 - 2**16")
        return rows

    def filled(self, x: Any, state: State) -> Any:
        """A result: the tensor of the caller, or a new one; raises as `taken`, and for one that overlaps itself."""
        if x is None:
            if self.read:
                raise ValueError(f"{self.name} must be given: it is C, which is read, scaled by beta and added")
            return self.new(state)
        reach, dimensions = 0, [*zip(self.taken(x, state).stride(), x.shape)]
        if torch.compiler.is_compiling() or not all([type(n) is int for pair in dimensions for n in pair]):
            # As torch.compile traces it; the call that it records asks again.
            return x
        for stride, size in sorted(dimensions):
            if size > 1 and stride <= reach and x.numel():
                how = f"shape {tuple(x.shape)} with strides {x.stride()}"
                raise ValueError(f"{self.name} must not overlap itself, got {how}")
            reach += (size - 1) * stride
        return x

    def new(self, state: State) -> Any:
        """A new tensor, contiguous along its unit. It is a fake one if the first operand is."""
        shape, like = self.sized(state.numbers), state.given.get(state.first)
        # Outside its mode, torch makes a fake tensor only of another.
        of: Any = like if like is not None and is_fake(like) else torch
        make = "new_empty" if of is like else "empty"
        if self.unit in (None, len(shape) - 1):
            return getattr(of, make)(shape, dtype=self.dtype, device=state.device)
        rows, columns = (torch.sym_max(1, size) for size in shape[-2:])  # type: ignore[no-untyped-call]
        # No view, which autograd would not let be changed in place.
        strides = (rows * columns, 1, rows)[-len(shape) :]
        return getattr(of, f"{make}_strided")(shape, strides, dtype=self.dtype, device=state.device)


@dataclass
class Planned:
    """A launch for a call, `kernel[grid](**arguments)`; `owners` has the tensor or number that an argument is of."""

    kernel: Any
    grid: Any
    arguments: dict[str, Any]
    owners: dict[str, str]


@dataclass
class Plan:
    """The results of a call, what it launches, in order, and the memory that is allocated for it."""

    results: dict[str, Tensor]
    launches: list[Planned] = field(default_factory=list)
    memory: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Launch:
    """A launch of a call: functions of what is known by name return the grid and the arguments of the kernel."""

    kernel: Any
    grid: Callable[..., tuple[int, ...]]
    arguments: Callable[..., dict[str, Any]]
    #: Whether the configuration is passed too.
    configured: bool = True

    def planned(self, known: Mapping[str, Any], row: Mapping[str, int]) -> Planned:
        """The launch for a call, with a configuration."""
        arguments = self.arguments(**known)
        # A descriptor, and a tensor that is passed as bytes, have the operand as `base`.
        names = {id(x): name for name, x in known.items() if isinstance(x, (Tensor, float))}
        owners = {name: names.get(id(getattr(x, "base", x)), "") for name, x in arguments.items()}
        arguments.update(row if self.configured else {})
        return Planned(self.kernel, self.grid(**known), arguments, {x: name for x, name in owners.items() if name})


@dataclass(frozen=True, eq=False)
class Call:
    """What a kernel's file says of a call.

    `choose(rows, sizes, device)` returns one of the configurations; without it the first is taken. `refuse` returns why
    the kernel does not accept a call that its contract allows, and `fits` why a configuration does not suit the sizes.
    `memory` is allocated for a call, `cleared` are results that are zero before the launches, and `reduced` are made of
    partial ones after them. `programs` counts PROGRAMS. `tuner` measures configurations. `needs` has by kind
    of device (others as the first) the bytes of shared memory of each configuration, None for more than any has, and
    `too_large` by target the indices of those that it does not hold.
    """

    configs: list[Row]
    operands: tuple[Operand, ...]
    results: tuple[Operand, ...]
    launches: tuple[Launch, ...]
    choose: Callable[[list[Row], tuple[int, ...], torch.device], Row] | None = None
    refuse: Callable[..., str | None] | None = None
    fits: Callable[..., str | None] | None = None
    programs: Any = None
    memory: tuple[Any, ...] = ()
    cleared: tuple[str, ...] = ()
    reduced: tuple[Any, ...] = ()
    tuner: Any = None
    needs: Mapping[str, Sequence[int | None]] = field(default_factory=dict)
    too_large: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def __call__(self, config: Config = None, **given: Any) -> Any:
        """Run the call; return the result, or all results as a tuple.

        Raises RuntimeError where a gradient would be recorded, TypeError for what is no tensor and for a wrong dtype,
        else ValueError. Nothing is launched for tensors without memory.
        """
        plan = self.plan(config, **given)
        if plan.launches:
            with in_turn(), torch.cuda.device_of(given[self.operands[0].name]):  # type: ignore[no-untyped-call]
                for name in self.cleared:
                    plan.results[name].zero_()
                for each in plan.launches:
                    each.kernel[each.grid](**each.arguments)
                for reduction in self.reduced:
                    reduction.fill(plan)
            written(*(given.get(each.name) for each in self.results))
        results = tuple(plan.results.values())
        return results[0] if len(results) == 1 else results

    def plan(self, config: Config = None, **given: Any) -> Plan:
        """What the call launches; raises what the call does."""
        return self.plan_of(self.state(given), config)

    def plan_of(self, state: State, config: Config = None, *, accepted: bool = False) -> Plan:
        """As `plan`, for a call whose sizes are known; `accepted`: the kernel is known to accept it."""
        given = state.given
        state = State(dict(given), dict(state.numbers), state.device, state.first)
        for operand in self.operands:
            state.given[operand.name] = operand.taken(given.get(operand.name), state)
        for result in self.results:
            state.given[result.name] = result.filled(given.get(result.name), state)
        results = {result.name: state.given[result.name] for result in self.results}
        if not launchable(state.given):
            return Plan(results)
        filled = {name: x for name, x in results.items() if given.get(name) is not None}
        if filled:
            require_apart(filled, {operand.name: state.given[operand.name] for operand in self.operands})
        if not accepted and (reason := self.reason(state)) is not None:
            raise ValueError(reason)
        if 0 in [state.numbers[size] for size in self.outer]:
            for reduction in self.reduced:
                if results[reduction.name] is not None:
                    results[reduction.name].zero_()
            return Plan(results)
        # One tensor may be two operands, which are told apart by identity.
        seen = set(map(id, results.values()))
        for operand in self.operands:
            x = state.given[operand.name]
            if isinstance(x, Tensor) and id(x) in seen:
                state.given[operand.name] = x = x.view(x.dtype)
            seen.add(id(x))
        if config is None and self.tunes:
            return self.tuner.plan(self, state, results)  # type: ignore[no-any-return]
        return self.planned(state, results, self.row(config, state))

    @property
    def tunes(self) -> bool:
        """Whether configurations are measured for a call that is given none; Triton's interpreter measures nothing."""
        return self.tuner is not None and not knobs.runtime.interpret

    def checked(self, given: Mapping[str, Any]) -> State:
        """The call with its sizes; raises what the call does for a wrong operand or result, and makes no results."""
        state = self.state(given)
        for operand in self.operands:
            operand.taken(given.get(operand.name), state)
        for result in self.results:
            if result.read or given.get(result.name) is not None:
                result.filled(given.get(result.name), state)
        return state

    def planned(self, state: State, results: dict[str, Tensor], row: Row) -> Plan:
        """What is launched with a configuration."""
        state.numbers |= row
        if self.programs is not None:
            state.numbers["PROGRAMS"] = self.programs(row, state.device)
        memory = {each.name: each.new(state) for each in self.memory}
        state.given |= memory
        known = self.known(state)
        return Plan(results, [launch.planned(known, row) for launch in self.launches], memory)

    def known(self, state: State) -> dict[str, Any]:
        """What is known of a call by name."""
        return {**{x.name: None for x in (*self.operands, *self.results)}, **state.given, **state.numbers}

    def row(self, config: Config, state: State) -> Row:
        """The configuration that the caller gave, or the one that is chosen; raises ValueError for a wrong one."""
        if config is None:
            return self.chosen(tuple([state.numbers[size] for size in self.sizes]), state.device)
        config, count = index_of(config), len(self.configs)
        row = self.configs[config] if type(config) is int and 0 <= config < count else config
        if row not in self.configs:
            kind = "" if type(config) in (int, dict) else f", a {type(config).__name__}"
            raise ValueError(f"config must be an element of CONFIGS or an index below {count}, got {config!r}{kind}")
        if (reason := self.misfit([row], state.numbers)) is not None:
            raise ValueError(reason)
        return row

    @functools.cached_property
    def chosen(self) -> Callable[[tuple[int, ...], torch.device], Row]:
        """The configuration that is chosen for sizes and a device."""

        @functools.lru_cache(maxsize=4096)
        def chosen(sizes: tuple[int, ...], device: torch.device) -> Row:
            rows = self.fitting(self.offered(device), dict(zip(self.sizes, sizes)))
            return rows[0] if self.choose is None else self.choose(rows, sizes, device)

        return chosen

    def fitting(self, rows: list[Row], numbers: Mapping[str, int]) -> list[Row]:
        """Those of the configurations that are legal for the sizes."""
        return rows if self.fits is None else [row for row in rows if self.fits(**{**numbers, **row}) is None]

    def misfit(self, rows: list[Row], numbers: Mapping[str, int]) -> str | None:
        """Why none of the configurations is legal for the sizes, or None."""
        if self.fits is None:
            return None
        reasons = [self.fits(**{**numbers, **row}) for row in rows]
        return None if None in reasons else "; ".join(dict.fromkeys(map(str, reasons)))

    def refusal(self, **given: Any) -> str | None:
        """Why this kernel does not accept operands that its contract allows; None where it does, and for wrong ones."""
        try:
            return self.reason(self.state(given))
        except (TypeError, ValueError):
            return None

    def reason(self, state: State) -> str | None:
        """The first of the reasons for which the kernel does not accept a call, or None."""
        if self.refuse is not None and (reason := self.refuse(**self.known(state))) is not None:
            return reason
        if rows := self.offered(state.device):
            return self.misfit(rows, state.numbers)
        known = [each for each in self.needed(state.device) if each is not None]
        most = f"shared memory of {shared_memory(state.device)} bytes, of which one needs {min(known, default=0)}"
        where = f"{most if known else 'registers'}; this is {torch.cuda.get_device_name(state.device)}"
        return f"no configuration fits into the device's {where}"

    @functools.cached_property
    def offered(self) -> Any:
        """The configurations that a device can run."""

        @functools.cache
        def offered(device: torch.device) -> list[Row]:
            if device.type != "cuda":
                return self.configs
            found, limit = torch.cuda.get_device_properties(device), shared_memory(device)
            target = found.gcnArchName.partition(":")[0] if torch.version.hip else f"sm{found.major}{found.minor}"
            needed, without = self.needed(device), self.too_large.get(target, ())
            held = [each is not None and (not limit or each <= limit) for each in needed]
            return [row for at, row in enumerate(self.configs) if at not in without and (not needed or held[at])]

        return offered

    def needed(self, device: torch.device) -> Sequence[int | None]:
        """The shared memory that each configuration needs on a device; nothing where the kernel needs none."""
        return self.needs.get(kind_of(device)) or next(iter(self.needs.values()), ())

    @functools.cached_property
    def described(self) -> bool:
        """Whether the kernel is passed descriptors, which need operands that are aligned."""
        return any("a_desc" in each.kernel.arg_names for each in self.launches)

    @functools.cached_property
    def sizes(self) -> tuple[str, ...]:
        """The sizes of the products, of which the last is summed over."""
        a, b, out = [
            [name for name in _NAME.findall(x.shape) if name != "cdiv"] for x in (*self.operands[:2], self.results[0])
        ]
        summed = [name for name in a if name in b and name not in out]
        return (*[name for name in b[:1] if "T" in out], *out, *summed)

    @property
    def outer(self) -> tuple[str, ...]:
        """The sizes of a result."""
        return self.sizes[:-1]

    @functools.cached_property
    def measuring(self) -> list[Operand]:
        """The operands that sizes are taken from: `a` and `b`, and others that have sizes of their own."""
        known: set[str] = set()
        found = []
        # What gives a size where it is left out, too, comes before those that must have that size.
        giving = [x for x in self.operands if x.absent is not None and x.absent != x.words[0]]
        needed = [x for x in self.operands if x.absent is None or x in giving]
        for operand in sorted(needed, key=lambda x: not (x.name in ("a", "b") or x in giving)):
            if operand.name == "b" or not operand.sizes <= known:
                found.append(operand)
                known |= operand.sizes
        return found

    @functools.cached_property
    def containers(self) -> list[tuple[str, str, int]]:
        """The sizes of which several elements are stored together, each with the tensor and their number."""
        words = [
            (x.name, *word.split("//")) for x in (*self.operands, *self.results) for word in x.words if "//" in word
        ]
        # The most elements first: what is a multiple of their number is one of the others'.
        return sorted([(name, size, int(together)) for name, size, together in words], key=lambda entry: -entry[2])

    def state(self, given: Mapping[str, Any]) -> State:
        """The call with its sizes; raises TypeError or ValueError where the operands do not agree on them."""
        known: dict[str, int] = {}
        for operand in self.measuring:
            x = given.get(operand.name)
            if x is None and operand.absent is not None:
                known[operand.words[0]] = known[operand.absent]
                continue
            # The type first: a dense weight has other sizes than a stored one.
            operand.measure(operand.typed(x, given), known)
            for name, size, together in self.containers:
                if surely(known.get(size, 0) % together):
                    reason = f"{name} stores {together} of its elements together: it must be a multiple of {together}"
                    raise ValueError(f"{size} is {known[size]}: {reason}")
        for result in self.results:
            if result.named is not None and "S" not in known:
                # Of several, the first says how many rows each must have.
                known["S"] = result.rows(given, known)
        first = self.operands[0].name
        device = given[first].device
        # torch.compile traces no knobs of Triton; the call that it records asks again.
        known_device = device.type in ("cuda", "meta") or torch.compiler.is_compiling()
        if not known_device and not interprets(self.launches[0].kernel):
            how = "Triton's interpreter: TRITON_INTERPRET=1, set before Python starts"
            raise ValueError(f"{first} is on {device}: a GPU is needed, or {how}")
        return State(dict(given), known, device, first)


def interprets(kernel: Any) -> bool:
    """Whether Triton interprets a kernel, which it decides as it is imported."""
    while hasattr(kernel, "fn") and not isinstance(kernel, triton.JITFunction):
        kernel = kernel.fn
    return knobs.runtime.interpret and not isinstance(kernel, triton.JITFunction)


def in_turn() -> contextlib.AbstractContextManager[Any]:
    """Within, a thread has Triton's interpreter for itself, if kernels are interpreted."""
    return _interpreting if knobs.runtime.interpret else contextlib.nullcontext()


def index_of(config: Any) -> Any:
    """A configuration as a caller gave it; a whole number of another class than int, as NumPy's, as an int."""
    if type(config) in (int, bool) or isinstance(config, Tensor) or not hasattr(config, "__index__"):
        return config
    return operator.index(config)


# What is known of a device, and the choice of a configuration by what it costs there.


def kind_of(device: torch.device) -> str:
    """The kind of a GPU's matrix instructions, on which the shared memory of a program depends."""
    found = torch.cuda.get_device_properties(device)
    if torch.version.hip:
        # Those of data centres, whose warps have 64 threads, and others.
        return str(found.gcnArchName[:4])
    return {9: "sm90", 10: "sm100", 11: "sm100"}.get(found.major, "sm80")


def shared_memory(device: torch.device) -> int:
    """The bytes of shared memory that a program may have on a GPU; 0 if torch does not say."""
    found, hip = torch.cuda.get_device_properties(device), torch.version.hip is not None
    own = getattr(found, "shared_memory_per_block" if hip else "shared_memory_per_block_optin", 0)
    # CUDA keeps 1 KiB of a multiprocessor for each program.
    return int(own or max(0, getattr(found, "shared_memory_per_multiprocessor", 0) - (0 if hip else 1024)))


def figures_of(device: torch.device) -> tuple[int, int]:
    """The multiprocessors of a device, and the bytes of shared memory of each."""
    if device.type != "cuda":
        return 1, 2**16
    found: Any = torch.cuda.get_device_properties(device)
    return found.multi_processor_count, getattr(found, "shared_memory_per_multiprocessor", 2**16)


def cheapest(cost: Callable[..., float]) -> Callable[[list[Row], tuple[int, ...], torch.device], Row]:
    """The choice of the least `cost(row, *sizes, multiprocessors, shared)`; `shared` is bytes of each."""

    def choose(rows: list[Row], sizes: tuple[int, ...], device: torch.device) -> Row:
        figures = figures_of(device)
        return min(rows, key=lambda row: cost(row, *sizes, *figures))

    return choose
