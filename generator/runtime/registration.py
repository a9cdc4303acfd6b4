"""The operators of this family in torch's registry, in a namespace made from the family's import path."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import torch

# The family's import path; a path whose parts these underscores would not show has its checksum behind it.
FAMILY = __package__.rpartition(".")[0]
NAMESPACE = FAMILY.replace(".", "__")
if NAMESPACE.split("__") != FAMILY.split("."):
    NAMESPACE += f"__{zlib.crc32(FAMILY.encode()):08x}"
LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]


def operator(name: str) -> Any:
    """A registered operator of this family; AttributeError if there is none of the name."""
    return getattr(getattr(torch.ops, NAMESPACE), name).default


def register(schema: str, run: Callable[..., Any], described: Callable[..., Any]) -> None:
    """Define an operator: what it runs, and the shapes, strides and types of its results.

    `run` and `described` take the arguments of the schema; `described` gets fake tensors.
    """
    name = LIBRARY.define(schema)  # type: ignore[no-untyped-call]
    for device in ("CUDA", "CPU"):
        LIBRARY.impl(name, run, device)  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"{NAMESPACE}::{name}", described, lib=LIBRARY)
