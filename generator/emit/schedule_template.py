"""A schedule's template, which must call the macros that do what its word says that it handles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

import jinja2
from jinja2 import nodes

from generator.language.errors import CallError
from generator.language.features import Feature
from generator.language.vocabulary import SCHEDULE

#: The macros of tile.j2 that add the products of all steps.
SUM = ("tile.begin", "tile.step", "tile.end")
_OF_SUM = (
    *(Feature.CONVERSIONS, Feature.SCALES, Feature.SPARSITY, Feature.MIXED, Feature.REGISTERS, Feature.PRECISIONS),
    *(Feature.GATES, Feature.GROUPS_OF_K, Feature.EXCHANGED, Feature.SCALED, Feature.SUMMED),
    *(Feature.BLOCKS, Feature.DESCRIPTORS),
)
_OF_CHAINS = (Feature.EPILOGUES, Feature.OUTPUTS, Feature.REDUCTIONS)
_OF_SEVERAL = (Feature.BATCHES, Feature.GROUPS, Feature.GROUPS_OF_K)


@cache
def checked(environment: jinja2.Environment, schedule: str) -> jinja2.Template:
    """The template of a schedule.

    Raises:
        CallError: There is no such template, it is not Jinja, or it does not call what its word in the vocabulary says
            that it handles.
    """
    name = f"{SCHEDULE[schedule].template or schedule}.py.j2"
    try:
        macros = frozenset(_names(environment, name))
        lacking = next(_lacking(schedule, macros), None)
        if lacking is None:
            return environment.get_template(name)
    except jinja2.TemplateNotFound as error:
        raise CallError(f"templates/{name}: there is no templates/{error.name}, which '{schedule}' needs") from None
    except jinja2.TemplateSyntaxError as error:
        raise CallError(f"templates/{error.name}:{error.lineno}: not a template: {error.message}") from None
    claim, calls = lacking
    raise CallError(f"templates/{name}: '{schedule}' handles {claim}, but the template does not call {calls}")


def _lacking(schedule: str, macros: frozenset[str]) -> Iterator[tuple[str, str]]:
    """What the schedule says that it handles without calling what does it, and what that is."""
    word = SCHEDULE[schedule]
    for feature in word.handles:
        if word.tiled and feature in _OF_SUM and not macros.issuperset(SUM):
            calls = ", ".join(each for each in SUM if each not in macros)
            yield feature.value, f"{calls} (tile.accumulate calls all three)"
        if feature in _OF_CHAINS and macros.isdisjoint({"tile.finish", "epilogue.tiles", "epilogue.elements"}):
            yield feature.value, "tile.finish"
        if feature in _OF_SEVERAL and macros.isdisjoint({"problem.program", "problem.tile"}):
            yield feature.value, "problem.program or problem.tile"
        if feature is Feature.ORDERS and "swizzle[k.swizzle]" not in macros:
            yield feature.value, "swizzle[k.swizzle]"
    if macros.isdisjoint({"tile.finish", "k.result"}):
        yield "a result of the type that the spec names", "tile.finish"


def _names(environment: jinja2.Environment, name: str, overridden: frozenset[str] = frozenset()) -> Iterator[str]:
    """What a template and those that it extends name of the values that they are given, as `tile.step`.

    Of a macro of tile.j2 this includes what it calls; blocks that are overridden are left out.
    """
    tree = _parsed(environment, name)
    blocks = list(tree.find_all(nodes.Block))
    for block in blocks:
        block.body = [] if block.name in overridden else block.body
    for read in tree.find_all(nodes.Getattr):
        if isinstance(read.node, nodes.Name):
            yield f"{read.node.name}.{read.attr}"
            yield from _macros(environment).get(read.attr, ()) if read.node.name == "tile" else ()
    for item in tree.find_all(nodes.Getitem):
        match item.node, item.arg:
            case nodes.Name(name=of), nodes.Getattr(node=nodes.Name(name=key), attr=attribute):
                yield f"{of}[{key}.{attribute}]"
    for extends in tree.find_all(nodes.Extends):
        assert isinstance(extends.template, nodes.Const)
        yield from _names(environment, extends.template.value, overridden | {block.name for block in blocks})


@cache
def _macros(environment: jinja2.Environment) -> Mapping[str, frozenset[str]]:
    """The macros of tile.j2, each with those that it calls."""
    macros = {macro.name: macro for macro in _parsed(environment, "tile.j2").find_all(nodes.Macro)}
    return {
        name: frozenset(f"tile.{called.name}" for called in macro.find_all(nodes.Name) if called.name in macros)
        for name, macro in macros.items()
    }


def _parsed(environment: jinja2.Environment, name: str) -> nodes.Template:
    assert environment.loader is not None
    source, _, _ = environment.loader.get_source(environment, name)
    return environment.parse(source, name)
