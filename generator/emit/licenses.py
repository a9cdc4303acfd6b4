"""Licences as SPDX writes them."""

from __future__ import annotations

from packaging.licenses import canonicalize_license_expression

_LONGEST = 100


def license_expression(text: str) -> str | None:
    """The licence expression of SPDX that `text` is, as a wheel's metadata spells it; None if it is none."""
    if len(text) > _LONGEST or not text.isprintable():
        return None
    try:
        return str(canonicalize_license_expression(text))
    except (ValueError, SyntaxError):
        return None
