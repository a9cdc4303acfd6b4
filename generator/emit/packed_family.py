"""What a package has of a rendered family: its files as they were rendered, line endings included; and its licence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from packaging.licenses import canonicalize_license_expression

from generator.emit.apply import Refused, manifest_text, text_of
from generator.emit.file_digests import Digests
from generator.emit.manifest_reader import Rendered

#: Characters of the expression of a licence.
_LONGEST = 100


@dataclass(frozen=True)
class Packed:
    """A rendered family, and the text of each of its files but the manifest, by name."""

    family: Rendered
    texts: Mapping[str, str]

    def manifest(self, texts: Mapping[str, str] | None = None) -> str:
        """The text of the manifest, for other files if `texts` are given."""
        digests = Digests()
        for name, text in (self.texts if texts is None else texts).items():
            digests.add(name, text, self.family.recorded)
        return manifest_text({**self.family.contents, **digests.entries()})


def packed_files(family: Rendered) -> Packed:
    """The files of a family; raise `Refused` unless each is as it was rendered, but for its line endings and layout."""
    texts: dict[str, str] = {}
    for name in family.files:
        path = family.folder / name
        text = text_of(path)
        if text is None:
            raise Refused(f"{path}: is missing; render the family again")
        if not family.recorded.has(name, text):
            raise Refused(f"{path}: edited by hand; render the family again with --force, or package it by hand")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Refused(f"{path}: is not UTF-8 text; render the family again") from None
        texts[name] = text
    return Packed(family, texts)


def license_expression(text: str) -> str | None:
    """The licence expression of SPDX that `text` is, as a wheel's metadata spells it; None if it is none."""
    if len(text) > _LONGEST or not text.isprintable():
        return None
    try:
        return str(canonicalize_license_expression(text))
    except (ValueError, SyntaxError):
        return None
