"""Products in graphs of torch.compile, computed by this family: a pass of Inductor, `inductor.install` of the family.

The pass sees the graph that Inductor makes of a forward or backward pass, after autograd. A product that a contract
fits becomes the contract's operator, with what follows it as far as a contract has that as its chain.
"""

from __future__ import annotations

import hashlib
import importlib
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from torch._inductor import config as inductor
from torch._inductor import custom_graph_pass
from torch.fx import Graph

from .call import State
from .chain_search import (
    READ_ELSEWHERE,
    VIEWS,
    AnyNode,
    Found,
    aten,
    is_node,
    search,
    searched,
    shape_of,
)
from .launch import KernelModule
from .launchable import surely
from .operators import Operator
from .registration import NAMESPACE, operator
from .signatures import Signature
from .torch_products import Applied, Installed, Matrices, Report, TorchProduct, addend

#: What a size that is known at run time only stands for: most numbers are no multiples of a tile.
_ANY = 8191

#: The operators of products, by the name that reports have.
_PRODUCTS = {
    aten.mm.default: "mm",
    aten.addmm.default: "addmm",
    aten.bmm.default: "bmm",
    aten.baddbmm.default: "baddbmm",
    **({aten._grouped_mm.default: "_grouped_mm"} if hasattr(aten, "_grouped_mm") else {}),
}
#: The roundings of chains that fit, for each value of `rounding`; a chain that rounds nothing on the way always fits.
ROUNDINGS = {"late": ("late", "torch"), "torch": ("torch",)}

#: The products that Inductor makes sums of where they have one row, before a pass sees the graph.
_WHOLE = tuple(getattr(aten, name) for name in ("mm", "addmm", "bmm", "baddbmm"))

_installing = threading.RLock()
# What Inductor's tables had of those products, while passes for rows that do not depend on each other are installed.
_taken: Any = SimpleNamespace(passes=[], entries=[])
_taken = vars(custom_graph_pass).setdefault("_products_whole", _taken)  # pyright: ignore[reportAttributeAccessIssue]
# Inductor's options.
_options: Any = inductor

# A pass that is also told whether a graph is of inference, for those before it; older versions of torch have none.
_Plain: Any = custom_graph_pass.CustomGraphPass
_Aware: Any = getattr(custom_graph_pass, "CustomInferenceAwareGraphPass", None)
_Pass: Any = _Aware or _Plain


