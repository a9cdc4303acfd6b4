"""Render a family's files: Python makes every decision, and Jinja templates write the text.

A template gets a `generator.lowering.view.View` (or the family's contracts) with finished names and typed values. An
undefined name raises an exception. Templates write formatted code: no formatter runs after them.
"""

from __future__ import annotations

import ast
import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from generator import runtime
from generator.cost import analytic, family_costs, tuned
from generator.emit import family_package, schedule_template
from generator.emit.kernel_names import assignment
from generator.emit.torchao_layers import torchao_layers
from generator.files.parent_process import end_with_parent
from generator.language.model import Spec
from generator.language.reserved_names import TEMPLATES
from generator.language.spec import command_line, comment
from generator.lowering.call_table import CallTable
from generator.lowering.docstrings import escaped, formula, operand_table, properties
from generator.lowering.gradient_lowering import GradientView
from generator.lowering.kernel_lowering import view
from generator.lowering.lines import INDENT, collected, needed_entries, paragraph, tuple_of
from generator.lowering.standalone import Standalone
from generator.lowering.view import View
from generator.plan.kernels import Family, Kernel
from generator.plan.memory_needs import differing_needs_of, needs_of, needs_of_all

#: The family's files other than kernels and the library: the package, its types, what tells type checkers that it has
#: any, layers, those of torchao, the pass of Inductor, products of torch, winners, costs, the packing of weights, and
#: the shared memory of configurations.
PACKAGE, STUBS, TYPED, NN, AO, INDUCTOR, PRODUCTS, TUNED, ANALYTIC, PACK, SHARED_MEMORY = (
    "__init__.py",
    "__init__.pyi",
    "py.typed",
    "nn.py",
    "ao.py",
    "inductor.py",
    "_products.py",
    "_tuned.py",
    "_analytic.py",
    "_pack.py",
    "_shared_memory.py",
)
#: The folder of the library's modules, which are copied as they are, and those that every family has.
RUNTIME = "_runtime"
_LIBRARY = Path(runtime.__file__).parent
LIBRARY = tuple(sorted(path.stem for path in _LIBRARY.glob("*.py")))
#: Modules that others import only for families that need them by another reason (`runtime_modules`).
OPTIONAL = frozenset(
    {
        "autograd",
        "composed_products",
        "copies",
        "grouped_calls",
        "interpreted_bf16",
        "ranking",
        "recorded",
        "spreading",
        "tensor_maps",
        "turned",
        "workspaces",
    }
)
#: What keeps git from changing the line ends of the family's files, and so their digests, in a checkout on Windows.
ATTRIBUTES = ".gitattributes"
ATTRIBUTES_TEXT = "*.py text eol=lf\n*.pyi text eol=lf\nmanifest.json text eol=lf\n.gitattributes text eol=lf\n"

# Starting a worker costs about as much as rendering this many kernels.
_ENOUGH = 250
_CHUNK = 100

DIGEST_LINE = "# sha256 of the text below: "


@cache
def environment() -> jinja2.Environment:
    """The templates' environment, made once."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        auto_reload=False,
    )
    made.globals["part"] = part
    return made


def with_head(spec: Spec, body: str) -> str:
    """`body` after the spec's header, the command that renders the file, and the digest of `body`."""
    digest = hashlib.sha256(body.encode()).hexdigest()
    head = [*(comment(line) for line in spec.header), command_line(spec.path), DIGEST_LINE + digest]
    return "\n".join(head) + "\n" + body


def named_digest(text: str) -> str | None:
    """The digest that a rendered file states for its body, in the line above its docstring; None for other files."""
    body = text.find('\n"""')
    start = text.rfind("\n", 0, body) + 1
    if body < 0 or not text.startswith(DIGEST_LINE, start):
        return None
    return text[start + len(DIGEST_LINE) : body]


def body_digest(text: str) -> str | None:
    """The digest that a rendered file states, if its body still matches; None for an edited or foreign file."""
    digest = named_digest(text)
    body = text[text.find('\n"""') + 1 :]
    return digest if digest == hashlib.sha256(body.encode(errors="surrogateescape")).hexdigest() else None


def with_new_body(text: str, change: Callable[[str], str]) -> str:
    """A rendered file with another body below its head, and the digest of that.

    A file that a formatter rewrote keeps the digest that it states, by which it is known not to be as it was rendered.
    """
    start = text.index(DIGEST_LINE)
    end = text.index("\n", start) + 1
    body = change(text[end:])
    if body_digest(text) is None:
        return text[:end] + body
    return text[:start] + DIGEST_LINE + hashlib.sha256(body.encode()).hexdigest() + "\n" + body


