"""Formulas from Python functions: a function is called with values that record what is computed with them."""

from __future__ import annotations

import ast
import importlib
import inspect
import math
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, NoReturn

from generator.epilogue import formula as language
from generator.epilogue.constant_folding import NUMBERS
from generator.epilogue.formula import FUNCTIONS, FormulaError
from generator.epilogue.formula_code import SYNTAX
from generator.epilogue.operations import SHAPES
from generator.language.errors import CallError, nearest, shown

#: Functions of torch whose name is another than the formula language's.
_OF_TORCH = {"maximum": "max", "minimum": "min", "absolute": "abs"}
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_SHAPES = {"".join(map(str, shape)): shape for shape in SHAPES}


def _applied(symbol: str, *parts: object) -> FormulaValue:
    """A function or an operator on values and numbers; raises `FormulaError` for what the language does not have."""
    trees = list(map(_tree, parts))
    expression = ast.BinOp(trees[0], ast.Pow(), trees[1]) if symbol == "**" else SYNTAX[symbol](*trees)
    text = ast.unparse(expression)
    # Checked at each step, so that an error has the line of the step.
    whole = f"where({text}, 0, 0)" if symbol in _COMPARISONS else text
    language.parse(whole, frozenset(language.used(expression)))
    return FormulaValue(expression)


def _tree(part: object) -> ast.expr:
    if isinstance(part, FormulaValue):
        return part.tree
    if isinstance(part, bool) or not isinstance(part, int | float):
        raise FormulaError(f"expected a value of the formula or a number, found {shown(part)}", 1)
    # A subclass, such as numpy.float64, may have another text.
    number = int(part) if isinstance(part, int) else float(part)
    constant = ast.Constant(abs(number))
    return SYNTAX["negative"](constant) if math.copysign(1, number) < 0 else constant


def _both(symbol: str) -> tuple[Callable[[FormulaValue, object], FormulaValue], ...]:
    """The method of an operator, and that with its sides exchanged."""
    return lambda x, y: _applied(symbol, x, y), lambda x, y: _applied(symbol, y, x)


class FormulaValue:
    """What a traced function is called with: operators and functions of it give another value with a longer tree."""

    #: NumPy's numbers leave operators with a value to the value.
    __array_ufunc__ = None

    def __init__(self, tree: ast.expr) -> None:
        self.tree = tree

    __add__, __radd__ = _both("+")
    __sub__, __rsub__ = _both("-")
    __mul__, __rmul__ = _both("*")
    __truediv__, __rtruediv__ = _both("/")
    __pow__, __rpow__ = _both("**")
    (__lt__, __gt__), (__le__, __ge__) = _both("<"), _both("<=")
    __gt__, __ge__ = _both(">")[0], _both(">=")[0]
    __eq__, __ne__ = _both("==")[0], _both("!=")[0]  # type: ignore[assignment]

    def __neg__(self) -> FormulaValue:
        return _applied("negative", self)

    def __abs__(self) -> FormulaValue:
        return _applied("abs", self)

    def _unknown(self) -> NoReturn:
        reason = "a traced value is neither a number nor a condition; write where(condition, x, y), and"
        raise FormulaError(f"{reason} generator.formula or torch for functions: {', '.join(FUNCTIONS)}", 1)

    __bool__ = __float__ = __int__ = __index__ = _unknown

    @classmethod
    def __torch_function__(
        cls, function: Any, types: object, args: Sequence[object] = (), kwargs: Mapping[str, object] | None = None
    ) -> FormulaValue:
        name = _OF_TORCH.get(function.__name__, function.__name__)
        if name not in FUNCTIONS or kwargs:
            given = f" with {', '.join(kwargs)}" if kwargs else ""
            raise FormulaError(f"unknown function {name!r}{given}; {nearest(name, FUNCTIONS)}", 1)
        return _applied(name, *args)


class _Formula:
    """`formula(function)` is the formula of a Python function; `formula.NAME` is a function of the formula language."""

    def __call__(self, function: Callable[..., object]) -> str:
        """The text of the formula; its names are the function's parameters. Raises `CallError` with file and line."""
        return str(operation(function)["formula"])

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in FUNCTIONS:
            raise AttributeError(f"unknown function {name!r}; {nearest(name, FUNCTIONS)}")

        def function(*arguments: object) -> object:
            traced = any(isinstance(argument, FormulaValue) for argument in arguments)
            return _applied(name, *arguments) if traced else NUMBERS[name](*arguments)

        return function


formula = _Formula()


def operation(function: Callable[..., object]) -> dict[str, object]:
    """The entry of `ops` for a Python function: a default makes a parameter a scalar, a shape an operand."""
    if not isinstance(function, FunctionType):
        raise CallError(f"expected a Python function, found {shown(function)}")
    file, line = function.__code__.co_filename, function.__code__.co_firstlineno
    parameters = inspect.signature(function).parameters
    try:
        operands, scalars = _parameters(parameters)
        text = ast.unparse(_tree(function(**{name: FormulaValue(ast.Name(name)) for name in parameters})))
        language.parse(text, frozenset(parameters))
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        line = next((frame.lineno or line for frame in reversed(frames) if frame.filename == file), line)
        reason = str(error) if isinstance(error, FormulaError) else f"{type(error).__name__}: {error}"
        raise CallError(f"{file}:{line}: {function.__name__}: {reason}") from error
    return {
        "formula": text,
        **({"operands": operands} if operands else {}),
        **({"scalars": scalars} if scalars else {}),
    }


def imported_operation(module: str, name: str) -> dict[str, object]:
    """The entry of `ops` for the function `name` of a module on the path, or in the current folder."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        function = getattr(importlib.import_module(module), name)
    except Exception as error:
        raise CallError(f"{module}:{name}: {type(error).__name__}: {error}") from error
    return operation(function)


def _parameters(parameters: Mapping[str, inspect.Parameter]) -> tuple[dict[str, object], dict[str, object]]:
    operands: dict[str, object] = {}
    scalars: dict[str, object] = {}
    if language.X not in parameters:
        raise FormulaError(f"no parameter {language.X!r}, which is the running value", 1)
    for name, parameter in parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise FormulaError(f"the parameter {str(parameter)!r} has no name in a formula", 1)
        annotation = "" if parameter.annotation is parameter.empty else str(parameter.annotation)
        shape = "".join(letter for letter in annotation if letter not in "[]'\", ")
        if name in (language.X, language.GATE):
            continue
        if parameter.default is not parameter.empty:
            scalars[name] = parameter.default
        elif shape in _SHAPES and annotation:
            operands[name] = list(_SHAPES[shape])
        else:
            scalars[name] = None
    return operands, scalars
