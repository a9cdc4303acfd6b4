"""A contract's chain in a graph of Inductor: which nodes behind a product compute it.

The chain is written with torch's functions and traced with Inductor's decompositions, so that it becomes the nodes that
a model's code becomes. They are looked for among the users of the product, through reshapes of its rows.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch._inductor.decomposition import select_decomp_table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from .torch_products import Applied

aten: Any = torch.ops.aten
#: A node of a graph, whose arguments may be anything.
AnyNode: TypeAlias = Any
#: Views that keep the order of elements.
VIEWS = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)
_CONVERT = torch.ops.prims.convert_element_type.default
_COMMUTATIVE = (aten.add.Tensor, aten.mul.Tensor)
#: The sizes of the matrices that chains are traced with.
_ROWS, _COLUMNS = 6, 10

#: Why a chain that is there is none of a contract's: its product would have to store more than its result.
READ_ELSEWHERE = "a value on the way is used elsewhere, too"

_Function = Callable[..., torch.Tensor]


def _gate(activation: _Function) -> list[_Function]:
    return [lambda gate, x: activation(gate) * x]


def _hardtanh(x: torch.Tensor, min: float = -torch.inf, max: float = torch.inf) -> torch.Tensor:
    return functional.hardtanh(x, min, max)


_gelu_tanh: _Function = functools.partial(functional.gelu, approximate="tanh")
#: Each operation as models write it; operands are positional, settings keywords.
WRITTEN: dict[str, list[_Function]] = {
    **{word: [operator.add] for word in ("bias", "bias_m", "add")},
    **{word: [operator.mul] for word in ("scale", "scale_m", "scale_n", "mul")},
    "relu": [functional.relu],
    "relu2": [lambda x: functional.relu(x).square(), lambda x: functional.relu(x) * functional.relu(x)],
    "leaky_relu": [functional.leaky_relu],
    "gelu": [functional.gelu],
    "gelu_tanh": [_gelu_tanh],
    "quick_gelu": [lambda x: x * torch.sigmoid(1.702 * x)],
    "silu": [functional.silu, lambda x: x * torch.sigmoid(x)],
    "sigmoid": [torch.sigmoid],
    "tanh": [torch.tanh],
    "softplus": [functional.softplus],
    "hardswish": [functional.hardswish],
    "clamp": [torch.clamp, _hardtanh],
    "swiglu": _gate(functional.silu),
    "geglu": _gate(functional.gelu),
    "geglu_tanh": _gate(_gelu_tanh),
    "reglu": _gate(functional.relu),
}
#: Operations that torch has no function of, so that models round between their parts, and second ways that round more.
_IN_PARTS, _FIRST_WAY = ("swiglu", "geglu", "geglu_tanh", "quick_gelu"), ("silu",)
_GATES = ("swiglu", "geglu", "geglu_tanh", "reglu")
_INTERLEAVED = ("order", "interleaved")
#: The shape of an operand by the operation: of a vector along N, of one along M, a number; others have the result's.
_ALONG_N, _ALONG_M, _NUMBERS = ("bias", "scale_n"), ("bias_m", "scale_m"), ("scale",)


def is_node(x: object) -> bool:
    """Whether an argument is a node's value."""
    return isinstance(x, torch.fx.Node)


def searched(chain: Sequence[Applied]) -> bool:
    """Whether torch has functions like those of the chain."""
    return all(step.operation in WRITTEN for step in chain)


class Found(NamedTuple):
    """A chain behind a product: its operands, the last node, and all nodes that are not needed any more."""

    operands: dict[str, Any]
    output: AnyNode
    covered: list[AnyNode]


def search(product: AnyNode, chain: Sequence[Applied], *, exact: bool = False) -> Found | str:
    """The chain behind `product`, or why it is not there; `exact`: only if it rounds where torch's functions do."""
    if exact and any(step.operation in _IN_PARTS for step in chain):
        return "torch rounds between the parts of its operations"
    gates = [index for index, step in enumerate(chain) if step.operation in _GATES]
    at = gates[0] if gates else len(chain)
    before, behind = chain[:at], chain[at:]
    why = "other operations follow"
    for first in _patterns(tuple(before), product.meta["val"].dtype, exact):
        trial = _Trial({}, {}, [])
        if not trial.matches(first, [product]):
            continue
        if not gates:
            found = trial.found(product)
            if not isinstance(found, str):
                return found
            why = found
            continue
        end = trial.last or product
        for halves in _halves(end, _INTERLEAVED in behind[0].settings):
            for second in _patterns(tuple(behind), product.meta["val"].dtype, exact):
                gated = _Trial(dict(trial.nodes), dict(trial.operands), [*trial.through, *halves.through])
                if gated.matches(second, [halves.gate, halves.x]):
                    found = gated.found(product)
                    if not isinstance(found, str):
                        return found
                    why = found
    return why


class _Pattern(NamedTuple):
    """The nodes of a chain as it was traced: where it begins, its operands with their operations, and the last node."""

    roots: list[AnyNode]
    operands: dict[AnyNode, tuple[str, str]]
    nodes: list[AnyNode]
    last: AnyNode


