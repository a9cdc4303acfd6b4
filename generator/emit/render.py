"""Render a family's files: Python makes every decision, and Jinja templates write the text.

A template gets a `generator.lowering.view.View` (or the family's contracts) with finished names and typed values. An
undefined name raises an exception. Templates write formatted code: no formatter runs after them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import jinja2

from generator import runtime
from generator.cost import analytic, family_costs, tuned
from generator.emit import family_package
from generator.files.parent_process import end_with_parent
from generator.files.reading import with_unix_lines
from generator.language.model import Spec
from generator.language.reserved_names import TEMPLATES
from generator.language.spec import command_line, comment
from generator.lowering.docstrings import escaped, formula, operand_table, properties
from generator.lowering.gradient_lowering import GradientView
from generator.lowering.kernel_lowering import view
from generator.lowering.launcher import Launcher
from generator.lowering.lines import collected, paragraph
from generator.lowering.view import View
from generator.plan.kernels import Family, Kernel

#: The family's files other than kernels and the library: the package, the operands of its functions, layers, winners,
#: costs, and the packing of weights.
PACKAGE, OPERANDS, NN, TUNED, ANALYTIC, PACK = (
    "__init__.py",
    "_operands.py",
    "nn.py",
    "_tuned.py",
    "_analytic.py",
    "_pack.py",
)
#: The folder of the library's modules, which are copied as they are, and those that every family has.
RUNTIME = "_runtime"
_LIBRARY = Path(runtime.__file__).parent
LIBRARY = tuple(sorted(path.stem for path in _LIBRARY.glob("*.py")))
_ALWAYS = (
    *("__init__", "contracts", "functions", "cached_launch", "relaunch", "copies", "registration", "signatures"),
    *("operators", "prepare", "interpreted_bf16"),
)
#: What keeps git from changing the line ends of the family's files, and so their digests, in a checkout on Windows.
ATTRIBUTES = ".gitattributes"
ATTRIBUTES_TEXT = "*.py text eol=lf\nmanifest.json text eol=lf\n.gitattributes text eol=lf\n"

# Starting a worker costs about as much as rendering this many kernels.
_ENOUGH = 250
_CHUNK = 50

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


@cache
def templates_digest() -> str:
    """sha256 over every template's name and text."""
    digest = hashlib.sha256()
    for path in sorted(TEMPLATES.rglob("*.j2")):
        digest.update(path.relative_to(TEMPLATES).as_posix().encode() + b"\0")
        digest.update(with_unix_lines(path.read_bytes()) + b"\0")
    return digest.hexdigest()


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
    """A rendered file with another body below its head, and the digest of that."""
    start = text.index(DIGEST_LINE)
    body = change(text[text.index("\n", start) + 1 :])
    return text[:start] + DIGEST_LINE + hashlib.sha256(body.encode()).hexdigest() + "\n" + body


def kernel_source(spec: Spec, kernel: Kernel) -> str:
    """The text of one kernel's file."""
    k = view(kernel)
    template = environment().get_template(f"{kernel.variant.schedule}.py.j2")
    summary = paragraph(escaped(spec.summary))
    macros = {
        "load": _macros(k.load_template),
        "store": _macros(k.store_template),
        "pointer": _macros("load/pointer.j2"),
        "problem": _macros(k.problem_template),
        "swizzle": _macros("swizzle.j2"),
        "epilogue": _macros("epilogue.j2"),
        "tile": _macros("tile.j2"),
        "workspace": _macros("workspace.j2"),
        "math": _macros("math.j2"),
    }
    texts = {"summary": summary, "properties": properties(k), "formula": paragraph(formula(k.v))}
    body = template.render(k=k, host=_host(k), **texts, **macros)
    return with_head(spec, body)


@cache
def _macros(name: str) -> Any:
    """The macros of a template file, passed to templates: their own import of it takes longer than rendering it."""
    return environment().get_template(name).module


@dataclass(frozen=True)
class Host:
    """The parts of a file that kernels with equal launchers share."""

    #: The table of operands in the docstring, the text before the kernel, and the text after it.
    operands: str
    before: str
    after: str


_hosts: dict[tuple[object, ...], Host] = {}


