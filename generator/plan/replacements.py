"""Words in the place of defaults: those of axes that a spec leaves unset, for targets that cannot run the default."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from generator.language.model import Spec, Variant
from generator.language.vocabulary import DEFAULTS, SCHEDULE, WORDS
from generator.plan import legality
from generator.plan.kernels import LeftOut

#: The axes of which a target may refuse the default, the first to change first. The product changes for each kernel
#: that a target cannot run, the others only where a contract would have no kernel for a target.
REPLACED = ("product", "schedule", "load")

#: What a refusal advises, which a kernel in the place of the variant makes void.
_ADVICE = re.compile(r"; use '\w+: \w+'")


class Replaced:
    """Which kernels take the place of variants, and on which targets."""

    def __init__(self) -> None:
        #: The name of a variant -> the names of kernels in its place, each with the targets there.
        self.kernels: dict[str, dict[str, set[str]]] = {}

    def add(self, variant: str, kernel: str, targets: Iterable[str]) -> None:
        """Note that a kernel takes the place of a variant on some targets."""
        self.kernels.setdefault(variant, {}).setdefault(kernel, set()).update(targets)

    def with_replacements(self, left: LeftOut) -> LeftOut:
        """What is left out, with the names of the kernels in its place if there are any."""
        targets_of = self.kernels.get(left.name, {})
        names = [kernel for kernel, targets in targets_of.items() if left.target is None or left.target in targets]
        if not names:
            return left
        verb = "is" if len(names) == 1 else "are"
        return replace(left, reason=f"{_ADVICE.sub('', left.reason)}; {' and '.join(names)} {verb} in its place")


def refusing(spec: Spec, variant: Variant) -> tuple[str, ...]:
    """The targets of a spec that cannot run a variant; all of them where none can."""
    illegal = legality.why_not(variant) is not None
    return tuple(target for target in spec.targets if illegal or legality.why_not_on(variant, target) is not None)


def replacements(spec: Spec, variant: Variant, axes: Sequence[str]) -> Iterator[Variant]:
    """The variants that may take the place of `variant` on targets that cannot run it, the most similar first.

    They differ from it in those of `axes` that the spec leaves unset. With `select: fastest` the portfolio fills such
    axes.
    """
    if spec.select == "fastest":
        return
    if legality.why_not(variant) is not None:
        # What no target can run is a mistake of the spec, but for the product, which the target decides.
        axes = [axis for axis in axes if axis == "product"]
    for words in _words(tuple(axis for axis in axes if (axis, "") not in spec.positions)):
        other = replace(variant, **words)  # type: ignore[arg-type]
        refused = legality.why_not(other) or legality.why_not_selected(other, spec.select, rows_alike=spec.rows_alike)
        if refused is None:
            yield other


def _words(axes: tuple[str, ...]) -> Iterator[Mapping[str, str]]:
    """Other words than the defaults for some of the axes, those for the fewest axes first."""
    others = {axis: _others(axis) for axis in axes}
    for count in range(1, len(axes) + 1):
        for changed in itertools.combinations(axes, count):
            for words in itertools.product(*(others[axis] for axis in changed)):
                yield dict(zip(changed, words, strict=True))


def _others(axis: str) -> list[str]:
    """The available words of an axis but its default; sums that do not repeat are never chosen unasked."""
    words = [word for word in WORDS[axis] if word != DEFAULTS[axis]]
    if axis == "schedule":
        words = sorted((word for word in words if SCHEDULE[word].repeatable), key=lambda word: SCHEDULE[word].rank)
    return words
