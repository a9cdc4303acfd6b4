"""Which part of a spec leaves its family empty.

A part is an entry of `exclude`, or what the spec says under one key. It is to blame where the family would not be empty
with another in its place and all else as it is. Four questions are put in this order, and the first that finds a part
decides: without which one exclusion is something left; is it without all of them; at the default of which key; with any
other value of which key? One part that is found so is to blame alone. Of several each could be changed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from generator.epilogue.chain import Epilogue
from generator.language.model import AxisValue, Dtype, Layout, Spec, word_of
from generator.language.versions import SUPPORTED
from generator.language.vocabulary import (
    AXES,
    DEFAULT_TARGETS,
    DEFAULTS,
    DTYPE_SHORTHANDS,
    LAYOUT_LETTERS,
    TARGETS,
    WORDS,
)


@dataclass(frozen=True)
class Part:
    """A part of a spec, and the spec with another in its place."""

    key: str
    #: The one value that the key has, the number of an exclusion; empty for the key with all that it says.
    word: str
    other: Spec

    def place(self, spec: Spec) -> tuple[int, int]:
        """Its line and column in the file of `spec`."""
        return spec.positions.get((self.key, self.word)) or spec.positions[self.key, ""]

    @property
    def text(self) -> str:
        """What it is called in a message at its place."""
        if self.key == "exclude":
            return "this exclusion" if self.word else "these exclusions"
        return f"{self.key}: {self.word!r}" if self.word else f"what {self.key} says"


def to_blame(spec: Spec, leaves_something: Callable[[Spec], bool]) -> list[Part]:
    """The parts of `spec`, whose family is empty, of which each would leave something if it alone were another.

    In the order of the file.
    """
    for ask in (_exclusions, _all_exclusions, _defaults, _others):
        found = [part for part in ask(spec) if leaves_something(part.other)]
        if found:
            return sorted(found, key=lambda part: part.place(spec))
    return []


def _exclusions(spec: Spec) -> Iterator[Part]:
    for index in range(len(spec.exclude)):
        left = spec.exclude[:index] + spec.exclude[index + 1 :]
        yield Part("exclude", str(index), replace(spec, exclude=left))


def _all_exclusions(spec: Spec) -> Iterator[Part]:
    if len(spec.exclude) > 1:
        yield Part("exclude", "", replace(spec, exclude=()))


def _defaults(spec: Spec) -> Iterator[Part]:
    for axis in AXES:
        if axis in DEFAULTS:
            yield from _axis(spec, axis, (Epilogue() if axis == "epilogue" else DEFAULTS[axis],))
    if spec.select != DEFAULTS["select"]:
        yield Part("select", spec.select, replace(spec, select=DEFAULTS["select"]))
    yield from _targets(spec, DEFAULT_TARGETS)
    if spec.triton != SUPPORTED:
        yield Part("triton", "", replace(spec, triton=SUPPORTED))


def _others(spec: Spec) -> Iterator[Part]:
    for axis in AXES:
        if (axis, "") in spec.positions:
            listed = {word_of(value) for value in spec.axes[axis]}
            yield from _axis(spec, axis, tuple(value for value in _values(axis) if word_of(value) not in listed))
    yield from _targets(spec, tuple(target for target in TARGETS if target not in spec.targets))


def _axis(spec: Spec, axis: str, values: tuple[AxisValue, ...]) -> Iterator[Part]:
    """The axis with other values, where there are any."""
    if values and values != spec.axes[axis]:
        yield Part(axis, _alone([word_of(v) for v in spec.axes[axis]]), replace(spec, axes={**spec.axes, axis: values}))


def _targets(spec: Spec, targets: tuple[str, ...]) -> Iterator[Part]:
    """The spec for other targets, where it lists its own."""
    if ("targets", "") in spec.positions and targets and set(targets) != set(spec.targets):
        yield Part("targets", _alone(spec.targets), replace(spec, targets=targets))


def _alone(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else ""


def _values(axis: str) -> Iterator[AxisValue]:
    """Every value of an axis that has a word of its own; of an epilogue the empty one."""
    if axis == "layout":
        yield from map(Layout.of, map("".join, itertools.product(LAYOUT_LETTERS, repeat=3)))
    elif axis == "dtype":
        yield from map(Dtype.of, DTYPE_SHORTHANDS)
    elif axis == "epilogue":
        yield Epilogue()
    else:
        yield from (word for word, entry in WORDS[axis].items() if entry.available)
