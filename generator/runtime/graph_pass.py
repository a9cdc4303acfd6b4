"""Products in graphs of torch.compile, computed by this family: a pass of Inductor, `inductor.install` of the family.

The pass sees the graph that Inductor makes of a forward or backward pass, after autograd. A product that a contract
fits becomes the contract's operator, with what follows it as far as a contract has that as its chain.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
from torch._inductor import config as inductor
from torch._inductor import custom_graph_pass
from torch.fx import Graph, map_arg

from . import torch_products
from .launch import added
from .launchable import surely
from .operators import NAMESPACE, Operator, operator
from .torch_products import (
    SCALE,
    Applied,
    Installed,
    Matrices,
    Report,
    TorchProduct,
    addend,
    word_of,
)

aten: Any = torch.ops.aten
#: A node of a graph, whose arguments may be anything.
AnyNode: TypeAlias = Any
#: Views that keep the order of elements.
VIEWS = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)
#: Why a matching epilogue cannot be fused: its product would have to store more than its result.
READ_ELSEWHERE = "a value on the way is used elsewhere, too"

FASTER = "torch's own product is the faster one"
SHORT = "it takes less time than the host's call of a family's operator"

#: What a size that is known at run time only stands for: most numbers are no multiples of a tile.
_ANY = 8191

#: The operators of products, by the name that reports have.
_PRODUCTS = {
    aten.mm.default: "mm",
    aten.addmm.default: "addmm",
    aten.bmm.default: "bmm",
    aten.baddbmm.default: "baddbmm",
    aten._grouped_mm.default: "_grouped_mm",
}
_BY_NAME = {name: each for each, name in _PRODUCTS.items() if name != "_grouped_mm"}
#: The roundings of chains that fit, for each value of `rounding`; a chain that rounds nothing on the way always fits.
ROUNDINGS = {"late": ("late", "torch"), "torch": ("torch",)}

installing = threading.RLock()
# Inductor's options.
_options: Any = inductor

# A pass that is also told whether a graph is of inference, for those before it; older versions of torch have none.
_Plain: Any = custom_graph_pass.CustomGraphPass
_Aware: Any = getattr(custom_graph_pass, "CustomInferenceAwareGraphPass", _Plain)


class Found(NamedTuple):
    """A chain behind a product: its operands, the last node, and all nodes that are not needed any more."""

    operands: dict[str, Any]
    output: AnyNode
    covered: list[AnyNode]


class GraphPass(Installed, _Aware):  # type: ignore[misc]
    """The pass, which calls those that were there first; also a context manager, at whose end it is removed.

    `remove` removes it. Of several passes of families each may be removed before the others. `report` counts the
    products of graphs that Inductor compiles; one that it finds in its cache is not seen again.

    `rounding` is "late" or "torch", as `inductor.install` tells; raises ValueError for another.
    """

    def __init__(
        self, products: Mapping[str, TorchProduct], function: Callable[[str], Operator], rounding: str = "late"
    ) -> None:
        if rounding not in ROUNDINGS:
            raise ValueError(f"rounding must be one of {', '.join(ROUNDINGS)}, got {rounding!r}")
        self.report = Report()
        self.rounding = rounding
        self.before: Any = None
        # The contracts by their operators, as layers call them.
        self._own: dict[Any, str] = {}
        self.installed = False
        self._function = function
        # None for a family whose contracts have no chains. Inductor copies the pass, and no module can be copied.
        chains = added("chain_search")
        self._search: Callable[..., Found | str] | None = chains and chains.search
        self._products = {name: x for name, x in products.items() if not x.chain or chains.searched(x.chain)}
        # The longest chain first.
        self._chains = sorted(dict.fromkeys(x.chain for x in self._products.values()), key=len, reverse=True)
        self.install()

    def install(self) -> None:
        """Put it behind the passes that Inductor has, if it is not there."""
        with installing:
            # A compiled graph that Inductor finds in its cache calls these operators, and is not seen.
            for name in self._products:
                self._function(name).register()
                self._own[operator(name)] = name
            if self not in _linked():
                self.before, _options.post_grad_custom_pre_pass = _options.post_grad_custom_pre_pass, self
            self.installed = True

    def remove(self) -> None:
        """Take it out of the passes that Inductor has; one that another pass calls does nothing until that is out."""
        with installing:
            self.installed = False
            for each in _linked():
                if each.installed:
                    break
                _options.post_grad_custom_pre_pass = each.before

    def uuid(self) -> Any | None:
        """What Inductor's cache knows a graph by: the family, and the passes before; None if one of these has none."""
        others = [each.uuid() if isinstance(each, _Plain) else None for each in _passes(self.before)]
        files = tuple(sorted(map(str, Path(__file__).parent.parent.rglob("*.py"))))
        own = NAMESPACE, custom_graph_pass.get_hash_for_files(files), self.rounding, self.installed
        return None if None in others else (*own, *others)

    def __call__(self, graph: Graph, is_inference: bool = False) -> None:
        """Replace what fits in a graph."""
        for each in _passes(self.before):
            if _Aware is not _Plain and isinstance(each, _Aware):
                each(graph, is_inference=is_inference)
            else:
                each(graph)
        for node in [*graph.nodes] if self.installed else ():
            own = self._own.get(node.target) if node.op == "call_function" else None
            if own is not None and (why := _returned(graph, node, self._function(own))):
                self.report.kept[own, why] += 1
            if node.op != "call_function" or node.target not in _PRODUCTS or not node.users:
                continue
            operator = _PRODUCTS[node.target]
            try:
                replaced, why = self._replace(graph, node)
            except Exception as error:  # noqa: BLE001
                # Torch compiles the product without the pass: it asked a size that only the run knows, for example.
                replaced, why = False, f"{type(error).__name__}: {error}".partition("\n")[0]
            (self.report.replaced if replaced else self.report.kept)[operator, why] += 1

    def _replace(self, graph: Graph, node: AnyNode) -> tuple[bool, str]:
        """Replace a product, and say by what; or say why not."""
        arguments: list[Any] = [*node.args]
        term = arguments.pop(0) if "add" in _PRODUCTS[node.target] else None
        a, b, *_ = arguments
        x, y, result = a.meta["val"], b.meta["val"], node.meta["val"]
        batch, offsets, why = {2: "none", 3: "strided"}[result.dim()], None, ""
        if x.device.type not in ("cuda", "cpu") or x.dtype != y.dtype:
            why = f"operands on {x.device.type} of {x.dtype} and {y.dtype}"
        elif _PRODUCTS[node.target] == "_grouped_mm":
            batch, offsets, _, why = torch_products.grouped(x, y, *arguments[2:], **node.kwargs)
        start: tuple[Applied, ...] = ()
        if term is not None and not why:
            start, _, why = addend(shape_of(term), shape_of(node), **node.kwargs)
        if why:
            return False, why
        given = {"a": a, "b": b, **({} if offsets is None else {"offsets": offsets})}
        for each in start:
            given[each.operands[0]] = node.kwargs["alpha"] if each is SCALE else term
        matrices = Matrices(batch, x, y, result.dtype)
        reasons: list[str] = []
        apart: list[str] = []
        for chain in self._chains:
            fits = chain[: len(start)] == start
            name = matrices.fitting(self._products, chain, self._roundings(chain, start)) if fits else None
            if name is None:
                continue
            match: Found | str = Found({}, node, [node])
            if self._search is not None and len(chain) > len(start):
                exact = self.rounding == "torch" and bool(self._products[name].rounding)
                match = self._search(node, chain[len(start) :], exact=exact)
            why = match if isinstance(match, str) else self._put(graph, node, name, given | match.operands, match)
            if not why:
                self.report.apart.update([(_PRODUCTS[node.target], each) for each in apart])
                return True, name
            reasons.append(f"{name}: {why}")
            if why == READ_ELSEWHERE:
                apart.append(reasons[-1])
        # That of the shortest chain, which is what the product itself needs.
        return False, (reasons or [matrices.why_none(self._products, word_of(start))])[-1]

    def _roundings(self, chain: tuple[Applied, ...], start: tuple[Applied, ...]) -> tuple[str, ...]:
        """The roundings that fit: what `addmm` adds is not rounded before, so that a chain behind it is not, either."""
        if start:
            return ("late",) if self.rounding == "late" or len(chain) == len(start) else ()
        return ROUNDINGS[self.rounding]

    def _put(self, graph: Graph, node: AnyNode, name: str, given: dict[str, Any], match: Found) -> str:
        """Put the operator of a contract in the place of a chain; returns why not, or an empty text."""
        function, output = self._function(name), match.output
        value = output.meta["val"]
        if not _contiguous(value) or value.dtype != self._products[name].out:
            return "its result has another layout or type"
        # Of a vector for each matrix of a batch, all share the one that is found.
        dimensions = {x.name: len(x.words) - x.shared for x in function.table.operands}
        nodes = {x: each for x, each in given.items() if is_node(each)}
        short = [x for x, each in nodes.items() if dimensions[x] == 2 and each.meta["val"].dim() < 2]
        if short and self._products[name].batch.startswith("grouped"):
            return "a vector that all groups share"
        why = _why_refused(function, {x: given[x].meta["val"] for x in ("a", "b", "offsets") if x in given})
        if why:
            return why
        why = _why_torch(function, {x: each.meta["val"] for x, each in nodes.items()})
        if why:
            return why
        before = {*graph.nodes}
        with graph.inserting_before(output):
            try:
                for x, each in nodes.items():
                    if each.meta["val"].dim() != dimensions[x]:
                        given[x] = _reshaped(graph, each, _flat(each, dimensions[x], shape_of(node)))
                function.register()
                arguments = [*function.signature.packed(given), None]
                result = call = _made(graph, operator(name), arguments)
                if shape_of(call) != shape_of(output):
                    result = _reshaped(graph, call, _sizes(match, output))
            except Exception as error:  # noqa: BLE001
                # What follows the product is no operand of the contract, such as a vector of another length.
                _erase(graph, {*graph.nodes} - before)
                return str(error).partition("\n")[0]
        for key in ("stack_trace", "nn_module_stack", "source_fn_stack", "original_aten"):
            if key in output.meta:
                call.meta[key] = output.meta[key]
        output.replace_all_uses_with(result)
        _erase(graph, match.covered)
        return ""


