"""Every mutation, as data: texts of the rendered files, and what stands there instead."""

from __future__ import annotations

from ..mutation import Mutation
from . import (
    access,
    arithmetic,
    batches,
    blocks,
    chains,
    choice,
    decoded,
    equivalents,
    fragments,
    groups,
    launcher,
    library,
    masks,
    orders,
    parts,
    products,
    quantised,
    sharing,
    stored,
    symmetric,
    tables,
    text,
)

MUTATIONS: tuple[Mutation, ...] = (
    *masks.MUTATIONS,
    *access.MUTATIONS,
    *orders.MUTATIONS,
    *arithmetic.MUTATIONS,
    *chains.MUTATIONS,
    *launcher.MUTATIONS,
    *library.MUTATIONS,
    *tables.MUTATIONS,
    *batches.MUTATIONS,
    *groups.MUTATIONS,
    *choice.MUTATIONS,
    *products.MUTATIONS,
    *blocks.MUTATIONS,
    *parts.MUTATIONS,
    *sharing.MUTATIONS,
    *decoded.MUTATIONS,
    *stored.MUTATIONS,
    *fragments.MUTATIONS,
    *symmetric.MUTATIONS,
    *quantised.MUTATIONS,
    *text.MUTATIONS,
    *equivalents.MUTATIONS,
)