def kernel_source(spec: Spec, kernel: Kernel) -> str:
    """The text of one kernel's file."""
    k = view(kernel)
    template = schedule_template.checked(environment(), kernel.variant.schedule)
    summary = paragraph(escaped(spec.summary))
    macros = {
        "load": _macros(k.load_template),
        "store": _macros(k.store_template),
        "pointer": _macros("load/pointer.j2"),
        "problem": _macros(k.problem_template),
        "swizzle": _macros("swizzle.j2"),
        "result": _macros(f"result/{kernel.variant.result}.j2"),
        # An order of tiles that somebody adds need not know of them.
        "of_result": [_macros(f"result/{kernel.variant.result}.j2")] if kernel.variant.symmetric else [],
        "epilogue": _macros("epilogue.j2"),
        "tile": _Shared(_macros("tile.j2")),
        "workspace": _macros("workspace.j2"),
        "math": _macros("math.j2"),
    }
    texts = {"summary": summary, "properties": properties(k), "formula": paragraph(formula(k.v))}
    alone = spec.package == "files"
    needs = needed_entries(differing_needs_of(kernel), INDENT) if alone else ()
    roles = ["gemm_kernel", *["decode_kernel"] * (k.decoding is not None), *["sum_kernel"] * k.schedule.joins]
    names = [assignment(role, kernel.name) for role in roles]
    body = template.render(k=k, host=_host(kernel, alone=alone), needs=needs, names=names, **texts, **macros)
    return with_head(spec, body)


@dataclass(frozen=True)
class _Shared:
    """Macros of which the text for a view is the same for each order of tiles, and rendered once."""

    macros: Any

    def __getattr__(self, name: str) -> Callable[..., str]:
        macro = getattr(self.macros, name)

        def text(k: View, *arguments: object, **keywords: object) -> str:
            key = (name, k.stage, arguments, *keywords.items())
            if key not in k.texts:
                k.texts[key] = macro(k, *arguments, **keywords)
            found: str = k.texts[key]
            return found

        return text


@cache
def _macros(name: str) -> Any:
    """The macros of a template file, passed to templates: their own import of it takes longer than rendering it."""
    return environment().get_template(name).module


@dataclass(frozen=True)
class Host:
    """The parts of a file that kernels with equal calls share."""

    #: The table of operands in the docstring, the imports of the family's library, and the text after the kernel.
    operands: str
    imports: tuple[str, ...]
    text: str
    #: The imports of the standard library.
    first_imports: tuple[str, ...] = ()

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules of the library that the imports are of."""
        return modules_of(self.imports)


def modules_of(imports: Sequence[str]) -> tuple[str, ...]:
    """The modules of the library that imports are of."""
    lines = [line.split()[1] for line in imports]
    return tuple(line.removeprefix(f".{RUNTIME}.") for line in lines if line.startswith("."))


_hosts: dict[tuple[object, ...], Host] = {}
_equal_hosts: dict[Host, Host] = {}


def _host(kernel: Kernel, *, alone: bool = False) -> Host:
    """The host parts of a file, rendered once for kernels that differ only in the order of tiles."""
    choice = kernel.select, len(kernel.tiles) > 1, kernel.not_offered, kernel.rows_alike, alone
    key = (*(word for axis, word in kernel.variant.words.items() if axis != "swizzle"), *choice)
    if key not in _hosts:
        k = view(kernel)
        table = CallTable(k)
        made = Standalone(table) if alone else table
        text = _macros("standalone.j2" if alone else "call.j2").text(made).strip("\n")
        first = made.first_imports if isinstance(made, Standalone) else ()
        host = Host(operand_table(k), made.imports, text, first)
        # Masks make few differences.
        _hosts[key] = _equal_hosts.setdefault(host, host)
    return _hosts[key]


@cache
def part(indent: int, macro: Callable[..., str], *arguments: object) -> str:
    """The text of a macro, indented after its first line; rendered once for equal arguments."""
    return macro(*arguments).strip("\n").replace("\n", "\n" + " " * indent)


def package_names(family: Family) -> tuple[str, ...]:
    """The names of the family's modules other than kernels, with `/` behind the folder of those of the library."""
    if family.spec.package == "files":
        return ()
    modules = (NN,) if family_package.layers(family) else ()
    modules = (*modules, AO) if torchao_layers(family) else modules
    modules = (*modules, INDUCTOR, PRODUCTS) if products(family) else modules
    modules = (*modules, PACK) if family_package.weights(family) else modules
    modules = (*modules, *(f"{gradient.file}.py" for gradient in family.gradients if gradient.chained))
    modules = (*modules, TUNED) if family.measured else modules
    modules = (*modules, ANALYTIC) if family.spec.select == "fastest" else modules
    modules = (*modules, SHARED_MEMORY) if any(map(needs_of, family.kernels)) else modules
    library = [f"{RUNTIME}/{name}.py" for name in runtime_modules(family)]
    return (PACKAGE, STUBS, TYPED, *modules, *library)


