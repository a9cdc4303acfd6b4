"""The files of a family besides its kernels: which ones it has, and their texts.

They are the package with its types, layers, tables, what words of the key `with` bring, and the library's modules.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache

from generator.cost import analytic, family_costs, torch_operators, tuned
from generator.emit import family_package, render
from generator.emit.additions import has, suits, torchao_layers
from generator.lowering.docstrings import escaped
from generator.lowering.gradient_lowering import GradientView
from generator.lowering.lines import INDENT, WIDTH, bracketed, collected, import_of, needed_entries, paragraph, tuple_of
from generator.lowering.runtime_values import called
from generator.plan.kernels import Family
from generator.plan.memory_needs import needs_of, needs_of_all


def package_names(family: Family) -> tuple[str, ...]:
    """The names of the family's modules other than kernels, with `/` behind the folder of those of the library."""
    if family.spec.package == "files":
        return ()
    modules = {
        render.NN: layers(family),
        render.AO: has(family, "torchao"),
        render.INDUCTOR: has(family, "inductor"),
        render.PRODUCTS: has(family, "inductor") or has(family, "aten"),
        render.PACK: bool(family_package.weights(family)),
        **{f"{gradient.file}.py": True for gradient in family.gradients if gradient.chained},
        render.TUNED: bool(family.measured),
        render.ANALYTIC: family.spec.select == "fastest",
        render.BACKENDS: bool(torch_operators.operators(family)),
        render.SHARED_MEMORY: any(map(needs_of, family.kernels)),
    }
    library = [f"{render.RUNTIME}/{name}.py" for name in runtime_modules(family)]
    return (render.PACKAGE, render.STUBS, render.TYPED, *(name for name, there in modules.items() if there), *library)


def runtime_modules(family: Family) -> tuple[str, ...]:
    """The modules of `generator/runtime` that the family's kernels and functions need, in their order there."""
    torch = family.spec.package == "torch"
    needed = {"operators"} if torch else {"launch"}
    hosts = [render.host_of(kernel) for kernel in family.kernels]
    views = [GradientView(x.chain, x) for x in family.gradients if x.chain and x.chained]
    imports = [*(host.imports for host in hosts), *(each.imports for each in views)]
    needed |= {module for each in imports for module in render.modules_of(each)}
    reasons = {
        "autograd": bool(family.gradients),
        "differentiable": bool(family.gradients),
        "chains": bool(views),
        "selected_rows": bool(family.gradients) and any("absent=" in host.text for host in hosts),
        "measured_choice": bool(family.measured),
        "analytic_choice": family.spec.select == "fastest",
        "ranking": ranked(family),
        "copies": copies(family),
        "aten_product": bool(torch_operators.operators(family)),
        "fast": torch and (ranked(family) or bool(family.gradients) or family.spec.select == "autotune"),
        "spreading": ranked(family),
        "combine" if torch else "combined": family_package.combines(family),
        "invariant": family.spec.rows_alike,
        "workspaces": workspaces(family),
        "linear": torch and bool(family_package.linear(family.contracts)),
        "main_grad": torch and layers(family) and bool(family_package.accumulating(family.contracts)),
        **{module: has(family, word) for module, word in _ADDED.items()},
        "composed_products": family.spec.rows_alike and has(family, "aten"),
        "chain_search": has(family, "inductor") and "applied(" in str(family_package.products(family)),
        "whole_rows": family.spec.rows_alike and has(family, "inductor"),
        "pack": bool(family_package.weights(family)),
        **{f"pack_{part}": True for part in family_package.converters(family)},
        "interpreted_bf16": any("torch.bfloat16" in host.text for host in hosts),
    }
    needed |= {name for name, needs in reasons.items() if needs}
    waiting = list(needed)
    while waiting:
        more = imported(waiting.pop()) - needed
        needed |= more
        waiting += more
    return ("__init__", *(name for name in render.LIBRARY if name in needed))


def ranked(family: Family) -> bool:
    """Whether measurements or a cost model choose among the kernels of the family."""
    return bool(family.measured) or family.spec.select == "fastest"


