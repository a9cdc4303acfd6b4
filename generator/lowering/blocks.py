"""The blocks of a tile's rows or columns, each with an accumulator of its own, as a kernel spells them."""

from __future__ import annotations

from dataclasses import dataclass

from generator.language.word_traits import Schedule

#: What the blocks along a side are called, from the first to the last, and the first row or column of each.
_OF_SIDE = {
    "m": (("top", "row"), ("middle", "middle_row"), ("bottom", "bottom_row")),
    "n": (("left", "column"), ("middle", "middle_column"), ("right", "right")),
}


@dataclass(frozen=True)
class TileBlock:
    """A block of a tile's rows or columns."""

    #: "m" or "n".
    side: str
    #: What it is called, and the kernel's name for its first row or column.
    name: str
    first: str
    #: Its size, and what is added to the tile's first row or column for its own.
    size: str
    behind: str

    @property
    def end(self) -> str:
        """The end of the names of what it has."""
        return f"_{self.name}"

    @property
    def lines(self) -> str:
        return "rows" if self.side == "m" else "columns"

    @property
    def start(self) -> str:
        """Its first row or column, counted from the product's."""
        return f"pid_{self.side} * BLOCK_{self.side.upper()}{self.behind}"


def blocks_of(schedule: Schedule) -> tuple[TileBlock, ...]:
    """The blocks of a schedule's tiles; none where a tile is one."""
    if not schedule.pairs:
        return ()
    columns = tuple(schedule.sizes_of_blocks)
    *others, last = _OF_SIDE[schedule.side]
    sizes = (*columns, " - ".join((f"BLOCK_{schedule.side.upper()}", *columns)))
    named = (*others[: len(columns)], last)
    return tuple(
        TileBlock(schedule.side, name, first, size, "".join(f" + {x}" for x in columns[:index]))
        for index, ((name, first), size) in enumerate(zip(named, sizes, strict=True))
    )