def runtime_modules(family: Family) -> tuple[str, ...]:
    """The modules of `generator/runtime` that the family's kernels and functions need, in their order there."""
    fastest = family.spec.select == "fastest"
    if family.spec.package == "files":
        return ()
    needed = {"functions" if family.spec.package == "torch" else "plain"}
    hosts = [_host(kernel) for kernel in family.kernels]
    needed |= {module for host in hosts for module in host.modules}
    views = [GradientView(x.chain, x) for x in family.gradients if x.chain and x.chained]
    needed |= {module for each in views for module in modules_of(each.imports)}
    reasons = {
        "autograd": bool(family.gradients),
        "recorded": bool(family.gradients),
        "measured_choice": bool(family.measured),
        "analytic_choice": fastest,
        "ranking": bool(family.measured) or fastest,
        "spreading": bool(family.measured) or fastest or family_package.grouped(family),
        "grouped_calls": family_package.grouped(family),
        "combine" if family.spec.package == "torch" else "combined": family_package.combines(family),
        "invariant": family.spec.rows_alike,
        "turned": bool(family_package.twins(family) or family_package.across_k(family)),
        "tensor_maps": "descriptors" in needed,
        "workspaces": workspaces(family),
        "linear": bool(family_package.linear(family.contracts)),
        "experts": family.spec.package == "torch" and any(family_package.experts(family.contracts)),
        "torchao_weights": bool(torchao_layers(family)),
        **dict.fromkeys(("graph_pass", "overriding", "torch_products"), bool(products(family))),
        "composed_products": family.spec.rows_alike and bool(products(family)),
        "pack": bool(family_package.weights(family)),
        **{f"pack_{part}": True for part in family_package.converters(family)},
        "interpreted_bf16": any("torch.bfloat16" in host.text for host in hosts),
    }
    needed |= {name for name, needs in reasons.items() if needs}
    if family.spec.package == "plain":
        needed -= {"turned", "tensor_maps", "workspaces", "linear"}
    # Rows that are alike are not copied, and nor are operands whose products are divided; a choice looks at layouts.
    divided = all(kernel.variant.products.divided for kernel in family.kernels)
    copied = family.spec.package == "torch" and not (family.spec.rows_alike or divided)
    needed |= {"copies"} if copied else set()
    waiting = list(needed)
    while waiting:
        more = imported(waiting.pop()) - needed
        needed |= more
        waiting += more
    return ("__init__", *(name for name in LIBRARY if name in needed))


def products(family: Family) -> tuple[str, ...]:
    """The contracts that compute products of torch, as entries; none if torch does not know the functions."""
    return family_package.products(family) if family.spec.package == "torch" else ()


def workspaces(family: Family) -> bool:
    """Whether calls of the family share memory, one after the other."""
    return any("    Workspace(" in _host(kernel).text for kernel in family.kernels)