def _returned(graph: Graph, node: AnyNode, function: Operator) -> str:
    """Put torch's product in the place of a contract's operator if it is the faster one; why, or the empty text."""
    products: Any = getattr(function.choice, "aten", None)
    known = products and products.contracts.get(function.name)
    if not known or known.operator not in _BY_NAME or not _contiguous(node.meta["val"]) or node.args[-1] is not None:
        return ""
    given = dict(zip(function.signature.places, node.args))
    values = {name: each.meta["val"] for name, each in given.items() if is_node(each)}
    added = [known.detail] if known.detail else []
    if known.precision or any(values[x].dtype != values["a"].dtype for x in added):
        return ""
    why = _why_torch(function, values)
    if not why:
        return ""
    with graph.inserting_before(node):
        call = _made(graph, _BY_NAME[known.operator], [given[x] for x in (*added, "a", "b")])
    call.meta.update({key: x for key, x in node.meta.items() if key not in call.meta})
    node.replace_all_uses_with(call)
    graph.erase_node(node)
    return why


def _why_torch(function: Operator, values: Mapping[str, Any]) -> str:
    """Why torch's product is to run in place of a contract, where it may; else the empty text."""
    products: Any = getattr(function.choice, "aten", None)
    if not products:
        return ""
    if products.prefers(function, values):
        return FASTER
    # A graph of the GPU is replayed without calls of the host.
    return "" if _options.triton.cudagraphs or not products.short(function, values) else SHORT


