"""Every mutation, as data: texts of the rendered files, and what stands there instead."""

from __future__ import annotations

from ..mutation import Mutation
from . import access, arithmetic, equivalents, launcher, text

MUTATIONS: tuple[Mutation, ...] = (
    *access.MUTATIONS,
    *arithmetic.MUTATIONS,
    *launcher.MUTATIONS,
    *text.MUTATIONS,
    *equivalents.MUTATIONS,
)
