"""What became of every mutation, as a page in Markdown that is the same wherever it is made."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from generator.verify.jobs import LEVELS, Failure

from .levels import Fate
from .mutation import Mutation

PAGE = Path(__file__).with_name("README.md")

_HEAD = """\
# The harness itself is tested

Written by `python -m tests.mutations`. Each mutant is a rendered kernel with one mistake planted in it; it goes through
the levels of the harness in their order, and the first that finds it ends its way. What is replaced by what, and what
would come of it in use, is in [catalogue.txt](catalogue.txt). A digest that a file states follows the change, except
where the digest is what the mutant is about.
"""
_EQUIVALENTS = """\
## Equivalents

These change nothing that can be observed, and every level passes them, as it must.
"""
_ON_A_GPU = """\
## On a GPU

The level gpu finds these. They change launches that are repeated, as no level without a GPU does.
"""
_LONGEST = 100


def page(fates: Mapping[Mutation, Fate]) -> str:
    """The page for `fates`, in the order that they have there."""
    mutants = _counted(fates)
    killed = [mutation for mutation in mutants if fates[mutation].level is not None]
    counts = Counter(fates[mutation].level for mutation in killed)
    parts = [
        _HEAD,
        f"**{score(fates)}**\n",
        _table(("level", "killed"), ((level, str(counts[level])) for level in LEVELS if counts[level])),
        _table(("mutation", "kind", "kernel", "killed at", "by what case"), (_row(m, fates[m]) for m in killed)),
    ]
    # The same whether there is a GPU or not.
    on_a_gpu = [(m.name, _kernel(m), m.why) for m in fates if m.by == "gpu"]
    if on_a_gpu:
        parts += [_ON_A_GPU, _table(("mutation", "kernel", "what comes of it"), on_a_gpu)]
    equals = ((m.name, _kernel(m), m.equivalent or "") for m in fates if m.equivalent is not None)
    parts += [_EQUIVALENTS, _table(("change", "kernel", "why it changes nothing"), equals)]
    return "\n".join(parts)


def score(fates: Mapping[Mutation, Fate]) -> str:
    mutants = _counted(fates)
    killed = sum(fates[mutation].level is not None for mutation in mutants)
    return f"{killed} of {len(mutants)} mutants that change something killed"


def _counted(fates: Iterable[Mutation]) -> list[Mutation]:
    """The mutations that a machine without a GPU must find."""
    return [mutation for mutation in fates if mutation.equivalent is None and mutation.by != "gpu"]


def _row(mutation: Mutation, fate: Fate) -> tuple[str, ...]:
    assert fate.level is not None
    return mutation.name, mutation.kind, _kernel(mutation), fate.level, told(fate.failures[0])


def _kernel(mutation: Mutation) -> str:
    return f"`{mutation.contract or mutation.kernel[1]}`"


def told(failure: Failure) -> str:
    """A failure's case and what its message begins with: no module, digest, address or count that a machine decides."""
    text = failure.message.splitlines()[0]
    text = re.sub(r"\b(?:\w+\.)*StrayAccess: ", "", text)
    text = re.sub(r"\b(?:\w+\.)+(\w*(?:Error|Impl)):", r"\1:", text)
    text = re.sub(r"\b[0-9a-f]{64}\b", "...", text)
    # A counterexample: the sizes, then by way of the tiles, the program and the lane, what is wrong there.
    text = re.sub(r"^((?:B = \d+, )?M = \d+, N = \d+, K = \d+), .*?: ", r"\1: ", text)
    text = re.sub(r"^\d+ of \d+ ", "", text)
    text = re.split(r";| \(line |: \d+ lanes", text)[0]
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST].rsplit(' ', 1)[0]} ..."
    return f"{failure.case}: {text}".replace("|", "\\|")


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def names(text: str) -> list[tuple[str, ...]]:
    """Of each row of a page's tables of mutations, the name with the level that killed it, or with none."""
    found = []
    for line in text.splitlines():
        cells = line.strip("| ").split(" | ")
        if line.startswith("| ") and len(cells) in (3, 5) and cells[0] not in ("mutation", "change", "---"):
            found.append((cells[0], *(level for level in cells[3:4] if len(cells) == 5)))
    return found