def is_node(x: object) -> bool:
    """Whether an argument is a node's value."""
    return isinstance(x, torch.fx.Node)


def shape_of(node: AnyNode) -> tuple[int | str, ...]:
    """The shape of a node's value; a size that is known at run time only is its expression."""
    return tuple([x if isinstance(x, int) else str(x) for x in node.meta["val"].shape])


def _linked() -> Iterator[Any]:
    """The passes of families that Inductor calls, the last one first; each family has a class of its own."""
    link = _options.post_grad_custom_pre_pass
    while hasattr(link, "installed") and hasattr(link, "before"):
        yield link
        link = link.before


def _passes(value: Any) -> Sequence[Any]:
    """The passes that an option of Inductor holds: none, one or several."""
    return () if value is None else value if isinstance(value, (list, tuple)) else (value,)


def _contiguous(x: Any) -> bool:
    """Whether a value is contiguous whatever sizes are that only the run knows: by strides that follow from sizes."""
    expected: Any = 1
    for size, stride in zip(reversed(x.shape), reversed(x.stride())):
        if not surely(stride == expected) and not surely(size == 1):
            return False
        expected = expected * size
    return True


def _why_refused(function: Operator, given: Mapping[str, Any]) -> str:
    """Why no kernel takes such operands wherever they begin and however many rows they have; empty if one does."""
    state = function.table.state(given)
    numbers = {name: x if isinstance(x, int) else _ANY for name, x in state.numbers.items()}
    state = dataclasses.replace(state, numbers=numbers)
    # A descriptor needs addresses that are multiples of 16, which a graph does not know.
    unaligned = "descriptors need operands that are aligned, which a graph does not say"
    calls = [kernel.CALL for kernel in function.modules()]
    reasons = [unaligned if call.described else call.reason(state) or "" for call in calls]
    return "" if "" in reasons else "; ".join(dict.fromkeys(reasons))


