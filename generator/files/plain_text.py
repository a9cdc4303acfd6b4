"""Text that XML and HTML can hold."""

from __future__ import annotations

import re

#: What XML 1.0 cannot represent, not even as an entity, or advises against: control characters, noncharacters, and half
#: of a surrogate pair, which stands for a byte of a path that is not UTF-8.
_NOT_XML = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufdcf\ufdf0-\ufffd\U00010000-\U0010ffff]")


def representable(text: str) -> str:
    """The text, with each character that XML 1.0 cannot represent as Python's escape, such as `\\x1b`."""
    return _NOT_XML.sub(lambda match: ascii(match[0])[1:-1], text)
