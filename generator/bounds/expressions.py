"""Symbolic evaluation of the kernel's expressions; each access in them is recorded."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from generator.bounds import sites, triton_semantics
from generator.bounds.choices import merged
from generator.bounds.patterns import dotted, matches
from generator.bounds.plain_arithmetic import compared
from generator.bounds.sites import ExecutionPoint, Site
from generator.bounds.source import Kind, NotUnderstood
from generator.bounds.symbolic_values import (
    TRUE,
    Called,
    CounterValue,
    Descriptor,
    Either,
    IntermediateResult,
    LaneConditions,
    LaneIntegers,
    Opaque,
    Pointer,
    Several,
    Value,
    broadcast,
    is_data,
    moved,
    reaches_memory,
)
from generator.bounds.terms import Condition, ReturnedNumber, either, equal, every, negation, of, poly, variable

#: The arguments of tl.load and tl.store that do not affect addresses.
_IDLE = frozenset({"other", "padding_option", "cache_modifier", "eviction_policy", "volatile"})
#: The operands whose elements are numbers of rows, which a kernel compares and addresses by.
NAMES = frozenset({"rows", "scatter"})
#: Expressions that bind names or run later, which are not supported.
_BINDING = (ast.NamedExpr, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Starred)


@dataclass
class Expressions:
    """The state of the symbolic execution at a place of the kernel: the values of names, and the path to it."""

    names: dict[str, Value]
    path: tuple[Condition, ...] = ()
    #: The numbers computed for the conditions of the path.
    decided: frozenset[IntermediateResult] = frozenset()
    sites: list[Site] = field(default_factory=list)

    def place(self, node: ast.expr | ast.stmt) -> ExecutionPoint:
        """The place of a node on the current path."""
        return ExecutionPoint(node.lineno, node.col_offset, self.path, self.decided)

    def value(self, node: ast.expr) -> Value:
        """The value of an expression; raises `NotUnderstood`."""
        match node:
            case ast.Constant(constant):
                return triton_semantics.constant(constant)
            case ast.Name(name):
                return self._named(name)
            case ast.Tuple(items) | ast.List(items):
                return Several(tuple(self.value(item) for item in items))
            case ast.BinOp(left, ast.BitAnd() | ast.BitOr() as operator, right):
                return self._logic(node, operator, [self.value(left), self.value(right)])
            case ast.BinOp(left, operator, right):
                return triton_semantics.operate(self.place(node), operator, self.value(left), self.value(right))
            case ast.BoolOp(boolean, parts):
                return self._logic(node, boolean, [self.value(part) for part in parts])
            case ast.UnaryOp(ast.USub(), operand):
                return triton_semantics.operate(self.place(node), ast.Sub(), LaneIntegers(poly(0)), self.value(operand))
            case ast.UnaryOp(ast.Not() | ast.Invert(), operand):
                return self._opposite(node, self.value(operand))
            case ast.Compare(ast.Name() as left, [ast.Is()], [ast.Constant(None)]):
                return self._absent(node, self.value(left))
            case ast.Compare(left, [ast.NotEq()], [ast.Constant(0.0)]) if is_data(self.value(left)):
                # A condition of which nothing is known: loads are proved for either, and no store is complete under it.
                return LaneConditions(equal(variable(f"{ast.unparse(left)} is not 0"), 1))
            case ast.Compare(left, [operator], [right]):
                return self._compare(node, operator, self.value(left), self.value(right))
            case ast.IfExp():
                return self._either(node)
            case ast.Subscript(base, index):
                return self._index(node, self.value(base), index)
            case ast.Attribute(ast.Name("tl"), name) if name in triton_semantics.DTYPES:
                return triton_semantics.DTYPES[name]
            case ast.Call():
                return self._call(node)
        return self._unknown(node)

    def _named(self, name: str) -> Value:
        value = self.names.get(name, Opaque(f"the name {name}"))
        if isinstance(value, Either) and negation(value.flag) in self.path:
            return Opaque(f"the number {name}")
        return value

    def truth(self, node: ast.expr) -> LaneConditions:
        """The condition of a branch."""
        value = self.value(node)
        if isinstance(value, LaneConditions) and not value.shape:
            return value
        raise NotUnderstood(node.lineno, f"the condition {ast.unparse(node)}, {sites.described_value(value)}")

    def under(self, condition: LaneConditions, holds: bool) -> Expressions:
        """The same state on the path where a condition holds, or does not hold."""
        taken = condition.condition if holds else negation(condition.condition)
        return Expressions(dict(self.names), (*self.path, taken), self.decided | condition.parts, self.sites)

    def _unknown(self, node: ast.expr) -> Value:
        """The value of an expression that is not followed; nothing in it may reach memory."""
        children = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        if isinstance(node, _BINDING) or any(reaches_memory(self.value(child)) for child in children):
            raise NotUnderstood(node.lineno, ast.unparse(node))
        return Opaque(ast.unparse(node))

    def _logic(self, node: ast.expr, operator: ast.operator | ast.boolop, values: list[Value]) -> Value:
        truths = [value for value in values if isinstance(value, LaneConditions)]
        shape = broadcast(truth.shape for truth in truths)
        if len(truths) < len(values) or shape is None:
            return _strange(node, values)
        joined = every if isinstance(operator, ast.And | ast.BitAnd) else either
        parts = frozenset().union(*(truth.parts for truth in truths))
        return LaneConditions(joined(truth.condition for truth in truths), shape, parts)

    def _opposite(self, node: ast.expr, value: Value) -> Value:
        if isinstance(value, LaneConditions):
            return LaneConditions(negation(value.condition), value.shape, value.parts)
        return Opaque(ast.unparse(node))

    def _absent(self, node: ast.expr, value: Value) -> Value:
        """Whether an operand that may be left out is."""
        if isinstance(value, Pointer) and not value.shape:
            return LaneConditions(equal(variable(f"{value.operand} is given"), 0))
        return self._unknown(node)

    def _compare(self, node: ast.expr, operator: ast.cmpop, a: Value, b: Value) -> Value:
        if not isinstance(a, LaneIntegers) or not isinstance(b, LaneIntegers):
            return _strange(node, [a, b])
        condition, shape = compared(operator, a.value, b.value), broadcast([a.shape, b.shape])
        if condition is None or shape is None:
            raise NotUnderstood(node.lineno, ast.unparse(node))
        return LaneConditions(condition, shape, a.parts | b.parts)

    def _either(self, node: ast.IfExp) -> Value:
        test = self.truth(node.test)
        return merged(test, self.under(test, True).value(node.body), self.under(test, False).value(node.orelse))

    def _index(self, node: ast.Subscript, base: Value, index: ast.expr) -> Value:
        """`x[:, None]`: the axes of x in a tensor with more dimensions."""
        if is_data(base):
            return base
        if not isinstance(base, LaneIntegers | LaneConditions):
            return self._unknown(node)
        items = index.elts if isinstance(index, ast.Tuple) else [index]
        sources: list[int] = []
        for dimension, item in enumerate(items):
            match item:
                case ast.Slice(None, None, None):
                    sources.append(dimension)
                case ast.Constant(None):
                    pass
                case _:
                    raise NotUnderstood(node.lineno, ast.unparse(node))
        if len(sources) != len(base.shape):
            raise NotUnderstood(node.lineno, ast.unparse(node))
        sizes = [1] * len(items)
        for dimension, size in zip(sources, base.shape):
            sizes[dimension] = size
        return moved(base, dict(enumerate(sources)), tuple(sizes))

    def _call(self, node: ast.Call) -> Value:
        text = dotted(node.func)
        if "tl" in self.names:
            raise NotUnderstood(node.lineno, "a variable tl")
        if matches(node, triton_semantics.SECOND_AXIS) and triton_semantics.SECOND_AXIS in self.names:
            return self.names[triton_semantics.SECOND_AXIS]
        if text in ("tl.load", "tl.store"):
            return self._access(node, "load" if text == "tl.load" else "store")
        if text == "tl.atomic_add":
            return self._add(node)
        if any(keyword.arg is None for keyword in node.keywords) or any(isinstance(x, ast.Starred) for x in node.args):
            raise NotUnderstood(node.lineno, ast.unparse(node))
        arguments = [self.value(argument) for argument in node.args]
        keywords = {str(keyword.arg): self.value(keyword.value) for keyword in node.keywords}
        if text in triton_semantics.FUNCTIONS and text not in self.names:
            try:
                return triton_semantics.FUNCTIONS[text](self.place(node), arguments, keywords)
            except (ValueError, IndexError) as error:
                raise NotUnderstood(node.lineno, ast.unparse(node)) from error
        called, numbers = self.names.get(text), [x for x in arguments if isinstance(x, LaneIntegers) and not x.shape]
        if isinstance(called, Called) and not keywords and len(numbers) == len(arguments):
            return _results(called, numbers)
        owner = self.value(node.func.value) if isinstance(node.func, ast.Attribute) else None
        if isinstance(owner, Descriptor) and isinstance(node.func, ast.Attribute) and not keywords and arguments:
            return self._described(node, owner, node.func.attr, arguments)
        if isinstance(owner, LaneIntegers) and isinstance(node.func, ast.Attribute) and node.func.attr == "to":
            return triton_semantics.cast(self.place(node), [owner, *arguments], keywords)
        passed = [*arguments, *keywords.values(), *([owner] if owner else [])]
        if any(map(reaches_memory, passed)) or isinstance(owner, Several):
            raise NotUnderstood(node.lineno, ast.unparse(node))
        return Opaque(ast.unparse(node))

    def _access(self, node: ast.Call, kind: Kind) -> Value:
        order = ("pointer", "mask", "other") if kind == "load" else ("pointer", "value", "mask")
        given: Mapping[str, ast.expr] = dict(zip(order, node.args)) | {str(x.arg): x.value for x in node.keywords}
        strange = set(given) - {"pointer", "value", "mask", "boundary_check"} - _IDLE
        if strange or len(node.args) > len(order) or "pointer" not in given:
            raise NotUnderstood(node.lineno, ast.unparse(node))
        # All arguments are evaluated, since an access may be inside another one.
        values = {name: self.value(value) for name, value in given.items()}
        mask, checked = values.get("mask", TRUE), values.get("boundary_check", Several(()))
        self.sites.append(sites.plain(self.place(node), kind, values["pointer"], mask, checked))
        if isinstance(pointer := values["pointer"], Pointer) and pointer.operand in NAMES:
            # Any number: what is proved of it holds in every lane.
            return LaneIntegers(variable(f"name {node.lineno}"), pointer.shape, "32")
        return Opaque(f"data of line {node.lineno}")

    def _add(self, node: ast.Call) -> Value:
        """An atomic add, which accesses memory like a store; adding 1 to a single counter returns a `CounterValue`."""
        given = dict(zip(("pointer", "value", "mask"), node.args)) | {str(x.arg): x.value for x in node.keywords}
        values = {name: self.value(value) for name, value in given.items() if name not in ("sem", "scope")}
        if set(values) - {"pointer", "value", "mask"} or not {"pointer", "value"} <= set(values) or len(node.args) > 3:
            raise NotUnderstood(node.lineno, ast.unparse(node))
        point, pointer = self.place(node), values["pointer"]
        site = sites.plain(point, "store", pointer, values.get("mask", TRUE), Several(()))
        self.sites.append(replace(site, adds=True))
        ordered = all(matches(given.get(x, node), repr(word)) for x, word in (("sem", "acq_rel"), ("scope", "gpu")))
        if isinstance(pointer, Pointer) and not pointer.shape and values["value"] == LaneIntegers(poly(1)):
            return CounterValue(pointer.operand, pointer.offset, ordered)
        return Opaque(f"data of line {node.lineno}")

    def _described(self, node: ast.Call, owner: Descriptor, method: str, arguments: list[Value]) -> Value:
        if (method, len(arguments)) not in (("load", 1), ("store", 2)):
            raise NotUnderstood(node.lineno, ast.unparse(node))
        kind: Kind = "load" if method == "load" else "store"
        self.sites.append(sites.described(self.place(node), kind, owner, arguments[0]))
        return Opaque(f"data of line {node.lineno}")


def _results(called: Called, arguments: list[LaneIntegers]) -> Several:
    values = tuple(argument.value for argument in arguments)
    parts = frozenset().union(*(argument.parts for argument in arguments))
    returned = (of(ReturnedNumber(called.function, values, at)) for at in range(2))
    return Several(tuple(LaneIntegers(number, width="32", parts=parts) for number in returned))


def _strange(node: ast.expr, values: list[Value]) -> Opaque:
    """The value of an operation on operands that are not followed, with the first operand's reason."""
    return next((value for value in values if isinstance(value, Opaque)), Opaque(ast.unparse(node)))