def _host(k: View) -> Host:
    """The host parts of a file, rendered once for kernels that differ only in the order of tiles."""
    choice = k.autotune, k.choose, k.too_large, k.kernel.rows_alike
    key = (*(word for axis, word in k.kernel.variant.words.items() if axis != "swizzle"), *choice)
    if key not in _hosts:
        template, host = _macros("launcher.j2"), Launcher(k)
        _hosts[key] = Host(operand_table(k), template.before(host).strip("\n"), template.after(host).strip("\n"))
    return _hosts[key]


@cache
def part(indent: int, macro: Callable[..., str], *arguments: object) -> str:
    """The text of a macro, indented after its first line; rendered once for equal arguments."""
    return macro(*arguments).strip("\n").replace("\n", "\n" + " " * indent)


def package_names(family: Family) -> tuple[str, ...]:
    """The names of the family's modules other than kernels, with `/` behind the folder of those of the library."""
    modules = (NN,) if family_package.linear(family.contracts) else ()
    modules = (*modules, PACK) if family_package.weights(family) else modules
    modules = (*modules, *(f"{gradient.file}.py" for gradient in family.gradients if gradient.chained))
    modules = (*modules, TUNED) if family.measured else modules
    modules = (*modules, ANALYTIC) if family.spec.select == "fastest" else modules
    library = [f"{RUNTIME}/{name}.py" for name in runtime_modules(family)]
    return (PACKAGE, OPERANDS, *modules, *library)


def runtime_modules(family: Family) -> tuple[str, ...]:
    """The modules of `generator/runtime` that the family's functions need."""
    fastest = family.spec.select == "fastest"
    chosen = bool(family.measured) or fastest
    parts = {
        "autograd": bool(family.gradients),
        "measured_choice": bool(family.measured),
        "fitted": bool(family.measured),
        "analytic_choice": fastest,
        "spreading": chosen,
        "invariant": family.spec.rows_alike,
    }
    return (*_ALWAYS, *(name for name, needed in parts.items() if needed))


def package_source(family: Family, name: str) -> str:
    """The text of one of the files that `package_names` lists."""
    spec = family.spec
    if name.startswith(f"{RUNTIME}/"):
        body = _LIBRARY.joinpath(name.removeprefix(f"{RUNTIME}/")).read_text(encoding="utf-8")
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
            gated=family_package.gated(family) if family.measured or fastest else (),
            shapes=family_package.shapes(family),
            casts=family_package.casts(family),
            batched=family_package.batched(family),
            gradients=family_package.gradients(family),
            linear=bool(family_package.linear(family.contracts)),
            summary=summary,
            tuned=bool(family.measured),
            fastest=fastest,
            rows_alike=spec.rows_alike,
            summed=any(kernel.variant.product == "summed" for kernel in family.kernels),
        )
    elif name == OPERANDS:
        body = (
            environment()
            .get_template("operands.py.j2")
            .render(
                contracts=family_package.operands(family),
                derived=family_package.derived_extents(family),
                scale_types=family_package.scale_types(family),
            )
        )
    elif name == NN:
        linear = family_package.linear(family.contracts)
        plain = collected("PLAIN = [", [f'"{each.contract}"' for each in linear if each.plain], "]")
        body = environment().get_template("nn.py.j2").render(linear=linear, plain=plain)
    elif name == PACK:
        parts = family_package.converters(family)
        body = environment().get_template("pack.py.j2").render(contracts=family_package.weights(family), parts=parts)
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
        body = environment().get_template("gradient.py.j2").render(k=view, math=_macros("math.j2"))
    return with_head(spec, body)


def kernel_sources(spec: Spec, kernels: Sequence[Kernel]) -> Iterator[str]:
    """The text of each kernel's file in order; many kernels are rendered on all cores."""
    workers = min(os.cpu_count() or 1, len(kernels) // _ENOUGH)
    if workers < 2:
        yield from (kernel_source(spec, kernel) for kernel in kernels)
        return
    # Rendered here first, so that forked workers start with the templates compiled.
    yield kernel_source(spec, kernels[0])
    with ProcessPoolExecutor(workers, initializer=end_with_parent) as pool:
        yield from pool.map(partial(kernel_source, spec), kernels[1:], chunksize=_CHUNK)
