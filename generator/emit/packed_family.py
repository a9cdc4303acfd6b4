"""The files of a rendered family as a package has them: as they were rendered, line ends included."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from generator.emit.apply import Refused, manifest_text
from generator.emit.manifest_reader import Rendered
from generator.files.reading import FileError, read_bytes, with_unix_lines


@dataclass(frozen=True)
class Packed:
    """A rendered family, and the text of each of its files but the manifest, by name."""

    family: Rendered
    texts: Mapping[str, str]

    def manifest(self, texts: Mapping[str, str] | None = None) -> str:
        """The text of the manifest, for other files if `texts` are given."""
        digests = {name: _digest(text) for name, text in sorted((self.texts if texts is None else texts).items())}
        return manifest_text({**self.family.contents, "files": digests})


def packed_files(family: Rendered) -> Packed:
    """The files of a family; raise `Refused` unless each is as it was rendered, but for its line ends."""
    return Packed(family, {name: _text(family.folder / name, family.contents["files"][name]) for name in family.files})


def _text(path: Path, recorded: str) -> str:
    try:
        data = with_unix_lines(read_bytes(path))
    except FileNotFoundError:
        raise Refused(f"{path}: is missing; render the family again") from None
    except FileError as error:
        raise Refused(str(error)) from None
    if hashlib.sha256(data).hexdigest() != recorded:
        raise Refused(f"{path}: edited by hand; render the family again, or package it by hand")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Refused(f"{path}: is not UTF-8 text; render the family again") from None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