@functools.lru_cache(maxsize=256)
def _patterns(chain: tuple[Applied, ...], dtype: torch.dtype, exact: bool) -> list[_Pattern]:
    """The chain in each of the ways to write it; `exact`: with one rounding for each operation."""
    ways: list[list[_Function]] = [[]]
    for step in chain:
        written = WRITTEN[step.operation][: 1 if exact and step.operation in _FIRST_WAY else None]
        ways = [[*way, each] for way in ways for each in written]
    found = [_traced(chain, way, dtype) for way in ways]
    # The same nodes, written in two ways, are looked for once.
    return [*{str([(x.target, x.args, x.kwargs) for x in each.nodes]): each for each in found}.values()]


def _traced(chain: tuple[Applied, ...], functions: list[_Function], dtype: torch.dtype) -> _Pattern:
    gated = bool(chain) and chain[0].operation in _GATES
    operands = [(step.operation, name) for step in chain for name in step.operands]

    def run(*given: torch.Tensor) -> torch.Tensor:
        values, rest = list(given[: 1 + gated]), list(given[1 + gated :])
        for step, function in zip(chain, functions):
            own = [rest.pop(0) for _ in step.operands]
            settings = {name: value for name, value in step.settings if name != _INTERLEAVED[0]}
            values = [function(*values, *own, **settings)]
        return values[0]

    shapes = [(_ROWS, _COLUMNS)] * (1 + gated)
    for operation, _ in operands:
        along_n, along_m = operation in _ALONG_N, operation in _ALONG_M
        scalar = operation in _NUMBERS
        shapes.append(() if scalar else (_COLUMNS,) if along_n else (_ROWS, 1) if along_m else (_ROWS, _COLUMNS))  # type: ignore[arg-type]
    with FakeTensorMode():
        fakes = [torch.empty(shape, dtype=dtype) for shape in shapes]
        graph = make_fx(run, select_decomp_table(), tracing_mode="real")(*fakes).graph
    placeholders = graph.find_nodes(op="placeholder")
    _without_double_conversions(graph)
    (last,) = graph.output_node().args
    graph.eliminate_dead_code()
    nodes = [node for node in graph.nodes if node.op == "call_function"]
    return _Pattern(placeholders[: 1 + gated], dict(zip(placeholders[1 + gated :], operands)), nodes, last)


def _without_double_conversions(graph: torch.fx.Graph) -> None:
    """Take out conversions whose result is only converted again, as Inductor does before its passes run."""
    for node in graph.nodes:
        if node.target is not _CONVERT or not is_node(node.args[0]) or node.args[0].target is not _CONVERT:
            continue
        inner = node.args[0]
        if inner.args[1].itemsize >= node.args[1].itemsize:
            node.replace_input_with(inner, inner.args[0])


class _Halves(NamedTuple):
    gate: AnyNode
    x: AnyNode
    through: list[AnyNode]


def _halves(node: AnyNode, interleaved: bool) -> Iterator[_Halves]:
    """The two values of a gated linear unit that are taken from the columns of `node`."""
    (*_, columns) = shape_of(node)
    if not isinstance(columns, int):
        return
    slices: dict[tuple[Any, ...], AnyNode] = {}
    dim: Any
    for user in _users(node):
        dims = user.args[0].meta["val"].dim() if user.args and is_node(user.args[0]) else 0
        if user.target in (aten.split.Tensor, aten.split_with_sizes.default) and not interleaved:
            sizes: Any = user.args[1]
            dim = user.args[2] if len(user.args) > 2 else 0
            parts = {each.args[1]: each for each in user.users if each.target is operator.getitem}
            half = sizes if isinstance(sizes, int) else sizes[0]
            even = isinstance(sizes, int) or (len(sizes) == 2 and sizes[0] == sizes[1])
            if dim % dims == dims - 1 and even and half * 2 == columns and parts.keys() == {0, 1}:
                yield _Halves(parts[0], parts[1], [user])
        elif user.target is aten.slice.Tensor:
            given = [*user.args[1:]]
            dim, begin, end, step = given + [0, None, None, 1][len(given) :]
            if any(map(is_node, (begin, end, step))):
                continue
            if dim % dims == dims - 1:
                slices[begin or 0, columns if end is None else min(end, columns), step] = user
    half = columns // 2
    keys = ((0, columns, 2), (1, columns, 2)) if interleaved else ((0, half, 1), (half, columns, 1))
    if all(key in slices for key in keys):
        yield _Halves(slices[keys[0]], slices[keys[1]], [])


