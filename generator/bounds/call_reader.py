"""The value of `CALL`, evaluated from the file's text: nothing of the file runs, and of the runtime only extents.

The only functions that the table may call are those that the file imports from `._runtime`, and that are listed here.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from generator.bounds import runtime_copy
from generator.bounds.source import NotUnderstood, Source
from generator.emit.syntax_digest import undocumented
from generator.runtime import extents
from generator.runtime.extents import Extent, Size


@dataclass(frozen=True)
class TableObject:
    """What the table makes of a class of the runtime: `kind` is the class's name; its fields are attributes."""

    kind: str
    line: int
    fields: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        if name not in self.fields:
            raise AttributeError(name)
        return self.fields[name]


@dataclass(frozen=True)
class Named:
    """A function of the file, or a type of torch, by its name."""

    name: str


Check = Callable[[Any], bool]


def _of(*types: type) -> Check:
    return lambda x: type(x) in types


def _each(check: Check) -> Check:
    return lambda x: isinstance(x, tuple) and all(map(check, x))


def _by_name(check: Check) -> Check:
    return lambda x: isinstance(x, dict) and all(map(check, x.values()))


def _kind(*kinds: str) -> Check:
    return lambda x: isinstance(x, TableObject) and x.kind in kinds


def _either(*checks: Check) -> Check:
    return lambda x: any(check(x) for check in checks)


def _extent(x: Any) -> bool:
    return type(x) is int or isinstance(x, Extent)


_TEXT, _WHOLE, _FLAG, _NAMED, _NONE = _of(str), _of(int), _of(bool), _of(Named), _of(type(None))
_SHAPE, _ROWS, _WHOLES = _each(_extent), _of(list), _each(_WHOLE)
_OPERAND = {
    "name": (_TEXT,),
    "shape": (_SHAPE,),
    "dtype": (_either(_NAMED, _each(_NAMED), _NONE), None),
    "unit": (_either(_WHOLE, _NONE), None),
    "absent": (_either(_extent, _NONE), None),
}
_RESULT = {**_OPERAND, "read": (_FLAG, False), "named": (_either(_TEXT, _NONE), None)}
_MEMORY = {**_RESULT, "pitch": (_WHOLE, 1)}
_CONDITION = _kind("Multiple", "AtMost")
_NEED = _kind("Multiple", "AtMost", "Capability", "Older", "Absent", "NotDeterministic")
_ARGUMENT = _either(_extent, _FLAG, _kind("Stride", "Index", "OnDevice", "Approximate"))

#: The classes of each module of the runtime: their parameters, each with a check and the default, where there is one.
CLASSES: Mapping[str, Mapping[str, Mapping[str, tuple[Any, ...]]]] = {
    "arguments": {
        "Stride": {"name": (_TEXT,), "dimension": (_WHOLE,)},
        "Bytes": {"name": (_TEXT,)},
        "Index": {"*names": (_TEXT,)},
        "Approximate": {},
    },
    "call": {
        "Table": {"rows": (_ROWS,)},
        "Launch": {
            "kernel": (_NAMED,),
            "grid": (_SHAPE,),
            "tensors": (_by_name(_either(_TEXT, _kind("Described", "Bytes"))),),
            "numbers": (_by_name(_ARGUMENT),),
            "constants": (_by_name(_ARGUMENT), {}),
            "configured": (_FLAG, True),
        },
        "Call": {
            "table": (_kind("Table", "Limited"),),
            "sizes": (_each(_of(Size)),),
            "operands": (_each(_kind("Operand", "Number")),),
            "results": (_each(_kind("Result")),),
            "launches": (_each(_kind("Launch")),),
            "choose": (_either(_NONE, _kind("Cheapest", "LeastSlowdown")), None),
            "needs": (_each(_NEED), ()),
            "programs": (_either(_NONE, _kind("Occupancy")), None),
            "memory": (_each(_kind("Memory", "Workspace")), ()),
            "cleared": (_each(_TEXT), ()),
            "reduced": (_each(_kind("Reduction")), ()),
            "tuner": (_either(_NONE, _kind("Tuner")), None),
        },
    },
    "call_tensors": {"Operand": _OPERAND, "Result": _RESULT},
    "choice": {
        "Cheapest": {"cost": (_NAMED,)},
        "LeastSlowdown": {"cost": (_NAMED,), "typical_m": (_WHOLES,)},
    },
    "descriptors": {
        "Described": {"name": (_TEXT,), "block": (_SHAPE,), "turned": (_FLAG, False), "made": (_FLAG, False)}
    },
    "limits": {
        "Multiple": {"extent": (_extent,), "step": (_extent,), "why": (_TEXT, "")},
        "AtMost": {"extent": (_extent,), "most": (_extent,), "why": (_TEXT,)},
        "Capability": {
            "why": (_TEXT,),
            "least": (_WHOLES, (0, 0)),
            "majors": (_WHOLES, ()),
            "inverted": (_FLAG, False),
        },
        "Older": {"version": (_WHOLES,), "why": (_TEXT,)},
        "Absent": {"name": (_TEXT,), "why": (_TEXT,)},
        "NotDeterministic": {"schedule": (_TEXT,)},
        "Limited": {"rows": (_ROWS,), "fits": (_each(_CONDITION), ()), "too_large": (_of(dict), None)},
    },
    "memory": {
        "Memory": _MEMORY,
        "Workspace": {**_MEMORY, "cleared": (_FLAG, False)},
        "Reduction": {"name": (_TEXT,), "parts": (_TEXT,), "how": (_TEXT,)},
    },
    "occupancy": {"Occupancy": {"shared": (_extent,), "registers": (_extent,), "interpreted": (_WHOLE, 3)}},
    "scalars": {"Number": {"name": (_TEXT,)}, "OnDevice": {"name": (_TEXT,)}},
    "tuner": {"Tuner": {"*reset": (_TEXT,)}},
}
_EXTENTS = {"ceil": extents.ceil, "least": extents.least, "power": extents.power}
_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def read_call(source: Source) -> TableObject:
    """The table of a file; raises `NotUnderstood` where it is none, or where `gemm` does more than pass it on."""
    found = _Reader(source).value(source.call)
    if not _kind("Call")(found):
        raise NotUnderstood(source.call.lineno, "CALL, which is no Call")
    call: TableObject = found
    names = [x.name for x in (*call.operands, *call.results)]
    passed = ", ".join(f"{name}={name}" for name in names)
    if len({*names, *(x.name for x in call.memory)}) != len(names) + len(call.memory):
        raise NotUnderstood(call.line, "two tensors of one name")
    gemm = source.function("gemm")
    match undocumented(gemm):
        case [ast.Return(ast.Call(ast.Name("CALL"), [ast.Name("config")], keywords))]:
            if ", ".join(sorted(map(ast.unparse, keywords))) == ", ".join(sorted(passed.split(", "))):
                return call
    raise NotUnderstood(gemm.lineno, "gemm, which passes what it is given to CALL")


