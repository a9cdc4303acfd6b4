"""Torch's products in eager mode, computed by this family: `override_aten` of the family.

The kernels of torch's operators are replaced in its dispatcher, below autograd, autocast and transforms. A call that no
contract fits runs the kernel that was there. For a family whose rows do not depend on each other, operators that torch
makes of these products are made of them in one way for every number of rows (`composed_products`).
"""

# Triton has no type hints.
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import contextlib
import itertools
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton import knobs

from . import torch_products
from .launch import Function, Step, remember, signature_of
from .precision import fp32_precision
from .private import as_plain
from .torch_products import (
    SCALE,
    Applied,
    Installed,
    Matrices,
    Report,
    TorchProduct,
    addend,
    word_of,
)

#: Those of the operators that no contract computes, which are reported as left to torch.
UNKNOWN = ("_addmm_activation", "_scaled_mm", "_scaled_grouped_mm")
#: The operators that are replaced; torch makes `linear`, `matmul`, `@` and `einsum` of them.
OPERATORS = (
    *("mm", "mm.out", "mm.dtype", "mm.dtype_out", "bmm", "bmm.out", "bmm.dtype", "bmm.dtype_out"),
    *("addmm", "addmm.out", "addmm_", "baddbmm", "baddbmm.out", "baddbmm_", "addmv", "addmv.out", "addmv_"),
    *("mv", "mv.out", "dot", "dot.out", "_int_mm", "_int_mm.out", "_grouped_mm"),
    *(*UNKNOWN, "_addmm_activation.out", "_scaled_mm.out"),
)


def shared(name: str) -> Any:
    """What is one for all families of a process: the handlers of calls, the newest last, and the library that asks."""
    shared = SimpleNamespace(lock=threading.RLock(), handlers=[], library=None)
    return vars(torch.library).setdefault(name, shared)  # pyright: ignore[reportAttributeAccessIssue]


_overridden = shared("_products_overridden")


class Asked(NamedTuple):
    """A call of an operator as a product: `finish` makes the operator's result of it."""

    batch: str
    a: Tensor
    b: Tensor
    dtype: torch.dtype
    out: Tensor | None = None
    added: Tensor | None = None
    alpha: float = 1
    beta: float = 1
    offsets: Tensor | None = None
    finish: Callable[[Tensor], Tensor] | None = None


@dataclass(frozen=True)
class ChosenContract:
    """The contract of calls of one signature, with its chain; what is added to the product has this shape."""

    function: Function
    chain: tuple[Applied, ...]
    shape: tuple[int, ...]

    def operands(self, asked: Asked) -> dict[str, Any]:
        """The operands besides `a`, `b` and `out`."""
        operands: dict[str, Any] = {} if asked.offsets is None else {"offsets": asked.offsets}
        x, shape = asked.added, self.shape
        for operation, (keyword, *_), _ in self.chain:
            if operation == SCALE.operation:
                operands[keyword] = asked.alpha
            elif x is not None:
                reshaped = len(shape) == 1 or tuple(x.shape) == shape
                operands[keyword] = x.reshape(shape) if reshaped else x.expand(shape).contiguous()
        return operands

    def step(self, asked: Asked) -> Step:
        """What such a call does next (`Function.step`)."""
        return self.function.step({"a": asked.a, "b": asked.b, "out": asked.out, **self.operands(asked)})

    def __call__(self, asked: Asked) -> Any:
        return self.function.direct(asked.a, asked.b, asked.out, None, self.operands(asked))


#: The contract of a call and what computes it, or why it is left to torch.
Decided = tuple[str, Callable[[Asked], Any] | None]


