"""Modules that a family has where the key `with` of its spec asks for them."""

from __future__ import annotations

import importlib
from typing import Any


def added(name: str) -> Any:
    """A module of the library; None if the family has none of that name."""
    try:
        return importlib.import_module(f".{name}", __package__)
    except ModuleNotFoundError as error:
        if error.name != f"{__package__}.{name}":
            raise
        return None