class _Reader:
    def __init__(self, source: Source) -> None:
        self.source = source

    def value(self, node: ast.expr) -> Any:
        """The value of an expression of the table; raises `NotUnderstood`."""
        match node:
            case ast.Constant(None | bool() | int() | str()):
                return node.value
            case ast.Name(name):
                return self._name(node, name)
            case ast.Attribute(ast.Name("torch"), name):
                return Named(f"torch.{name}")
            case ast.Tuple(items):
                return tuple(x for item in items for x in self._items(item))
            case ast.Dict(keys, values):
                names = [key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
                if len(set(names)) == len(values):
                    return dict(zip(names, map(self.value, values)))
            case ast.BinOp(left, sign, right):
                return self._operation(node, type(sign), self.value(left), self.value(right))
            case ast.Call(ast.Name(name), arguments, keywords):
                positional = [x for argument in arguments for x in self._items(argument)]
                named = {str(keyword.arg): self.value(keyword.value) for keyword in keywords if keyword.arg}
                if len(named) == len(keywords):
                    return self._made(node, name, positional, named)
        raise NotUnderstood(node.lineno, ast.unparse(node))

    def _items(self, node: ast.expr) -> tuple[Any, ...]:
        if not isinstance(node, ast.Starred):
            return (self.value(node),)
        found = self.value(node.value)
        if isinstance(found, tuple):
            return found
        raise NotUnderstood(node.lineno, ast.unparse(node))

    def _name(self, node: ast.expr, name: str) -> Any:
        if name in self.source.constants:
            return self.source.constants[name]
        if name in self.source.functions:
            return Named(name)
        module = self.source.library.get(name, "")
        if module == "extents" and isinstance(size := getattr(extents, name, None), Size):
            return size
        constant = runtime_copy.constant(module, name)
        if constant is not None:
            return self.value(constant)
        raise NotUnderstood(node.lineno, f"{name}, which is nothing that ._runtime has for tables")

    def _operation(self, node: ast.expr, sign: type[ast.operator], a: Any, b: Any) -> Any:
        if _extent(a) and _extent(b):
            if sign is ast.Pow and type(a) is type(b) is int and 0 <= b < 64:
                return a**b
            if sign in _OPERATORS:
                try:
                    return _OPERATORS[sign](a, b)
                except (TypeError, ZeroDivisionError):
                    pass
        raise NotUnderstood(node.lineno, ast.unparse(node))

    def _made(self, node: ast.Call, name: str, positional: list[Any], named: dict[str, Any]) -> Any:
        module = self.source.library.get(name, "")
        if module == "extents" and name in _EXTENTS and len(positional) == 2 and not named:
            if all(map(_extent, positional)):
                return _EXTENTS[name](*positional)
        elif name in CLASSES.get(module, {}):
            fields = self._fields(CLASSES[module][name], positional, named)
            if fields is not None:
                return TableObject(name, node.lineno, fields)
        else:
            raise NotUnderstood(node.lineno, f"{name}, which is nothing that ._runtime has for tables")
        raise NotUnderstood(node.lineno, f"the arguments of {ast.unparse(node).partition('(')[0]}")

    def _fields(
        self, wanted: Mapping[str, tuple[Any, ...]], positional: list[Any], named: dict[str, Any]
    ) -> dict[str, Any] | None:
        """The fields of a class by name; None if its parameters are others."""
        if any(name.startswith("*") for name in wanted):
            ((name, (check,)),) = wanted.items()
            return {name[1:]: tuple(positional)} if not named and all(map(check, positional)) else None
        given = dict(zip(wanted, positional)) | named
        if len(given) != len(positional) + len(named) or not given.keys() <= wanted.keys():
            return None
        if not all(name in given or default for name, (_, *default) in wanted.items()):
            return None
        if not all(wanted[name][0](value) for name, value in given.items()):
            return None
        return {name: given[name] if name in given else default[0] for name, (_, *default) in wanted.items()}