class GraphPass(Installed, _Pass):  # type: ignore[misc]
    """The pass, which calls those that were there first; also a context manager, at whose end it is removed.

    `remove` removes it. Of several passes of families each may be removed before the others. `report` counts the
    products of graphs that Inductor compiles; one that it finds in its cache is not seen again. `alike`: no contract
    depends on the number of rows, and products of one row are kept whole.
    """

    def __init__(
        self,
        products: Mapping[str, TorchProduct],
        kernels: Mapping[str, list[str]],
        load: Callable[[str], KernelModule],
        function: Callable[[str], Operator],
        rounding: str = "late",
        *,
        alike: bool = False,
    ) -> None:
        if rounding not in ROUNDINGS:
            raise ValueError(f"rounding must be one of {', '.join(ROUNDINGS)}, got {rounding!r}")
        self.report = Report()
        self.rounding = rounding
        self.before: Any = None
        self.installed = False
        self._alike = alike
        self._products = {name: x for name, x in products.items() if searched(x.chain)}
        # The longest chain first.
        self._chains = sorted(dict.fromkeys(x.chain for x in self._products.values()), key=len, reverse=True)
        self._function, self._kernels, self._load = function, kernels, load
        self._digest = ""
        self.install()

    def install(self) -> None:
        """Put it behind the passes that Inductor has, if it is not there."""
        with _installing:
            if self.installed:
                return
            # A compiled graph that Inductor finds in its cache calls these operators, and is not seen.
            for name in self._products:
                self._function(name).register()
            self.before = _options.post_grad_custom_pre_pass
            self.installed = True
            _options.post_grad_custom_pre_pass = self
            if self._alike:
                _keep_whole(self)

    def remove(self) -> None:
        """Take it out of the passes that Inductor has, if it is there."""
        with _installing:
            if not self.installed:
                return
            self.installed = False
            _leave(self)
            later, place = None, _options.post_grad_custom_pre_pass
            while place is not self and _is_family_pass(place):
                later, place = place, place.before
            if place is not self:
                # A pass that is none of a family's calls this one, which does nothing any more.
                return
            if later is None:
                _options.post_grad_custom_pre_pass = self.before
            else:
                later.before = self.before
            self.before = None

    def uuid(self) -> Any | None:
        """What Inductor's cache knows a graph by: the family, and the passes before; None if one of these has none."""
        others = [each.uuid() if isinstance(each, _Plain) else None for each in _passes(self.before)]
        if None in others:
            return None
        self._digest = self._digest or _digest()
        return ("gemm-generator", self._digest, NAMESPACE, self.rounding, self.installed, *others)

    def __call__(self, graph: Graph, is_inference: bool = False) -> None:
        """Replace what fits in a graph."""
        for each in _passes(self.before):
            if _Aware is not None and isinstance(each, _Aware):
                each(graph, is_inference=is_inference)
            else:
                each(graph)
        if not self.installed:
            return
        for node in [*graph.nodes]:
            if node.op != "call_function" or node.target not in _PRODUCTS or not node.users:
                continue
            told = _PRODUCTS[node.target]
            try:
                replaced, why = self._replace(graph, node)
            except Exception as error:  # noqa: BLE001
                # Torch compiles the product without the pass: it asked a size that only the run knows, for example.
                replaced, why = False, f"{type(error).__name__}: {error}".partition("\n")[0]
            (self.report.replaced if replaced else self.report.kept)[told, why] += 1

    def _replace(self, graph: Graph, node: AnyNode) -> tuple[bool, str]:
        """Replace a product, and say by what; or say why not."""
        product = _product_of(node)
        if isinstance(product, str):
            return False, product
        matrices, a, b, added, offsets = product
        start: tuple[Applied, ...] = ()
        if added is not None:
            options = {"alpha": 1, "beta": 1, **node.kwargs}
            start, _, why = addend(_Shaped(added), shape_of(node), options["alpha"], options["beta"])
            if why:
                return False, why
        reasons: list[str] = []
        apart: list[str] = []
        for chain in self._chains:
            if chain[: len(start)] != start:
                continue
            name = matrices.fitting(self._products, chain, self._roundings(chain, start))
            if name is None:
                continue
            exact = self.rounding == "torch" and bool(self._products[name].rounding)
            found = search(node, chain[len(start) :], exact=exact)
            if isinstance(found, str):
                reasons.append(f"{name}: {found}")
                if found == READ_ELSEWHERE:
                    apart.append(reasons[-1])
                continue
            operands: dict[str, Any] = dict(found.operands)
            if start and added is not None:
                operands[start[0].operands[0]] = added
            why = self._put(graph, node, name, (a, b, offsets), operands, found)
            if not why:
                self.report.apart.update([(_PRODUCTS[node.target], each) for each in apart])
                return True, name
            reasons.append(f"{name}: {why}")
        if reasons:
            # That of the shortest chain, which is what the product itself needs.
            return False, reasons[-1]
        return False, matrices.why_none(self._products, start[0].operation if start else "none")

    def _roundings(self, chain: tuple[Applied, ...], start: tuple[Applied, ...]) -> tuple[str, ...]:
        """The roundings that fit: what `addmm` adds is not rounded before, so that a chain behind it is not, either."""
        if start:
            return ("late",) if self.rounding == "late" or len(chain) == 1 else ()
        return ROUNDINGS[self.rounding]

    def _put(
        self,
        graph: Graph,
        node: AnyNode,
        name: str,
        given: tuple[AnyNode, AnyNode, AnyNode | None],
        operands: dict[str, Any],
        found: Found,
    ) -> str:
        """Put the operator of a contract in the place of a chain; returns why not, or an empty text."""
        function, output = self._function(name), found.output
        a, b, offsets = given
        value = output.meta["val"]
        if not _contiguous(value) or value.dtype != self._products[name].out:
            return "its result has another layout or type"
        grouped = self._products[name].batch.startswith("grouped")
        vectors = [x.name for x in function.table.operands if len(x.words) == 2]
        if grouped and any(operands[x].meta["val"].dim() < 2 for x in vectors if x in operands):
            return "a vector that all groups share"
        tensors = {"a": a, "b": b, **({} if offsets is None else {"offsets": offsets})}
        kernels = [self._load(kernel) for kernel in self._kernels[name]]
        why = _why_refused(kernels, function, {key: x.meta["val"] for key, x in tensors.items()})
        if why:
            return why
        new: list[AnyNode] = []
        with graph.inserting_before(output):
            try:
                result = call = self._call(graph, node, name, tensors | operands, new)
                if shape_of(call) != shape_of(output):
                    result = _reshaped(graph, call, _sizes(found, output), new)
            except Exception as error:  # noqa: BLE001
                # What follows the product is no operand of the contract, such as a vector of another length.
                for each in reversed(new):
                    graph.erase_node(each)
                return str(error).partition("\n")[0]
        for key in ("stack_trace", "nn_module_stack", "source_fn_stack", "original_aten"):
            if key in output.meta:
                call.meta[key] = output.meta[key]
        output.replace_all_uses_with(result)
        for each in reversed([each for each in graph.nodes if each in found.covered]):
            if not each.users:
                graph.erase_node(each)
        return ""

    def _call(self, graph: Graph, node: AnyNode, name: str, operands: dict[str, Any], new: list[AnyNode]) -> AnyNode:
        """The operator of a contract, behind nodes that give operands their shapes; `new` gets all of them."""
        function = self._function(name)
        value: AnyNode
        for x in function.table.operands:
            value = operands.get(x.name)
            if is_node(value) and value.meta["val"].dim() != len(x.words):
                operands[x.name] = _reshaped(graph, value, _flat(value, len(x.words), shape_of(node)), new)
        function.register()
        target, arguments = operator(name), _arguments(function.signature, operands)
        call = graph.call_function(target, tuple(arguments))
        new.append(call)
        call.meta["val"] = target(*[x.meta["val"] if is_node(x) else x for x in arguments])
        return call