class _Trial:
    """A search: the graph's nodes by those of the pattern, the operands so far, and nodes that are passed through."""

    def __init__(self, nodes: dict[AnyNode, AnyNode], operands: dict[str, Any], through: list[AnyNode]) -> None:
        self.nodes, self.operands, self.through = nodes, operands, through
        self.last: AnyNode | None = None

    def matches(self, pattern: _Pattern, roots: list[AnyNode]) -> bool:
        """Whether the pattern is behind the roots."""
        self.nodes.update(zip(pattern.roots, roots))
        if not self._rest(pattern, 0):
            return False
        self.last = self.nodes[pattern.last]
        return True

    def _rest(self, pattern: _Pattern, place: int) -> bool:
        """Whether the nodes of the pattern from a place on are there; the first way that is found stays."""
        if place == len(pattern.nodes):
            return True
        node = pattern.nodes[place]
        known = next((x for x in node.all_input_nodes if x in self.nodes), None)
        if known is None:
            # A constant: it is compared where it is used.
            return self._rest(pattern, place + 1)
        for user in dict.fromkeys(_users(self.nodes[known])):
            if user.target is not node.target or user in self.nodes.values() or not self._keeps_shape(user):
                continue
            orders = [user.args]
            if node.target in _COMMUTATIVE and len(user.args) == 2:
                orders.append(user.args[::-1])
            for arguments in orders:
                kept = dict(self.nodes), dict(self.operands)
                wanted = (node.args, node.kwargs)
                if self._alike(pattern, user, wanted, (arguments, user.kwargs)):
                    self.nodes[node] = user
                    if self._rest(pattern, place + 1):
                        return True
                self.nodes, self.operands = kept
        return False

    def _keeps_shape(self, user: AnyNode) -> bool:
        """Whether the values of the chain that a node reads are not repeated to a larger shape."""
        values = self.nodes.values()
        return all(shape_of(x) == shape_of(user) for x in user.all_input_nodes if _origin(x) in values)

    def _alike(self, pattern: _Pattern, user: AnyNode, wanted: Any, given: Any) -> bool:
        """Whether an argument of `user` is that of the pattern; operands are noted."""
        if is_node(wanted):
            if wanted in self.nodes:
                return is_node(given) and _origin(given) is _origin(self.nodes[wanted])
            if wanted in pattern.operands:
                return self._operand(*pattern.operands[wanted], user, given)
            alike = is_node(given) and given.target is wanted.target
            return alike and self._alike(pattern, user, (wanted.args, wanted.kwargs), (given.args, given.kwargs))
        if isinstance(wanted, (tuple, list)):
            if not isinstance(given, (tuple, list)) or len(wanted) != len(given):
                return False
            return all(self._alike(pattern, user, x, y) for x, y in zip(wanted, given))
        if isinstance(wanted, dict):
            return wanted.keys() == given.keys() and self._alike(pattern, user, [*wanted.values()], [*given.values()])
        if isinstance(wanted, torch.device):
            return True
        return not is_node(given) and bool(wanted == given)

    def _operand(self, operation: str, name: str, user: AnyNode, given: Any) -> bool:
        """Whether a value that `user` reads can be an operand of the contract."""
        if name in self.operands:
            return self.operands[name] is given
        if not is_node(given):
            fits = operation in _NUMBERS and type(given) in (int, float)
        elif not isinstance(given.meta.get("val"), torch.Tensor):
            fits = False
        else:
            own, result = shape_of(given), shape_of(user)
            if operation in _NUMBERS:
                fits = own == () and given.meta["val"].device == user.meta["val"].device
            elif operation in _ALONG_N:
                fits = own[-1:] == result[-1:] and all(size == 1 for size in own[:-1])
            else:
                fits = own == ((*result[:-1], 1) if operation in _ALONG_M else result)
        if fits:
            self.operands[name] = given
        return fits

    def found(self, product: AnyNode) -> Found | str:
        """The chain that was found, if nothing else reads what it computes on the way."""
        output = self.last or product
        inside = {x for x in self.nodes.values() if x is not output} | {product} | set(self.through)
        covered = dict.fromkeys([product])
        waiting = [product]
        while waiting:
            node = waiting.pop()
            if node is output:
                continue
            for user in node.users:
                if user is not output and user not in inside and not _is_view(user):
                    return READ_ELSEWHERE
                covered[user] = None
                waiting.append(user)
        if output not in covered:
            return "other operations follow"
        return Found(self.operands, output, [*covered])


def _users(node: AnyNode) -> Iterator[AnyNode]:
    """The users of a value, through reshapes that keep its columns."""
    for user in node.users:
        if _is_view(user):
            yield from _users(user)
        else:
            yield user


def _is_view(node: AnyNode) -> bool:
    """Whether a node reshapes rows, and keeps columns."""
    if node.target not in VIEWS:
        return False
    (other, *_) = node.all_input_nodes
    return shape_of(node)[-1:] == shape_of(other)[-1:] != ()


def shape_of(node: AnyNode) -> tuple[int | str, ...]:
    """The shape of a node's value; a size that is known at run time only is its expression."""
    return tuple([x if isinstance(x, int) else str(x) for x in node.meta["val"].shape])


def _origin(node: AnyNode) -> AnyNode:
    """The node whose value a reshape of rows shows."""
    while _is_view(node):
        (node, *_) = node.all_input_nodes
    return node
