"""A contract's chain in a graph of Inductor: which nodes behind a product compute it.

The chain is written with torch's functions and traced with Inductor's decompositions, so that it becomes the nodes that
a model's code becomes. They are looked for among the users of the product, through reshapes of its rows.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch._inductor.decomposition import select_decomp_table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from .call import MASKS
from .graph_pass import READ_ELSEWHERE, VIEWS, AnyNode, Found, aten, is_node, shape_of
from .torch_products import Applied

_SPLITS = (aten.split.Tensor, aten.split_with_sizes.default)
_CONVERT = torch.ops.prims.convert_element_type.default
_COMMUTATIVE = (aten.add.Tensor, aten.mul.Tensor)
#: The sizes of the matrices that chains are traced with.
_ROWS, _COLUMNS = 6, 10

_Function = Callable[..., torch.Tensor]


def _gate(activation: _Function) -> list[_Function]:
    return [lambda gate, x: activation(gate) * x]


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
    "clamp": [torch.clamp, lambda x, min=-torch.inf, max=torch.inf: functional.hardtanh(x, min, max)],
    "swiglu": _gate(functional.silu),
    "geglu": _gate(functional.gelu),
    "geglu_tanh": _gate(_gelu_tanh),
    "reglu": _gate(functional.relu),
}
#: Operations that torch has no function of, so that models round between their parts, and second ways that round more.
_IN_PARTS, _FIRST_WAY = ("swiglu", "geglu", "geglu_tanh", "quick_gelu"), ("silu",)
_GATES = ("swiglu", "geglu", "geglu_tanh", "reglu")
_INTERLEAVED = ("order", "interleaved")
#: The dimensions of the result that an operand has, by its operation; none for a number, and all for the others.
_ALONG = {"bias": "n", "scale_n": "n", "bias_m": "m", "scale_m": "m", "scale": ""}


def searched(chain: Sequence[Applied]) -> bool:
    """Whether torch has functions like those of the chain."""
    return all(step.operation in WRITTEN for step in chain)


def search(product: AnyNode, chain: Sequence[Applied], *, exact: bool = False) -> Found | str:
    """The chain behind `product`, or why it is not there; `exact`: only if it rounds where torch's functions do."""
    if exact and any(step.operation in _IN_PARTS for step in chain):
        return "torch rounds between the parts of its operations"
    answer: Found | str = "other operations follow"
    for trial in _trials(product, tuple(chain), exact):
        answer = trial.matched(product)
        if not isinstance(answer, str):
            break
    return answer


def _trials(product: AnyNode, chain: tuple[Applied, ...], exact: bool) -> Iterator[_Trial]:
    """The places behind `product` that have the nodes of the chain in one of its ways, and maybe further users."""
    at = next((index for index, step in enumerate(chain) if step.operation in _GATES), len(chain))
    behind, dtype = chain[at:], product.meta["val"].dtype
    for first in _patterns(chain[:at], dtype, exact):
        for trial in _Trial(first, {first.roots[0]: product}, {}).matches():
            if not behind:
                yield trial
                continue
            parts = _parts(trial.last, _INTERLEAVED in behind[0].settings)
            for second in _patterns(behind, dtype, exact) if parts else ():
                nodes = trial.nodes | dict(zip(second.roots, parts))
                yield from _Trial(second, nodes, trial.operands).matches()


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
    traced = [_traced(chain, way, dtype) for way in ways]
    # The same nodes, written in two ways, are looked for once.
    return [*{str([(x.target, x.args, x.kwargs) for x in each.nodes]): each for each in traced}.values()]


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

    shapes: dict[str, tuple[int, ...]] = {"n": (_COLUMNS,), "m": (_ROWS, 1), "": (), "mn": (_ROWS, _COLUMNS)}
    along = ["mn"] * (1 + gated) + [_ALONG.get(operation, "mn") for operation, _ in operands]
    with FakeTensorMode():
        fakes = [torch.empty(shapes[each], dtype=dtype) for each in along]
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


def _parts(node: AnyNode, interleaved: bool) -> list[AnyNode]:
    """The two values of a gated linear unit that are taken from the columns of `node`, the gate first; or none."""
    columns = shape_of(node)[-1]
    if not isinstance(columns, int):
        return []
    half = columns // 2
    parts: dict[tuple[Any, ...], AnyNode] = {}
    for user in _users(node):
        if user.target is aten.slice.Tensor:
            given: list[Any] = [*user.args[1:]]
            dim, begin, end, step = given + [0, None, None, 1][len(given) :]
            if _is_last(user, dim) and not any(map(is_node, (begin, end, step))):
                parts[begin or 0, columns if end is None else min(end, columns), step] = user
        elif user.target in _SPLITS and _is_last(user, [*user.args, 0][2]):
            halved = [part.shape[-1] for part in user.meta["val"]] == [half, half]
            for each in user.users if halved else ():
                parts[each.args[1] * half, each.args[1] * half + half, 1] = each
    keys = ((0, columns, 2), (1, columns, 2)) if interleaved else ((0, half, 1), (half, columns, 1))
    return [parts[key] for key in keys] if parts.keys() >= {*keys} else []


