"""The operators of this family in torch's registry, in a namespace made from the family's import path."""

from __future__ import annotations

import itertools
import re
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

# The family's import path, in the letters that torch takes; a path that it would not show has its checksum behind it.
FAMILY = __name__.rsplit(".", 2)[0]
NAMESPACE = re.sub(r"\W", "_", FAMILY.replace(".", "__"), flags=re.ASCII)
if NAMESPACE[0].isdigit():
    NAMESPACE = f"_{NAMESPACE}"
if NAMESPACE.split("__") != FAMILY.split("."):
    NAMESPACE += f"__{zlib.crc32(FAMILY.encode()):08x}"


def _library() -> tuple[str, Any]:
    """A namespace that no earlier import of the family in this process has, and its library."""
    namespace = NAMESPACE
    for number in itertools.count(2):
        library: Any = torch.library.Library(namespace, "FRAGMENT")  # type: ignore[no-untyped-call]
        try:
            # What no other import may define, which tells that the namespace is taken.
            library.define("imported() -> ()")
            return namespace, library
        except RuntimeError as error:
            if "multiple times" not in str(error):
                raise
            namespace = f"{NAMESPACE}__{number}"
    raise AssertionError


NAMESPACE, LIBRARY = _library()


def operator(name: str) -> Any:
    """A registered operator of this family; AttributeError if there is none of the name."""
    return getattr(getattr(torch.ops, NAMESPACE), name).default


def register(schema: str, run: Callable[..., Any], described: Callable[..., Any]) -> None:
    """Define an operator: what it runs, and the shapes, strides and types of its results.

    `run` and `described` take the arguments of the schema; `described` gets fake tensors.
    """
    name = LIBRARY.define(schema)
    for device in ("CUDA", "CPU"):
        LIBRARY.impl(name, run, device)
    torch.library.register_fake(f"{NAMESPACE}::{name}", described, lib=LIBRARY)


def looped(one: Callable[..., Any], info: Any, dimensions: Sequence[Any], arguments: Sequence[Any]) -> tuple[Any, Any]:
    """What a rule for torch.vmap returns: an operator's results for each of a batch, one after the other."""
    found = []
    for index in range(info.batch_size):
        each = zip(arguments, dimensions)
        found.append(one(*(x.select(place, index) if isinstance(place, int) else x for x, place in each)))
    if isinstance(found[0], torch.Tensor):
        return torch.stack(found), 0
    return tuple(map(torch.stack, zip(*found))), (0,) * len(found[0])


def loop_over_batch(name: str) -> None:
    """Register for torch.vmap, as of a Jacobian, that an operator runs for each of a batch."""
    one = operator(name)

    def rule(info: Any, dimensions: Sequence[Any], *arguments: Any) -> tuple[Any, Any]:
        return looped(one, info, dimensions, arguments)

    torch.library.register_vmap(f"{NAMESPACE}::{name}", rule, lib=LIBRARY)
