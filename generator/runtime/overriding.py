"""Torch's products in eager mode, computed by this family: `override_aten` of the family.

The kernels of torch's operators are replaced in its dispatcher, below autograd, autocast and transforms. A call that no
contract fits runs the kernel that was there. For a family whose rows do not depend on each other, operators that torch
makes of these products are made of them in one way for every number of rows (`composed_products`).
"""

# Triton has no type hints.
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import contextlib
import importlib
import itertools
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton import knobs

from .alignment import repeats
from .launch import Function, kind_of, remember
from .launchable import is_plain
from .torch_calls import as_plain
from .torch_products import (
    Applied,
    Installed,
    Matrices,
    Report,
    TorchProduct,
    addend,
    fp32_precision,
    letters,
)

#: The operators that are replaced; torch makes `linear`, `matmul`, `@` and `einsum` of them.
OPERATORS = tuple(
    f"{name}{overload}"
    for name, overloads in {
        "mm": ("", ".out", ".dtype", ".dtype_out"),
        "addmm": ("", ".out", "_"),
        "bmm": ("", ".out", ".dtype", ".dtype_out"),
        "baddbmm": ("", ".out", "_"),
        "mv": ("", ".out"),
        "addmv": ("", ".out", "_"),
        "dot": ("", ".out"),
        "_int_mm": ("", ".out"),
        "_grouped_mm": ("",),
        # These are reported as left to torch.
        "_addmm_activation": ("", ".out"),
        "_scaled_mm": ("", ".out"),
        "_scaled_grouped_mm": ("",),
    }.items()
    for overload in overloads
)
#: Those of them that no contract computes.
UNKNOWN = ("_addmm_activation", "_scaled_mm", "_scaled_grouped_mm")


def _shared(name: str) -> Any:
    """What is one for all families of a process: the handlers of calls, the newest last, and the library that asks."""
    shared = SimpleNamespace(lock=threading.RLock(), handlers=[], library=None)
    return vars(torch.library).setdefault(name, shared)  # pyright: ignore[reportAttributeAccessIssue]


_overridden, _composing = _shared("_products_overridden"), _shared("_products_composed")


class _Asked(NamedTuple):
    """A call of an operator as a product: `finish` makes the operator's result of it."""

    batch: str
    a: Tensor
    b: Tensor
    dtype: torch.dtype
    out: Tensor | None
    finish: Callable[[Tensor], Tensor]
    added: Tensor | None = None
    alpha: float = 1
    beta: float = 1
    offsets: Tensor | None = None


class _Decided(NamedTuple):
    """The contract of a call, or why there is none; `copied`: what repeats a matrix over a batch is copied first.

    What is added is `operand`, with this shape. `outer`: each element is one product, which torch multiplies.
    """

    told: str
    function: Function | None = None
    operand: str = ""
    shape: tuple[int, ...] | None = None
    copied: bool = False
    outer: bool = False