@cache
def imported(name: str) -> frozenset[str]:
    """The modules of `generator/runtime` that one of them always needs: not those that a function imports on demand."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(_library_text(name))):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            found |= {node.module} if node.module else {alias.name for alias in node.names}
    return frozenset(found - OPTIONAL)


@cache
def _library_text(name: str) -> str:
    """The text of a module of `generator/runtime`."""
    return _LIBRARY.joinpath(f"{name}.py").read_text(encoding="utf-8")


def package_source(family: Family, name: str) -> str:
    """The text of one of the files that `package_names` lists."""
    spec = family.spec
    if name == TYPED:
        return ""
    if name.startswith(f"{RUNTIME}/"):
        body = _library_text(name.removeprefix(f"{RUNTIME}/").removesuffix(".py"))
    elif name == PACKAGE and spec.package == "plain":
        body = (
            environment()
            .get_template("plain_family.py.j2")
            .render(
                contracts=family_package.contracts(family),
                summary=paragraph(escaped(spec.summary)),
                tuned=bool(family.measured),
                fastest=spec.select == "fastest",
                rows_alike=spec.rows_alike,
                combines=family_package.combines(family),
            )
        )
    elif name == PACKAGE:
        template = environment().get_template("family.py.j2")
        summary = paragraph(escaped(spec.summary))
        twins = family_package.twins(family)
        fastest = spec.select == "fastest"
        body = template.render(
            contracts=family_package.contracts(family),
            twins=twins,
            turning=family_package.contiguous_k(family, twins),
            across=family_package.across_k(family).values(),
            casts=family_package.casts(family),
            batched=family_package.batched(family),
            additive=family_package.additive(family),
            gradients=family_package.gradients(family),
            modules_on_demand=["nn"] * family_package.layers(family)
            + ["ao"] * bool(torchao_layers(family))
            + ["inductor"] * bool(products(family)),
            products=bool(products(family)),
            combines=family_package.combines(family),
            summary=summary,
            tuned=bool(family.measured),
            fastest=fastest,
            rows_alike=spec.rows_alike,
            workspaces=workspaces(family),
            summed=any(kernel.variant.product == "summed" for kernel in family.kernels),
        )
    elif name == STUBS:
        body = (
            environment()
            .get_template("stubs.pyi.j2")
            .render(
                plain=spec.package == "plain",
                layers=family_package.layers(family),
                torchao=bool(torchao_layers(family)),
                products=bool(products(family)),
                combines=family_package.combines(family),
                stubs=family_package.stubs(family),
            )
        )
    elif name == NN:
        linear = family_package.linear(family.contracts)
        plain = collected("PLAIN[:] = [", [f'"{each.contract}"' for each in linear if each.plain], "]")
        alike = family_package.alike(linear)
        gated, down = family_package.experts(family.contracts)
        listed = {"linear": linear, "plain": plain, "alike": alike, "gated": gated, "down": down}
        body = environment().get_template("nn.py.j2").render(listed)
    elif name == AO:
        layers = torchao_layers(family)
        rows = any("Stored(" in entry for entry in layers)
        body = environment().get_template("ao.py.j2").render(layers=layers, rows=rows, name=spec.name)
    elif name == INDUCTOR:
        body = environment().get_template("inductor.py.j2").render()
    elif name == PRODUCTS:
        entries = products(family)
        chained = "applied(" in str(entries)
        template = environment().get_template("products.py.j2")
        body = template.render(products=entries, chained=chained, rows_alike=spec.rows_alike)
    elif name == SHARED_MEMORY:
        needed = [
            (tuple_of([f'"{name}"' for name in names], 2 * INDENT), needed_entries(needs, 3 * INDENT))
            for names, needs in needs_of_all(family.kernels)
        ]
        body = environment().get_template("shared_memory.py.j2").render(needed=needed)
    elif name == PACK:
        body = pack_source(family_package.weights(family), family_package.converters(family))
    elif name == TUNED:
        typical = analytic.TYPICAL_M if spec.rows_alike else ()
        body = environment().get_template("tuned.py.j2").render(baked=tuned.bake(family), typical_m=typical)
    elif name == ANALYTIC:
        typical = analytic.TYPICAL_M if spec.rows_alike else ()
        costs = family_costs.family_costs(family)
        not_for = [collected(f'"{how}": {{', [f'"{x}"' for x in targets], "}", 4) for how, targets in costs.not_for]
        body = environment().get_template("analytic.py.j2").render(costs=costs, not_for=not_for, typical_m=typical)
    else:
        gradient = next(each for each in family.gradients if f"{each.file}.py" == name)
        assert gradient.chain is not None
        view = GradientView(gradient.chain, gradient)
        macros = {"math": _macros("math.j2"), "problem": _macros(view.problem_template)}
        named = {"name": gradient.file, "named": assignment("gradient_kernel", gradient.file)}
        body = environment().get_template("gradient.py.j2").render(k=view, **named, **macros)
    return with_head(spec, body)


def pack_source(contracts: Sequence[str], converters: Sequence[str]) -> str:
    """The text of `_pack.py` for contracts, as entries, and for keys of `CONVERTERS`."""
    public = ["CONTRACTS", "Element", "Stored", "dequantize", "quantize"]
    imports = [f"from .{RUNTIME}.pack import {', '.join(public)}"]
    for part in sorted(converters):
        names = family_package.CONVERTING[part]
        imports.append(f"from .{RUNTIME}.pack_{part} import {', '.join(names)}")
        public += names
    shown = collected("__all__ = [", [f'"{name}"' for name in public], "]")
    return environment().get_template("pack.py.j2").render(contracts=contracts, imports=imports, names=shown)


def kernel_sources(spec: Spec, kernels: Sequence[Kernel]) -> Iterator[str]:
    """The text of each kernel's file in order; many kernels are rendered on all cores."""
    workers = min(os.cpu_count() or 1, len(kernels) // _ENOUGH)
    if workers < 2:
        yield from (kernel_source(spec, kernel) for kernel in kernels)
        return
    # Rendered here first, so that forked workers start with the templates compiled.
    yield kernel_source(spec, kernels[0])
    with ProcessPoolExecutor(workers, initializer=end_with_parent) as pool:
        # Only so many at a time as keep the workers busy: the writing of files may be slower than they are.
        waiting: deque[Future[list[str]]] = deque()
        for start in range(1, len(kernels), _CHUNK):
            waiting.append(pool.submit(_sources, spec, kernels[start : start + _CHUNK]))
            if len(waiting) > 2 * workers:
                yield from waiting.popleft().result()
        for each in waiting:
            yield from each.result()


def _sources(spec: Spec, kernels: Sequence[Kernel]) -> list[str]:
    return [kernel_source(spec, kernel) for kernel in kernels]
