"""Changes of rendered files, as they are written in a file of texts: kernels with a mistake planted in each.

A section (`==`) has a preface (`|`) and cases. A case (`--`) has texts that are replaced (`-`) by others (`+`), line by
line, and what is said of it (`=>`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Case:
    """What is changed, in which texts."""

    title: str
    changes: list[tuple[list[str], list[str]]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    @property
    def replacements(self) -> tuple[tuple[str, str], ...]:
        return tuple(("\n".join(old), "\n".join(new)) for old, new in self.changes)


@dataclass
class Section:
    preface: str = ""
    cases: list[Case] = field(default_factory=list)


def sections(path: Path) -> dict[str, Section]:
    """The cases as they are written."""
    found: dict[str, Section] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        mark, text = line[:2].strip(), line[3:] if line[:2] in ("==", "--", "=>") else line[2:]
        if mark == "==":
            section = found[text] = Section()
        elif mark == "|":
            section.preface += f"{text}\n"
        elif mark == "--":
            section.cases.append(Case(text))
        elif mark == "-":
            changes = section.cases[-1].changes
            if not changes or changes[-1][1]:
                changes.append(([], []))
            changes[-1][0].append(text)
        elif mark == "+":
            section.cases[-1].changes[-1][1].append(text)
        elif mark == "=>":
            section.cases[-1].said.append(text)
    return found