def install(rounding: str = "late") -> GraphPass:
    """Install the pass and return it: its `report` counts what it replaced, `remove` removes it, as does `with`.

    A chain behind a product is computed in fp32 and rounded once with "late", as Inductor computes what it fuses. With
    "torch" only contracts fit that round where torch does, operation for operation. Raises ValueError for another.
    """
    family = importlib.import_module(__name__.rsplit(".", 2)[0])
    own = importlib.import_module(f"{family.__name__}._products")
    return GraphPass(own.PRODUCTS, family._KERNELS, family._kernel, family._contract, rounding, alike=own.ROWS_ALIKE)


def _keep_whole(each: GraphPass) -> None:
    """Take products out of Inductor's tables of decompositions, for a pass."""
    _taken.passes.append(each)
    # A torch without these tables decomposes products of one row, which the pass then does not see.
    holder: Any = importlib.import_module("torch._inductor.decomposition")
    tables = [getattr(holder, "decompositions", {}), getattr(holder, "fast_random_decomps", dict)()]
    for table in tables:
        for key in [x for x in table if getattr(x, "overloadpacket", None) in _WHOLE]:
            _taken.entries.append((table, key, table.pop(key)))


def _leave(each: GraphPass) -> None:
    """Put back what was taken out, if no other pass needs that."""
    if each in _taken.passes:
        _taken.passes.remove(each)
        while not _taken.passes and _taken.entries:
            table, key, decomposition = _taken.entries.pop()
            table[key] = decomposition


def _contiguous(x: Any) -> bool:
    """Whether a value is contiguous whatever sizes are that only the run knows: by strides that follow from sizes."""
    expected: Any = 1
    for size, stride in zip(reversed(x.shape), reversed(x.stride())):
        if not surely(stride == expected) and not surely(size == 1):
            return False
        expected = expected * size
    return True


class _Shaped:
    """The shape of a node's value, of which sizes are numbers or expressions."""

    def __init__(self, node: AnyNode) -> None:
        self.shape = shape_of(node)


def _is_family_pass(x: Any) -> bool:
    """Whether a pass is one of this class, which each family has for itself."""
    return type(x).__name__ == GraphPass.__name__ and hasattr(x, "before")


