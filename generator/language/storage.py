"""An operand as it is stored: containers, packing, scales and zero points, and the type that it is multiplied in.

What reads an operand in memory asks its `Storage`, which asks the records of `elements.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from generator.language.elements import ELEMENTS, FORMATS, ElementType

#: What holds several elements, or bits without a type of their own in torch.
CONTAINER = "uint8"
#: What holds elements of B in fragment order, and how many words along K are a group: one for each of the four threads
#: that have a row of a fragment of the matrix unit.
WORD = "int32"
WORDS = 4
#: The elements along K whose positions are in one byte, where two of four are stored.
POSITIONED = 8
#: The types that a scale may have.
SCALE_TYPES = ("fp32", "fp16", "bf16")
#: The types that a zero point may have.
ZERO_TYPES = (*SCALE_TYPES, CONTAINER)


def kind_of(word: str) -> str:
    """The type that a word names, of a format that of its elements."""
    return FORMATS[word].element if word in FORMATS else word


def element_of(word: str) -> ElementType:
    """The scalar type that a word names, of a format that of its elements."""
    return ELEMENTS[kind_of(word)]


@dataclass(frozen=True)
class Block:
    """The elements that share a scale: so many along K, and so many rows of A or columns of B; 0 is all of them."""

    along: int
    across: int


@dataclass(frozen=True)
class Storage:
    """How A or B lies in memory, and what becomes of it before it is multiplied."""

    #: The operand's letter, "a" or "b".
    letter: str
    #: The type or format, as a spec names it.
    word: str
    #: The type of the elements that are multiplied.
    multiplied: str
    #: The blocks that share a scale; None for an operand without scales.
    block: Block | None = None
    #: Whether each scale has a zero point.
    zeros: bool = False
    #: Whether two of each four elements along K are stored, with their positions in another operand.
    sparse: bool = False
    #: Whether the matrix unit multiplies the elements as they are stored, and by their scales.
    native: bool = False
    #: Whether words of 32 bits hold the elements along K in the order in which the matrix unit takes them.
    fragments: bool = False

    @property
    def element(self) -> ElementType:
        """The element; of a type that torch lacks, with the names of its container."""
        return element_of(self.word)

    @property
    def kind(self) -> str:
        """The type of an element."""
        return kind_of(self.word)

    @property
    def container(self) -> str:
        """The type of the tensor that a call is given."""
        if self.fragments:
            return WORD
        return CONTAINER if self.bits < 8 else self.kind

    @property
    def width(self) -> int:
        """The bytes of a container."""
        return element_of(self.container).bits // 8

    @property
    def packed(self) -> int:
        """The elements along K of one container."""
        return 8 * self.width // self.bits

    @property
    def together(self) -> int:
        """The elements along K that cannot be stored apart, of which K is a multiple."""
        if self.fragments:
            return WORDS * self.packed
        return POSITIONED if self.sparse else self.packed

    @property
    def bits(self) -> int:
        """The bits of an element in memory, on average where some are not stored."""
        return self.element.bits // 2 if self.sparse else self.element.bits

    @property
    def multiplied_bits(self) -> int:
        """The bits of an element as the matrix unit reads it."""
        return element_of(self.multiplied).bits

    @property
    def converted(self) -> bool:
        """Whether the kernel makes elements of another type of what it loads."""
        return self.kind != self.multiplied or self.sparse

    @property
    def plain(self) -> bool:
        """Whether the operand is stored as it is multiplied, without scales."""
        return not self.converted and self.block is None

    @property
    def scale(self) -> str:
        """The keyword of the scales."""
        return f"{self.letter}_scale"

    @property
    def scale_types(self) -> tuple[str, ...]:
        """The types that the scales may have."""
        return FORMATS[self.word].scales if self.word in FORMATS else SCALE_TYPES

    @property
    def bytewise(self) -> bool:
        """Whether a kernel reads the scales as bytes, because Triton has no such type for some targets."""
        return self.word in FORMATS

    @property
    def zero(self) -> str:
        """The keyword of the zero points."""
        return f"{self.letter}_zero"

    @property
    def index(self) -> str:
        """The keyword of the positions of the elements that are stored."""
        return f"{self.letter}_index"

    @property
    def scaled_by_step(self) -> bool:
        """Whether several scales follow each other along K, so that each step's sum is multiplied by its own."""
        return self.block is not None and self.block.along > 0 and not self.native

    @property
    def scaled_alone(self) -> bool:
        """Whether a kernel multiplies elements, and not each step's sum, by their scales.

        The sum of a step then needs no registers of its own. Elements in fragment order are in registers for that.
        """
        return self.fragments and self.scaled_by_step and not self.zeros

    @property
    def scales_sums(self) -> bool:
        """Whether each step's sum is multiplied by its own scale."""
        return self.scaled_by_step and not self.scaled_alone

    def bytes(self, elements: int) -> int:
        """The bytes of so many elements in memory, and of their positions."""
        return elements * self.bits // 8 + elements // POSITIONED * self.sparse
