"""Find the part of a spec that leaves its family empty.

A part is one entry of `exclude`, or the value of one key. It is to blame if the family has kernels once the part is
changed and the rest of the spec stays the same. Four changes are tried in this order, and the first that gives kernels
decides: remove one exclusion, remove all exclusions, give one key its default, give one key its other values. If one
part is found, it alone is to blame. If several are found, changing any one of them is enough.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from generator.epilogue.chain import Epilogue
from generator.language.dtypes import DTYPE_SHORTHANDS
from generator.language.model import AxisValue, Dtype, Layout, Spec, word_of
from generator.language.targets import DEFAULT_TARGETS, TARGETS
from generator.language.versions import SUPPORTED
from generator.language.vocabulary import AXES, DEFAULTS, LAYOUT_LETTERS, WORDS


@dataclass(frozen=True)
class SpecPart:
    """A part of a spec, and the spec with that part changed."""

    key: str
    #: The only value of the key, or the index of one exclusion; empty for all values of the key.
    word: str
    changed: Spec

    def place(self, spec: Spec) -> tuple[int, int]:
        """The line and column of the part in the file of `spec`, from 1."""
        return spec.positions.get((self.key, self.word)) or spec.positions[self.key, ""]

    @property
    def text(self) -> str:
        """The name of the part in a message that also gives its place."""
        if self.key == "exclude":
            return "this exclusion" if self.word else "these exclusions"
        return f"{self.key}: {self.word!r}" if self.word else f"the value of {self.key}"


def to_blame(spec: Spec, has_kernels: Callable[[Spec], bool], *, each: bool = True) -> list[SpecPart]:
    """The parts of `spec` of which each, changed alone, gives the empty family kernels; in the order of the file.

    `has_kernels` returns whether the family of a spec has at least one kernel. Without `each`, exclusions are removed
    all together only.
    """
    for changes in (*([_exclusions] if each else []), _all_exclusions, _defaults, _other_values):
        parts = [part for part in changes(spec) if has_kernels(part.changed)]
        if parts:
            return sorted(parts, key=lambda part: part.place(spec))
    return []


def _exclusions(spec: Spec) -> Iterator[SpecPart]:
    for index in range(len(spec.exclude)):
        others = spec.exclude[:index] + spec.exclude[index + 1 :]
        yield SpecPart("exclude", str(index), replace(spec, exclude=others))


def _all_exclusions(spec: Spec) -> Iterator[SpecPart]:
    if len(spec.exclude) > 1:
        yield SpecPart("exclude", "", replace(spec, exclude=()))


def _defaults(spec: Spec) -> Iterator[SpecPart]:
    for axis in AXES:
        if axis in DEFAULTS:
            yield from _axis(spec, axis, (Epilogue() if axis == "epilogue" else DEFAULTS[axis],))
    if spec.select != DEFAULTS["select"]:
        yield SpecPart("select", spec.select, replace(spec, select=DEFAULTS["select"]))
    if spec.invariant != DEFAULTS["invariant"]:
        yield SpecPart("invariant", spec.invariant, replace(spec, invariant=DEFAULTS["invariant"]))
    yield from _targets(spec, DEFAULT_TARGETS)
    if spec.triton != SUPPORTED:
        yield SpecPart("triton", "", replace(spec, triton=SUPPORTED))


def _other_values(spec: Spec) -> Iterator[SpecPart]:
    for axis in AXES:
        if (axis, "") in spec.positions:
            listed = {word_of(value) for value in spec.axes[axis]}
            yield from _axis(spec, axis, tuple(value for value in _values(axis) if word_of(value) not in listed))
    yield from _targets(spec, tuple(target for target in TARGETS if target not in spec.targets))


def _axis(spec: Spec, axis: str, values: tuple[AxisValue, ...]) -> Iterator[SpecPart]:
    """The axis with `values` instead of its own, if these differ and are not empty."""
    if values and spec.axes[axis] and values != spec.axes[axis]:
        only = _only([word_of(v) for v in spec.axes[axis]])
        yield SpecPart(axis, only, replace(spec, axes={**spec.axes, axis: values}))


def _targets(spec: Spec, targets: tuple[str, ...]) -> Iterator[SpecPart]:
    """The spec for `targets` instead of its own, if it lists targets."""
    if ("targets", "") in spec.positions and targets and set(targets) != set(spec.targets):
        yield SpecPart("targets", _only(spec.targets), replace(spec, targets=targets))


def _only(words: Sequence[str]) -> str:
    """The word if there is exactly one, else an empty string."""
    return words[0] if len(words) == 1 else ""


def _values(axis: str) -> Iterator[AxisValue]:
    """Every value of an axis that one word names; for the epilogue only the empty one."""
    if axis == "layout":
        yield from map(Layout.of, map("".join, itertools.product(LAYOUT_LETTERS, repeat=3)))
    elif axis == "dtype":
        yield from map(Dtype.of, DTYPE_SHORTHANDS)
    elif axis == "epilogue":
        yield Epilogue()
    else:
        yield from WORDS[axis]