def _is_last(node: AnyNode, dim: int) -> bool:
    """Whether a dimension of what the node reads is that of the columns."""
    return dim in (-1, node.args[0].meta["val"].dim() - 1)


class _Trial(NamedTuple):
    """A search for a pattern: the graph's nodes by those of the pattern, and the operands so far."""

    pattern: _Pattern
    nodes: dict[AnyNode, AnyNode]
    operands: dict[str, Any]

    @property
    def last(self) -> AnyNode:
        """The node of the chain's result, where the whole pattern was found."""
        return self.nodes[self.pattern.last]

    def matches(self) -> Iterator[_Trial]:
        """The ways in which the rest of the pattern is there."""
        matched = self.nodes
        # A constant has no inputs: it is compared where it is used.
        left = [x for x in self.pattern.nodes if x not in matched and not matched.keys().isdisjoint(x.all_input_nodes)]
        if not left:
            yield self
            return
        node = left[0]
        known = next(x for x in node.all_input_nodes if x in matched)
        for user in dict.fromkeys(_users(matched[known])):
            if user.target is not node.target or user in matched.values():
                continue
            # The values of the chain that it reads are not repeated to a larger shape.
            read = [x for x in user.all_input_nodes if _origin(x) in matched.values()]
            if any(shape_of(x) != shape_of(user) for x in read):
                continue
            exchanged = node.target in _COMMUTATIVE and len(user.args) == 2
            for arguments in (user.args, user.args[::-1]) if exchanged else (user.args,):
                trial = _Trial(self.pattern, {**matched, node: user}, dict(self.operands))
                if trial._alike(user, (node.args, node.kwargs), (arguments, user.kwargs)):
                    yield from trial.matches()

    def _alike(self, user: AnyNode, wanted: Any, given: Any) -> bool:
        """Whether an argument of `user` is that of the pattern; operands are noted."""
        if is_node(wanted):
            if wanted in self.nodes:
                return is_node(given) and _origin(given) is _origin(self.nodes[wanted])
            if wanted in self.pattern.operands:
                return self._operand(*self.pattern.operands[wanted], user, given)
            alike = is_node(given) and given.target is wanted.target
            return alike and self._alike(user, (wanted.args, wanted.kwargs), (given.args, given.kwargs))
        if isinstance(wanted, (tuple, list)):
            if not isinstance(given, (tuple, list)) or len(wanted) != len(given):
                return False
            return all(self._alike(user, x, y) for x, y in zip(wanted, given))
        if isinstance(wanted, dict):
            return wanted.keys() == given.keys() and self._alike(user, [*wanted.values()], [*given.values()])
        if isinstance(wanted, torch.device):
            return True
        return not is_node(given) and bool(wanted == given)

    def _operand(self, operation: str, name: str, user: AnyNode, given: Any) -> bool:
        """Whether a value that `user` reads can be an operand of the contract."""
        if name in self.operands:
            return self.operands[name] is given
        along, value = _ALONG.get(operation, "mn"), given.meta.get("val") if is_node(given) else None
        if value is None:
            fits = not along and type(given) in (int, float)
        elif not isinstance(value, torch.Tensor):
            fits = False
        else:
            own, result = shape_of(given), shape_of(user)
            if user.meta["val"].is_floating_point() and not (value.is_floating_point() or value.dtype in MASKS):
                fits = False
            elif not along:
                fits = own == () and value.device == user.meta["val"].device
            elif along == "n":
                fits = own[-1:] == result[-1:] and all(size == 1 for size in own[:-1])
            else:
                fits = own == ((*result[:-1], 1) if along == "m" else result)
        if fits:
            self.operands[name] = given
        return fits

    def matched(self, product: AnyNode) -> Found | str:
        """The chain that was found, if nothing else reads what it computes on the way."""
        output = self.last
        inside = {*self.nodes.values()} - {output}
        covered, waiting = dict.fromkeys([product]), [product]
        while waiting:
            node = waiting.pop()
            for user in node.users if node is not output else ():
                if user is not output and user not in inside and user.target not in _SPLITS and not _is_view(user):
                    return READ_ELSEWHERE
                covered[user] = None
                waiting.append(user)
        return Found(self.operands, output, [*covered]) if output in covered else "other operations follow"


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


def _origin(node: AnyNode) -> AnyNode:
    """The node whose value a reshape of rows shows."""
    while _is_view(node):
        (node, *_) = node.all_input_nodes
    return node
