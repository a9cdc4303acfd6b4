"""Descriptors in repeated launches, as the tensor maps that the hardware reads.

Triton's launcher of a kernel with descriptors encodes each of them again for every launch. The launcher that is made
here takes encoded tensor maps, which are cached by address.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from . import private
from .descriptors import replaced


class Made:
    """Makes the argument of a launch from an address: a descriptor like the given one, or its tensor map if `mapped`.

    `meta` is what the compiler says of the descriptor.
    """

    def __init__(self, descriptor: Any, meta: Any, mapped: bool) -> None:
        # The template has no tensor: it would keep the tensor of the first call alive.
        self.blank, self.meta = replaced(descriptor, base=None), meta
        self.shape, self.strides = descriptor.shape, descriptor.strides
        # It raises AttributeError where there is none, before anything is launched.
        self.encode = _encoder() if mapped else None

    def __call__(self, address: int) -> Any:
        base = SimpleNamespace(data_ptr=lambda: address)
        made = replaced(self.blank, base=base, shape=self.shape, strides=self.strides)
        return made if self.encode is None else self.encode(made, self.meta)[0]


@functools.cache
def _encoder() -> Callable[[Any, Any], Any]:
    """Triton's function that encodes a descriptor; from 3.8 on it has a third parameter, which it does not read."""
    encode = private.tensor_map_encoder()
    unread = (None,) * (len(inspect.signature(encode).parameters) - 2)
    return lambda descriptor, meta: encode(descriptor, meta, *unread)


def launcher(compiled: Any, values: Mapping[str, Any]) -> Any:
    """The driver's launcher for the kernel's signature, with descriptors replaced by what Triton passes for them."""
    kinds = []
    for kind, value in zip(compiled.src.signature.values(), values.values()):
        if isinstance(value, private.TensorDescriptor):
            kinds += ["nvTmaDesc", *["i32"] * len(value.shape), *["i64"] * len(value.strides)]
        else:
            kinds.append(kind)
    source = SimpleNamespace(constants={}, signature=dict(enumerate(kinds)))
    return private.driver.active.launcher_cls(source, compiled.metadata._replace(tensordesc_meta=None))