class Override(Installed):
    """Torch's products while a family computes them; also a context manager, at whose end they are torch's again.

    `remove` ends it. Of several, those of other families too, the newest is asked first, and each may end before the
    others. `report` counts the calls.
    """

    def __init__(
        self, products: Mapping[str, TorchProduct], function: Callable[[str], Function], *, alike: bool = False
    ) -> None:
        """`alike`: the number of rows has no part in what the contracts compute, and shall have none in a model."""
        self.report = Report()
        self._products, self._function, self._alike = products, function, alike
        # Families with `invariant: rows` alone have the module.
        self._composed: Any = importlib.import_module(".composed_products", __package__) if alike else None
        self._types = {(x.a, x.b) for x in products.values()}
        self._decided: dict[tuple[object, ...], _Decided] = {}
        # Bound methods are made anew each time.
        self._handler, self._composer = self._handle, self._compose
        self.install()

    @property
    def installed(self) -> bool:
        """Whether calls are handled now."""
        return self._handler in _overridden.handlers

    def install(self) -> None:
        """Handle the calls, if it does not."""
        with _overridden.lock:
            if self.installed:
                return
            _install(_overridden, self._handler, OPERATORS, ("",))
            if self._alike:
                _install(_composing, self._composer, self._composed.OPERATORS, ("", "Autograd"))

    def remove(self) -> None:
        """End it, if it has not ended yet; with the last one of a process, torch's dispatcher is what it was."""
        with _overridden.lock:
            if self.installed:
                _remove(_overridden, self._handler)
                if self._alike:
                    _remove(_composing, self._composer)

    def _compose(self, name: str, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        """The result of an operator that is made of products; NotImplemented if torch shall make it."""
        operands = self._composed.operands(name, arguments, options)
        first = operands[0] if operands else None
        if not isinstance(first, Tensor) or (first.dtype, first.dtype) not in self._types or not _runs(first):
            return NotImplemented
        if not all(is_plain(x) and x.dtype == first.dtype and x.device == first.device for x in operands):
            return NotImplemented
        return self._composed.composed(name, arguments, options)

    def _handle(self, name: str, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        """The result of a call; NotImplemented if it is left to torch."""
        asked = _asked(name, *arguments, **options)
        if asked is None:
            return NotImplemented
        word = name.partition(".")[0].rstrip("_")
        if isinstance(asked, str):
            self.report.kept[word, asked] += 1
            return NotImplemented
        if not _runs(asked.a):
            self.report.kept[
                word, f"on {asked.a.device.type}, a GPU is needed, or TRITON_INTERPRET=1 before Python starts"
            ] += 1
            return NotImplemented
        a, b, added, out = (as_plain(x) for x in (asked.a, asked.b, asked.added, asked.out))
        with torch.no_grad():
            set_to = torch.are_deterministic_algorithms_enabled(), a.dtype == torch.float32 and fp32_precision()
            kinds = map(kind_of, (a, b, added, out, asked.offsets))
            key = name, asked.batch, asked.dtype, asked.alpha, asked.beta, *set_to, *kinds
            if key not in self._decided:
                remember(self._decided, key, self._decide(asked._replace(a=a, b=b, added=added, out=out)))
            told, function, operand, shape, copied, outer = self._decided[key]
            if outer:
                self.report.replaced[word, told] += 1
                return asked.finish(a * b)
            if function is None:
                self.report.kept[word, told] += 1
                return NotImplemented
            operands: dict[str, Any] = {} if asked.offsets is None else {"offsets": asked.offsets}
            if added is not None and shape is not None:
                operands[operand] = _shaped(added, shape)
            if copied:
                a, b = _apart(a), _apart(b)
            try:
                found: Any = function.direct(a, b, out, None, operands)
            except (TypeError, ValueError) as error:
                # Memory that a result shares with an operand, which torch refuses itself or allows.
                self.report.kept[word, str(error)] += 1
                return NotImplemented
            self.report.replaced[word, told] += 1
            return asked.finish(found)

    def _decide(self, asked: _Asked) -> _Decided:
        """The contract of a call, and how it is called; or why there is none."""
        matrices = Matrices(asked.batch, asked.a, asked.b, asked.dtype, asked.out)
        chain: tuple[Applied, ...] = ()
        shape, why = None, ""
        if asked.added is not None:
            result = (*asked.a.shape[:-1], asked.b.shape[-1])
            chain, shape, why = addend(asked.added, result, asked.alpha, asked.beta, alike=self._alike)
        if why:
            return _Decided(why)
        # Torch rounds once, what is added too.
        name = matrices.fitting(self._products, chain, ("late",))
        one = asked.a.shape[-1] == 1 and asked.a.dtype == asked.dtype and asked.dtype.is_floating_point
        if name is None and self._alike and one and asked.added is None and asked.out is None and asked.offsets is None:
            # Such as angles of rotary embeddings, often of a type of their own.
            return _Decided("K is 1: elementwise", outer=True)
        if name is None:
            return _Decided(matrices.why_none(self._products, chain[0].operation if chain else "none"))
        function, operand = self._function(name), chain[0].operands[0] if chain else ""
        operands: dict[str, Any] = {} if asked.offsets is None else {"offsets": asked.offsets}
        copied = False
        try:
            if asked.added is not None and shape is not None:
                operands[operand] = _shaped(asked.added, shape)
            function.table.checked({"a": asked.a, "b": asked.b, "out": asked.out, **operands})
            step = function.step(asked.a, asked.b, asked.out, operands)
            if self._alike and (repeats(asked.a) or repeats(asked.b)):
                # A batch of one repeats nothing, and shall run the same kernel.
                copied = function.step(_apart(asked.a), _apart(asked.b), asked.out, operands) != step
        except (RuntimeError, TypeError, ValueError) as error:
            return _Decided(f"{name}: {error}")
        return _Decided(name, function, operand, shape, copied)


def _runs(x: Tensor) -> bool:
    """Whether kernels run where a tensor is: on the CPU in Triton's interpreter only."""
    return bool(x.device.type != "cpu" or knobs.runtime.interpret)


def _install(shared: Any, handler: Callable[..., Any], operators: tuple[str, ...], keys: tuple[str, ...]) -> None:
    """Let calls of the operators ask the handler, at dispatch keys that begin so."""
    if shared.library is None:
        shared.library = _overriding(shared.handlers, operators, keys)
    shared.handlers.append(handler)


def _remove(shared: Any, handler: Callable[..., Any]) -> None:
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
            found = handler(name, arguments, options)
            if found is not NotImplemented:
                return found
        return kernel.call_boxed(keys, *arguments, **options)

    return asking


def _asked(name: str, *arguments: Any, **options: Any) -> _Asked | str | None:
    """The product of a call; None or a reason for one that is left to torch, as what torch refuses is."""
    word = name.partition(".")[0].rstrip("_")
    if word == "_grouped_mm":
        return _grouped(*arguments, **options)
    if word in UNKNOWN:
        return "no contract computes this operator"
    added = None
    if word in ("addmm", "baddbmm", "addmv"):
        added, *arguments = arguments  # type: ignore[assignment]
    a, b, *more = arguments
    out: Tensor | None = options.get("out")
    dtype: torch.dtype = more[0] if more else options.get("out_dtype", a.dtype)
    if word == "_int_mm":
        dtype = torch.int32
    shape, finish = _shape(word, a, b), _unchanged
    if shape is None or any(x.device != a.device or x.dtype != a.dtype for x in (b, added) if x is not None):
        return None
    if out is not None and (tuple(out.shape) != shape or out.dtype != dtype or out.device != a.device):
        # Torch gives it the shape, or refuses it.
        return None
    target = added if name.endswith("_") else out
    if b.dim() == 1:
        if added is not None:
            if tuple(added.shape) not in ((), (1,), shape):
                return None
            added = added.expand(shape).unsqueeze(1)
        a, b, finish, out = a if a.dim() == 2 else a.unsqueeze(0), b.unsqueeze(1), lambda x: x.reshape(shape), None
    if target is not None and (added is not None or len(shape) < 2):
        # The result may be what is added, which a kernel must not read and write.
        if tuple(target.shape) != shape:
            return None
        into, made = target, finish
        out, finish = None, lambda x: into.copy_(made(x))
    alpha, beta = options.get("alpha", 1), options.get("beta", 1)
    return _Asked("strided" if "bmm" in word else "none", a, b, dtype, out, finish, added, alpha, beta)


def _shape(word: str, a: Tensor, b: Tensor) -> tuple[int, ...] | None:
    """The shape of the result of a product; None if the operands have others than torch allows."""
    known = {"dot": (1, 1), "mv": (2, 1), "addmv": (2, 1), "bmm": (3, 3), "baddbmm": (3, 3)}
    if (a.dim(), b.dim()) != known.get(word, (2, 2)) or a.shape[-1] != b.shape[-2 if b.dim() > 1 else 0]:
        return None
    if a.dim() == 3 and a.shape[0] != b.shape[0]:
        return None
    return (*a.shape[:-1], *(b.shape[-1:] if b.dim() > 1 else ()))


def _grouped(
    a: Tensor,
    b: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> _Asked | str | None:
    """As `_asked`, of a grouped product."""
    if bias is not None:
        return "a grouped product with a bias"
    dtype = out_dtype or a.dtype
    batch = {(2, 3): "grouped", (2, 2): "grouped_k"}.get((a.dim(), b.dim()))
    if offs is None or batch is None:
        return "groups are divided along N" if offs is not None else "a grouped product without offsets"
    return _Asked(batch, a, b, dtype, None, _unchanged, offsets=offs)


def _unchanged(x: Tensor) -> Tensor:
    return x


def _shaped(added: Tensor, shape: tuple[int, ...]) -> Tensor:
    """What is added to a product, in the shape of its operand."""
    return added.reshape(shape) if len(shape) == 1 or tuple(added.shape) == shape else added.expand(shape).contiguous()


def _apart(x: Tensor) -> Tensor:
    """A copy of the same layout if one matrix is repeated over a batch."""
    if not repeats(x):
        return x
    return x.mT.contiguous().mT if letters(x)[0] == "c" else x.contiguous()
