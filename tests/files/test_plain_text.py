"""Text that XML and HTML can hold."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from generator.files.plain_text import representable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("größer\t\n\r ∑ \U0001f600 \ufffd", "größer\t\n\r ∑ \U0001f600 \ufffd"),
        ("\x00\x1b\x7f", "\\x00\\x1b\\x7f"),
        ("\ufffe\uffff", "\\ufffe\\uffff"),
        ("\ud800 \udcff", "\\ud800 \\udcff"),
    ],
)
def test_what_cannot_be_represented_is_escaped(text: str, expected: str) -> None:
    assert representable(text) == expected


def test_every_character_can_be_read_back() -> None:
    root = ET.Element("root")
    root.text = representable("".join(map(chr, range(0x11000))).replace("\r", ""))
    assert ET.fromstring(ET.tostring(root, encoding="utf-8")).text == root.text
