"""The order of K in which an operand is multiplied that the matrix unit reads from registers, where it is converted.

Hopper's matrix unit takes from a thread elements 2i, 2i + 1, 2i + 8 and 2i + 9 of each 16 along K, which are bytes in
several places. A sum may have its terms in any order: with the bytes that a thread loads together in these places, and
A's columns in the same order, loads from shared memory are of whole words, and copies to it of 16 bytes. Pointers copy
A to shared memory in this order. The hardware's copies by descriptors keep that of memory, and a step puts A's tile in
this one, which pays for few rows. Two numbers of four bits are decoded together that are 16 bits apart in a word.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from generator.language.model import Tile, Variant
from generator.plan.resources import converts_as_loaded

#: The bits of the integers that a step decodes two bytes of a word at once of where descriptors copy A, and how many
#: times as many columns as rows a tile has at least for that: with fewer, to put A in that order takes longer than what
#: it saves, and of other types it saves too little (measured on an H200).
_BITS_BY_WORDS = 4
_WIDE = 4


@dataclass(frozen=True)
class Shuffle:
    """An order of K within groups, of `words` words of `pairs` pairs of elements."""

    words: int
    pairs: int
    #: How many times as many columns as rows a tile has at least whose step puts A in this order, and B with it: of a
    #: pair, the elements are half a word apart then, and not neighbours. 0 where A is copied in it.
    wide: int = 0

    @property
    def few(self) -> str:
        """Whether a tile has so few rows."""
        return f"{self.wide} * BLOCK_M <= BLOCK_N"

    @property
    def group(self) -> int:
        """The elements of a group."""
        return 2 * self.words * self.pairs

    @property
    def offsets(self) -> str:
        """The statement that puts A's columns in this order."""
        within = f"offs_k // 2 % {self.words} * {2 * self.pairs} + offs_k // {2 * self.words} % {self.pairs} * 2"
        return f"offs_k = offs_k // {self.group} * {self.group} + {within} + offs_k % 2"

    def ordered(self, tile: str, lines: str, *, paired: bool = True) -> tuple[str, str]:
        """The statements that put a tile of so many lines in this order.

        Its elements follow each other as in memory, but for those of a pair where it is `paired`: they are neighbours.
        """
        word, order = f"{self.pairs}, 2", "3, 2, 4"
        if self.wide and not paired:
            word, order = f"2, {self.pairs}", "4, 2, 3"
        shape = f"({lines}, BLOCK_K // {self.group}, {self.words}, {word})"
        grouped = f"{tile} = {tile}.reshape({shape}).permute((0, 1, {order}))"
        return grouped, f"{tile} = {tile}.reshape(({lines}, BLOCK_K))"


def shuffle_of(v: Variant, tiles: Iterable[Tile]) -> Shuffle | None:
    """The order in which a kernel multiplies B; None where it keeps that of memory."""
    b = v.dtype.stored_b
    by_words = b.element.bits == _BITS_BY_WORDS and not b.element.floating
    wide = _WIDE if v.loading.descriptors and by_words else 0
    if b.fragments:
        # They are stored in an order that suits registers and leaves K as it is.
        return None
    if not converts_as_loaded(v) or (v.loading.descriptors and (v.layout.a != "row" or not wide)):
        return None
    # A word has 32 bits, one of positions a bit for each element; they are read as shorter words in shorter steps.
    depths = [tile.k for tile in tiles]
    pairs = min(32 // 2, min(depths) // 8) if b.sparse else 32 // b.bits // 2
    shuffle = Shuffle(words=4, pairs=pairs, wide=wide)
    return shuffle if all(depth % shuffle.group == 0 for depth in depths) else None
