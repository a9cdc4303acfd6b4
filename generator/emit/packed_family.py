"""The files of a rendered family as a package has them: as they were rendered, line ends included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from generator.emit.apply import Refused, manifest_text, text_of
from generator.emit.file_digests import Digests
from generator.emit.manifest_reader import Rendered


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
    """The files of a family; raise `Refused` unless each is as it was rendered, but for its line ends and layout."""
    return Packed(family, {name: _text(family, name) for name in family.files})


def _text(family: Rendered, name: str) -> str:
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
    return text