def copies(family: Family) -> bool:
    """Whether calls copy operands where that is faster: not where rows are alike, nor where products are divided."""
    divided = all(kernel.variant.products.divided for kernel in family.kernels)
    return family.spec.package == "torch" and ranked(family) and not (family.spec.rows_alike or divided)


#: The modules of the library that words of the key `with` bring, each with its word.
_ADDED = {
    "graph_pass": "inductor",
    "overriding": "aten",
    "prepare": "prepare",
    "sharding": "dtensor",
    "experts": "experts",
    "torchao_weights": "torchao",
}


def _lacking(family: Family) -> str:
    """What the family has where the key `with` has another word, by the name of the attribute, as a dictionary."""
    words = {"inductor": "inductor", "override_aten": "aten", "ao": "torchao"}
    entries = [f'"{name}": "{word}"' for name, word in words.items() if not has(family, word)]
    entries += ['"nn": "experts"'] if suits(family, "experts") and not layers(family) else []
    return f"{{{', '.join(entries)}}}" if entries else ""


def layers(family: Family) -> bool:
    """Whether the family has `nn`: contracts of linear layers, or experts."""
    linear = family.spec.package == "torch" and bool(family_package.linear(family.contracts))
    return linear or has(family, "experts")


def workspaces(family: Family) -> bool:
    """Whether calls of the family share memory, one after the other."""
    return any("    Workspace(" in render.host_of(kernel).text for kernel in family.kernels)