def _passes(value: Any) -> tuple[Any, ...]:
    """The passes that an option of Inductor holds: none, one or several."""
    return () if value is None else tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _digest() -> str:
    """A digest of the family's files, by which the pass works."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _product_of(node: AnyNode) -> tuple[Matrices, AnyNode, AnyNode, AnyNode | None, AnyNode | None] | str:
    """A product's matrices with the nodes of `a`, `b`, what is added and the offsets; or why no contract is asked."""
    arguments: list[Any] = [*node.args]
    added = arguments.pop(0) if node.target in (aten.addmm.default, aten.baddbmm.default) else None
    a, b, *more = arguments
    x, y, result = a.meta["val"], b.meta["val"], node.meta["val"]
    batch, offsets = {2: "none", 3: "strided"}[result.dim()], None
    if _PRODUCTS[node.target] == "_grouped_mm":
        options = dict(zip(("offs", "bias", "out_dtype"), more)) | node.kwargs
        offsets = options.get("offs")
        batch = {(2, 3): "grouped", (2, 2): "grouped_k"}.get((x.dim(), y.dim()), "")
        if options.get("bias") is not None:
            return "a grouped product with a bias"
        if offsets is None or not batch:
            return "groups are divided along N" if offsets is not None else "a grouped product without offsets"
    if x.device.type not in ("cuda", "cpu") or x.dtype != y.dtype:
        return f"operands on {x.device.type} of {x.dtype} and {y.dtype}"
    return Matrices(batch, x, y, result.dtype), a, b, added, offsets


def _why_refused(kernels: list[KernelModule], function: Operator, given: Mapping[str, Any]) -> str:
    """Why no kernel takes such operands wherever they begin and however many rows they have; empty if one does."""
    state = function.table.state(given)
    numbers = {name: x if isinstance(x, int) else _ANY for name, x in state.numbers.items()}
    state = State(dict(state.given), numbers, state.device, state.first)
    reasons = []
    for kernel in kernels:
        # A descriptor needs addresses that are multiples of 16, which a graph does not know.
        why = "descriptors need operands that are aligned, which a graph does not say"
        why = why if kernel.CALL.described else kernel.CALL.reason(state) or ""
        if not why:
            return ""
        reasons.append(why)
    return "; ".join(dict.fromkeys(reasons))


def _flat(x: AnyNode, dimensions: int, product: tuple[int | str, ...]) -> list[Any]:
    """The sizes of an operand with so many dimensions: all rows together, or those of each product of a batch."""
    if dimensions == 1:
        return [-1]
    return [-1, *(product[-2:-1] if dimensions == 3 else ()), shape_of(x)[-1]]


def _sizes(found: Found, output: AnyNode) -> list[Any]:
    """The sizes of the last node of a chain, as a reshape takes them; nodes for those that only the run knows."""
    *front, columns = shape_of(output)
    if not all(isinstance(size, int) for size in front):
        for each in found.covered:
            if each.target in VIEWS and shape_of(each)[:-1] == tuple(front):
                return [*each.args[1][:-1], columns]
    return [*front, columns]


def _reshaped(graph: Graph, x: AnyNode, sizes: list[Any], new: list[AnyNode]) -> AnyNode:
    """A node that reshapes `x`; raises ValueError for a size that only the run knows, and that no input is of."""
    known = {str(each.meta.get("val")): each for each in graph.find_nodes(op="placeholder")}
    sizes = [known.get(size) if isinstance(size, str) else size for size in sizes]
    if None in sizes:
        raise ValueError("a size that only the run knows")
    made = graph.call_function(aten.reshape.default, (x, sizes))
    new.append(made)
    values = [size.meta["val"] if is_node(size) else size for size in sizes]
    made.meta["val"] = aten.reshape.default(x.meta["val"], values)
    return made


def _arguments(signature: Signature, operands: Mapping[str, Any]) -> list[Any]:
    """The arguments of a contract's operator, of nodes and numbers."""
    arguments: list[Any] = [operands[x] for x in ("a", "b", *signature.tensors)]
    for x in signature.numbers:
        number = operands[x]
        arguments += [number, 0.0] if is_node(number) else [None, float(number)]
    return [*arguments, *(operands.get(x) for x in signature.optional), None]