class Override(Installed):
    """Torch's products while a family computes them; also a context manager, at whose end they are torch's again.

    `remove` ends it. Of several, those of other families too, the newest is asked first, and each may end before the
    others. `report` counts the calls.
    """

    #: Whether the number of rows has no part in what the contracts compute, and shall have none in a model.
    alike = False

    def __init__(self, products: Mapping[str, TorchProduct], function: Callable[[str], Function]) -> None:
        self.report = Report()
        self.products, self.function = products, function
        self._decided: dict[tuple[object, ...], Decided] = {}
        self.install()

    @property
    def installed(self) -> bool:
        """Whether calls are handled now."""
        return self._handle in _overridden.handlers

    def install(self) -> None:
        """Handle the calls, if it does not."""
        with _overridden.lock:
            if not self.installed:
                handle(_overridden, self._handle, OPERATORS, ("",))

    def remove(self) -> None:
        """End it, if it has not ended yet; with the last one of a process, torch's dispatcher is what it was."""
        with _overridden.lock:
            if self.installed:
                end(_overridden, self._handle)

    @torch.no_grad()
    def _handle(self, name: str, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        """The result of a call; NotImplemented if it is left to torch."""
        asked = _asked(name, *map(as_plain, arguments), **{key: as_plain(x) for key, x in options.items()})
        if asked is None:
            return NotImplemented
        word = name.partition(".")[0].rstrip("_")
        reason, run = (asked, None) if isinstance(asked, str) else self._known(name, asked)
        if run is not None and not isinstance(asked, str):
            try:
                result = run(asked)
            except (TypeError, ValueError) as error:
                # Memory that a result shares with an operand, which torch refuses itself or allows.
                reason = str(error)
            else:
                self.report.replaced[word, reason] += 1
                return asked.finish(result) if asked.finish else result
        self.report.kept[word, reason] += 1
        return NotImplemented

    def _known(self, name: str, asked: Asked) -> Decided:
        """What `decide` says of a call, asked once for its signature."""
        if not runs(asked.a):
            return f"on {asked.a.device.type}, a GPU is needed, or TRITON_INTERPRET=1 before Python starts", None
        tensors = signature_of(*[x for x in asked[:-1] if x is None or isinstance(x, Tensor)])
        if tensors is None:
            return "of a tensor without memory, or of another class", None
        precision = asked.a.dtype == torch.float32 and fp32_precision()
        key = name, precision, *tensors, asked.batch, asked.dtype, asked.alpha, asked.beta
        if key not in self._decided:
            remember(self._decided, key, self.decide(asked))
        return self._decided[key]

    def decide(self, asked: Asked) -> Decided:
        """The contract of a call, or why there is none."""
        matrices = Matrices(asked.batch, asked.a, asked.b, asked.dtype, asked.out)
        chain: tuple[Applied, ...] = ()
        shape: tuple[int, ...] = ()
        if asked.added is not None:
            result = (*asked.a.shape[:-1], asked.b.shape[-1])
            chain, shape, why = addend(tuple(asked.added.shape), result, asked.alpha, asked.beta, alike=self.alike)
            if why:
                return why, None
        # Torch rounds once, what is added too.
        name = matrices.fitting(self.products, chain, ("late",))
        if name is None:
            return matrices.why_none(self.products, word_of(chain)), None
        chosen = ChosenContract(self.function(name), chain, shape)
        try:
            chosen.function.table.checked({"a": asked.a, "b": asked.b, "out": asked.out, **chosen.operands(asked)})
            copier, target, *_ = chosen.step(asked)
            if copier is None and callable(target):
                return f"{name}: torch's own product is the faster one", None
        except (RuntimeError, TypeError, ValueError) as error:
            return f"{name}: {error}", None
        return name, chosen


def runs(x: Tensor) -> bool:
    """Whether kernels run where a tensor is: on the CPU in Triton's interpreter only."""
    return bool(x.device.type != "cpu" or knobs.runtime.interpret)


def handle(shared: Any, handler: Callable[..., Any], operators: tuple[str, ...], keys: tuple[str, ...]) -> None:
    """Let calls of the operators ask the handler, at dispatch keys that begin so."""
    if shared.library is None:
        shared.library = _overriding(shared.handlers, operators, keys)
    shared.handlers.append(handler)


def end(shared: Any, handler: Callable[..., Any]) -> None:
    """Let calls no longer ask the handler."""
    shared.handlers.remove(handler)
    if not shared.handlers:
        library, shared.library = shared.library, None
        library._destroy()
        # A copy of the family that another version has rendered may have made it.
        _forget_dispatch(getattr(library, "overridden", ()))


def _forget_dispatch(operators: Iterable[str]) -> None:
    """Let torch look up again which kernels these operators of `aten` have; torch.compile and export keep that."""
    for operator in operators:
        name, _, overload = operator.partition(".")
        # A torch that keeps no such table has nothing to forget.
        getattr(getattr(getattr(torch.ops.aten, name), overload or "default"), "_dispatch_cache", {}).clear()


def _overriding(handlers: list[Callable[..., Any]], operators: tuple[str, ...], levels: tuple[str, ...]) -> Any:
    """A library in which torch's operators ask the handlers, at keys of devices that begin with one of the words."""
    keys = [f"{level}{device}" for device in ("CUDA", "CPU") for level in levels]
    # All are looked up first: a kernel for a device changes which one torch runs at that device's key of autograd.
    kernels = {}
    for place in itertools.product(keys, operators):
        # A torch without such an operator, or built without such a device, has no kernel.
        with contextlib.suppress(RuntimeError):
            kernels[place] = torch.library.get_kernel(f"aten::{place[1]}", place[0])
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        # Torch warns of every kernel that is replaced.
        warnings.simplefilter("ignore")
        for (key, name), kernel in kernels.items():
            library.impl(name, _asking(handlers, name, kernel), key, with_keyset=True)
    library.overridden = {name for _, name in kernels}
    _forget_dispatch(library.overridden)
    return library


def _asking(handlers: list[Callable[..., Any]], name: str, kernel: Any) -> Callable[..., Any]:
    """A kernel of the operator `name` that asks the handlers, and then the kernel that was there."""

    def asking(keys: Any, *arguments: Any, **options: Any) -> Any:
        for handler in reversed(handlers):
            result = handler(name, arguments, options)
            if result is not NotImplemented:
                return result
        return kernel.call_boxed(keys, *arguments, **options)

    return asking


def _asked(name: str, *arguments: Any, **options: Any) -> Asked | str | None:
    """The product of a call; None or a reason for one that is left to torch, as what torch refuses is."""
    word = name.partition(".")[0].rstrip("_")
    if word in UNKNOWN:
        return "no contract computes this operator"
    if word == "_grouped_mm":
        batch, offsets, dtype, why = torch_products.grouped(*arguments, **options)
        a, b, *_ = arguments
        return why or Asked(batch, a, b, dtype or a.dtype, offsets=offsets)
    added = None
    if word in ("addmm", "baddbmm", "addmv"):
        added, *arguments = arguments  # type: ignore[assignment]
    a, b, *more = arguments
    out: Tensor | None = options.get("out")
    dtype = more[0] if more else torch.int32 if word == "_int_mm" else options.get("out_dtype", a.dtype)
    shape = _shape(word, a, b)
    if shape is None or any(x.device != a.device or x.dtype != a.dtype for x in (b, added) if x is not None):
        return None
    # Torch gives a result the shape, or refuses it.
    target = added if name.endswith("_") else out
    if target is not None and (tuple(target.shape) != shape or target.dtype != dtype or target.device != a.device):
        return None
    vector = b.dim() == 1
    if vector:
        if added is not None:
            if tuple(added.shape) not in ((), (1,), shape):
                return None
            added = added.expand(shape).unsqueeze(1)
        a, b = a if a.dim() == 2 else a.unsqueeze(0), b.unsqueeze(1)
    # The result may be what is added, which a kernel must not read and write.
    into = target if vector or added is not None else None

    def finish(x: Tensor) -> Tensor:
        x = x.reshape(shape) if vector else x
        return x if into is None else into.copy_(x)

    out, batch = None if into is not None else out, "strided" if "bmm" in word else "none"
    alpha, beta = options.get("alpha", 1), options.get("beta", 1)
    return Asked(batch, a, b, dtype, out, added, alpha, beta, finish=finish)


def _shape(word: str, a: Tensor, b: Tensor) -> tuple[int, ...] | None:
    """The shape of the result of a product; None if the operands have others than torch allows."""
    known = {"dot": (1, 1), "mv": (2, 1), "addmv": (2, 1), "bmm": (3, 3), "baddbmm": (3, 3)}
    if (a.dim(), b.dim()) != known.get(word, (2, 2)) or a.shape[-1] != b.shape[-2 if b.dim() > 1 else 0]:
        return None
    if a.dim() == 3 and a.shape[0] != b.shape[0]:
        return None
    return (*a.shape[:-1], *(b.shape[-1:] if b.dim() > 1 else ()))
