"""What the `CALL` of a rendered file says, with symbols for sizes, tensors and the entries of a configuration.

Python evaluates the functions of `CALL` on these symbols. They see no builtins, and of the family's library a stand-in
for each function, which records what it is given. So whatever they return is made of symbols alone. Since a symbol does
not learn of `a is None`, whoever proves something also asks `strange`.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from generator.plan.extents import OPERATIONS, Amount, operation


class NotUnderstood(Exception):
    """A construct that a reader has no meaning for: whatever depends on it is not proved."""

    def __init__(self, line: int, what: str) -> None:
        self.line = line
        super().__init__(f"not understood: line {line}: {what}")


@dataclass(frozen=True)
class Tensor:
    """A tensor of a call, by its name."""

    name: str

    def stride(self, dimension: int) -> Made:
        """A stride of it."""
        return Made("stride", (self, dimension))


@dataclass(frozen=True)
class Made:
    """What a function of the family's library makes of what it is given: `index_type(a, b)`."""

    function: str
    given: tuple[Any, ...]
    options: tuple[tuple[str, Any], ...] = ()

    def __bool__(self) -> bool:
        raise TypeError(f"a condition on {self.function}")


def _stand_in(name: str) -> Callable[..., Amount | Made]:
    if name in OPERATIONS:
        return lambda left, right: operation(name, left, right)
    return lambda *given, **options: Made(name, given, tuple(sorted(options.items())))


def evaluated(function: Callable[..., Any], tensors: Collection[str]) -> Any:
    """What a function of `CALL` returns where `tensors` are tensors, and all other names numbers.

    Raises `NotUnderstood` where it asks for a condition, or for anything else that symbols do not have.
    """
    if (
        not isinstance(function, FunctionType)
        or function.__closure__
        or function.__defaults__
        or function.__kwdefaults__
    ):
        raise NotUnderstood(1, f"{function!r}, which is no function of its arguments alone")
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    known = {name: Tensor(name) if name in tensors else Amount(name) for name in names}
    library = {
        name: _stand_in(x.__name__)
        for name, x in function.__globals__.items()
        if inspect.isfunction(x) and "._runtime." in x.__module__
    }
    try:
        return FunctionType(code, {"__builtins__": {}, **library})(**known)
    except Exception as error:
        raise NotUnderstood(code.co_firstlineno, f"a function of CALL: {error}") from error


#: The constructs that a function of `CALL` may have: none of them asks what a symbol is.
_PLAIN = (
    *(ast.Lambda, ast.arguments, ast.arg, ast.Call, ast.keyword, ast.Attribute, ast.Name, ast.Constant, ast.Tuple),
    *(ast.Dict, ast.Starred, ast.BinOp, ast.operator, ast.UnaryOp, ast.USub, ast.expr_context),
)


def strange(tree: ast.expr) -> ast.AST | None:
    """The first construct in an expression that a symbol could not tell from another, or None."""
    return next((node for node in ast.walk(tree) if not isinstance(node, _PLAIN)), None)


class _Names(dict[str, Any]):
    def __missing__(self, name: str) -> Amount:
        return Amount(name)


def extents(words: str) -> tuple[Amount | int, ...]:
    """The extents that a shape names, `"M N//2"`; raises an error for other words."""
    known = _Names({name: _stand_in(name) for name in OPERATIONS})
    trees = [ast.parse(word, mode="eval") for word in words.split()]
    amounts = tuple(eval(word, {"__builtins__": {}}, known) for word in words.split())
    if any(strange(tree.body) for tree in trees) or not {type(x) for x in amounts} <= {int, Amount}:
        raise ValueError(f"the shape {words!r}")
    return amounts