@cache
def imported(name: str) -> frozenset[str]:
    """The modules of `generator/runtime` that one of them needs: those that a family may lack are imported by name."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(_library_text(name))):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            modules |= {node.module} if node.module else {alias.name for alias in node.names}
    return frozenset(modules)


@cache
def _library_text(name: str) -> str:
    """The text of a module of `generator/runtime`."""
    return render.LIBRARY_FOLDER.joinpath(f"{name}.py").read_text(encoding="utf-8")


def _filled(template: str, **values: object) -> str:
    return render.environment().get_template(template).render(values)


def package_source(family: Family, name: str) -> str:
    """The text of one of the files that `package_names` lists."""
    spec = family.spec
    if name == render.TYPED:
        return ""
    if name.startswith(f"{render.RUNTIME}/"):
        body = _library_text(name.removeprefix(f"{render.RUNTIME}/").removesuffix(".py"))
    elif name == render.PACKAGE:
        copying, flags = copies(family), _flags(family)
        plain = flags["plain"]
        twins = family_package.twins(family) if copying else {}
        modules = {"nn": "layers", "ao": "torchao", "inductor": "inductor"}
        body = _filled(
            "family.py.j2",
            contracts=family_package.contracts(family),
            **flags,
            copies=copying,
            twins=twins,
            turning=family_package.contiguous_k(family, twins),
            across=family_package.across_k(family).values() if copying else (),
            casts=() if plain else family_package.casts(family),
            batched=() if plain else family_package.batched(family),
            additive=family_package.additive(family) if has(family, "dtensor") else "",
            gradients=family_package.gradients(family),
            ranked=ranked(family),
            modules_on_demand=[module for module, flag in modules.items() if flags[flag]],
            lacks="" if plain else _lacking(family),
            summary=paragraph(escaped(spec.summary)),
            tuned=bool(family.measured),
            fastest=spec.select == "fastest",
            rows_alike=spec.rows_alike,
            typical_m=analytic.TYPICAL_M if spec.rows_alike else (),
            aten=bool(torch_operators.operators(family)),
            summed=any(kernel.variant.product == "summed" for kernel in family.kernels),
        )
    elif name == render.STUBS:
        body = _filled("stubs.pyi.j2", **_flags(family), stubs=family_package.stubs(family))
    elif name == render.NN:
        linear = family_package.linear(family.contracts)
        gated, down = family_package.experts(family.contracts) if has(family, "experts") else ((), ())
        own: list[str] = []
        for x in linear:
            head, items = f'"{x.contract}": (', [f"torch.{x.dtype}", str(x.bias), f'"{x.more}"']
            one = f"{head}{', '.join(items)})"
            own.append(f"{one}," if len(one) < WIDTH - 2 * INDENT else called(head, items, "),"))
        adding = family_package.accumulating(family.contracts) if linear else ()
        # Layers of a family that may have experts tell which word brings them.
        lacks = suits(family, "experts") and not gated
        body = _filled("nn.py.j2", linear=own, gated=gated, down=down, lacks=lacks, adding=adding)
    elif name == render.AO:
        stored = torchao_layers(family)
        body = _filled("ao.py.j2", layers=stored, rows="Stored(" in str(stored), name=spec.name)
    elif name == render.INDUCTOR:
        body = _filled("inductor.py.j2")
    elif name == render.PRODUCTS:
        entries = family_package.products(family)
        body = _filled("products.py.j2", products=entries, chained="applied(" in str(entries))
    elif name == render.BACKENDS:
        body = _backends(family)
    elif name == render.SHARED_MEMORY:
        needed = [
            (tuple_of([f'"{name}"' for name in names], 2 * INDENT), needed_entries(needs, 3 * INDENT))
            for names, needs in needs_of_all(family.kernels)
        ]
        body = _filled("shared_memory.py.j2", needed=needed)
    elif name == render.PACK:
        body = pack_source(family_package.weights(family), family_package.converters(family))
    elif name == render.TUNED:
        body = _filled("tuned.py.j2", baked=tuned.bake(family), rows_alike=spec.rows_alike)
    elif name == render.ANALYTIC:
        costs = family_costs.family_costs(family)
        not_for = [collected(f'"{how}": {{', [f'"{x}"' for x in own], "}", 4) for how, own in costs.not_for.items()]
        body = _filled("analytic.py.j2", costs=costs, not_for=not_for)
    else:
        gradient = next(each for each in family.gradients if f"{each.file}.py" == name)
        assert gradient.chain is not None
        view = GradientView(gradient.chain, gradient)
        macros = {"math": render.macros_of("math.j2"), "problem": render.macros_of(view.problem_template)}
        text = view.text.replace("gradient_kernel", gradient.file)
        body = _filled("gradient.py.j2", k=view, name=gradient.file, text=text, **macros)
    return render.with_head(spec, body, render.ALIKE_LINE if render.is_alike(name) else None)


def _flags(family: Family) -> dict[str, bool]:
    """What a package has beside the functions of contracts, for its text and for that of its types."""
    return {
        "plain": family.spec.package == "plain",
        "layers": layers(family),
        "torchao": has(family, "torchao"),
        "inductor": has(family, "inductor"),
        "overrides": has(family, "aten"),
        "prepare": has(family, "prepare"),
        "combines": family_package.combines(family),
        "workspaces": workspaces(family),
    }


def _backends(family: Family) -> str:
    """The text of `_backends.py`, without its head."""
    contracts = torch_operators.operators(family)
    entries = []
    for each in contracts:
        words = [each.operator, each.detail, each.rule, each.measured]
        parts = [f'"{word}"' for word in words] + [f'precision="{each.precision}"'] * bool(each.precision)
        entries.append(bracketed(f'"{each.contract}": AtenOperator(', parts, "),", INDENT))
    sizes = [(*key, tuple(own.items())) for key, own in torch_operators.measured(family, contracts).items()]
    rules = []
    for key, rule in torch_operators.rules(family, contracts).items():
        steps = [(name, limit, *(x if isinstance(x, int) else f'"{x}"' for x in after)) for name, limit, *after in rule]
        rules.append((*key, steps))
    return _filled("backends.py.j2", contracts=entries, measured=sizes, rules=rules)


def pack_source(contracts: Sequence[str], converters: Sequence[str]) -> str:
    """The text of `_pack.py` for contracts, as entries, and for keys of `CONVERTERS`."""
    public = ["CONTRACTS", "Element", "Stored", "dequantize", "quantize"]
    imports = [import_of(f".{render.RUNTIME}.pack", public)]
    for part in sorted(converters):
        names = family_package.CONVERTING[part]
        imports.append(import_of(f".{render.RUNTIME}.pack_{part}", names))
        public += names
    # Constants first, then classes, then functions, as linters sort them.
    public.sort(key=lambda name: (not name.isupper(), name[0].islower(), name))
    shown = collected("__all__ = [", [f'"{name}"' for name in public], "]")
    return _filled("pack.py.j2", contracts=contracts, imports=imports, names=shown)
