"""Where a tile passes the edge of a matrix: what a kernel bounds and masks there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from generator.epilogue.operations import COLUMNS, MATRIX, ROWS
from generator.language.vocabulary import LOAD, SCHEDULE
from generator.plan import variant_rules


@dataclass(frozen=True)
class Dimensions:
    """One text for each of m, n and k."""

    m: str
    n: str
    k: str


@dataclass(frozen=True)
class Edges:
    """What a kernel does where a tile passes the edge of a matrix."""

    #: The macro of masking.j2 for each dimension: never, always, or decided at the call.
    bound: Dimensions
    #: The name of each dimension's mask, empty where it has none.
    inside: Dimensions
    #: Whether the coordinates of the tile's rows and columns are used at all.
    needs_m: bool
    needs_n: bool


@cache
def edges_of(masking: str, schedule: str, load: str, store: str, divided: str, shapes: str, reduced: str) -> Edges:
    """The edges of a kernel whose epilogue operands have `shapes`, a word each, and whose reductions need `reduced`.

    Where an extent is `divided` among products, a part of it may end within any tile.
    """
    kinds = {d: {True: "always", False: "never", None: "call"}[r] for d, r in variant_rules.ragged(masking).items()}
    if not SCHEDULE[schedule].tiled:
        kinds = dict.fromkeys("mnk", "never")
    elif LOAD[load].descriptors:
        # The hardware bounds what is copied, and a sum is to leave out what is past the edge.
        edge = "always" if store == "pointer" or reduced else "never"
        kinds = {"m": edge, "n": edge, "k": "never"}
    if divided:
        kinds[divided.lower()] = "always"
    inside = {d: "" if kind == "never" else f"in_{d}" for d, kind in kinds.items()}
    through_pointers = LOAD[load].pointers or store == "pointer"
    # Block pointers leave a matrix of the epilogue to pointers; descriptors copy it.
    vectors = reduced + (shapes if LOAD[load].blocks else shapes.replace(MATRIX, ""))
    return Edges(
        Dimensions(**kinds),
        Dimensions(**inside),
        needs_m=through_pointers or ROWS in vectors,
        needs_n=through_pointers or COLUMNS in vectors,
    )
