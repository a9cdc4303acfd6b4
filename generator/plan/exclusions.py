"""The exclusions of a spec, and which of them match a variant."""

from __future__ import annotations

from collections.abc import Sequence

from generator.language.model import Exclusion, Variant


class Exclusions:
    """The exclusions of a spec, of which those that match a variant are found together: bit I is of exclusion I."""

    def __init__(self, exclusions: Sequence[Exclusion]) -> None:
        self.every = (1 << len(exclusions)) - 1
        #: Axis -> the exclusions that do not name it; and those that allow a word, by word.
        self.unnamed: dict[str, int] = {}
        self.allowing: dict[str, dict[str, int]] = {}
        for index, exclusion in enumerate(exclusions):
            for axis, words in exclusion.axes:
                self.unnamed[axis] = self.unnamed.get(axis, self.every) & ~(1 << index)
                allowing = self.allowing.setdefault(axis, {})
                for word in words:
                    allowing[word] = allowing.get(word, 0) | (1 << index)

    def matching(self, variant: Variant) -> list[int]:
        """The indices of the exclusions of which every named axis has the variant's word, ascending."""
        bits = self.every
        for axis, allowing in self.allowing.items():
            bits &= self.unnamed[axis] | allowing.get(variant.word(axis), 0)
        numbers = []
        while bits:
            numbers.append((bits & -bits).bit_length() - 1)
            bits &= bits - 1
        return numbers