def _flat(x: AnyNode, dimensions: int, product: tuple[int | str, ...]) -> list[Any]:
    """The sizes of an operand with so many dimensions: all rows together, or those of each product of a batch."""
    if dimensions == 1:
        return [-1]
    return [-1, *(product[-2:-1] if dimensions == 3 else ()), shape_of(x)[-1]]


def _sizes(match: Found, output: AnyNode) -> list[Any]:
    """The sizes of the last node of a chain, as a reshape takes them; nodes for those that only the run knows."""
    *front, columns = shape_of(output)
    if not all(isinstance(size, int) for size in front):
        for each in match.covered:
            if each.target in VIEWS and shape_of(each)[:-1] == tuple(front):
                return [*each.args[1][:-1], columns]
    return [*front, columns]


def _reshaped(graph: Graph, x: AnyNode, sizes: list[Any]) -> AnyNode:
    """A node that reshapes `x`; raises ValueError for a size that only the run knows, and that no input is of."""
    known = {str(each.meta.get("val")): each for each in graph.find_nodes(op="placeholder")}
    sizes = [known.get(size) if isinstance(size, str) else size for size in sizes]
    if None in sizes:
        raise ValueError("a size that only the run knows")
    return _made(graph, aten.reshape.default, [x, sizes])


def _made(graph: Graph, target: Any, arguments: list[Any]) -> AnyNode:
    """A node that calls an operator, with the value that it has."""
    call = graph.call_function(target, tuple(arguments))
    call.meta["val"] = target(*map_arg(arguments, lambda x: x.meta["val"]))
    return call


def _erase(graph: Graph, nodes: Any) -> None:
    """Take those of the nodes out of the graph that nothing reads, the last first."""
    for each in reversed([each for each in graph.nodes if each in nodes]):
        if not each.users:
            graph.erase_node(each)
