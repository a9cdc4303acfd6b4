"""What a mutation is: one rendered file, changed in one place, and what must become of it."""

from __future__ import annotations

from dataclasses import dataclass

Changes = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Mutation:
    """One mistake planted in one rendered file. It is known by its `name`."""

    name: str
    #: What is broken: the heading that it stands under.
    kind: str
    #: The family's folder and the kernel's name.
    kernel: tuple[str, str]
    #: Each text of the file that is replaced, found exactly once, and what stands there instead.
    changes: Changes
    #: What comes of it in use.
    why: str
    #: The level that finds it at the latest: one before may be the first.
    by: str = "interpret"
    #: Words of the message when that level is the first.
    says: str = ""
    #: Why nothing that anybody could observe is changed: then every level must pass it.
    equivalent: str | None = None
    #: What the harness lacks, where it passes every level although it should not.
    hole: str | None = None
    #: The launches that the compile level compiles; without any, the aligned one of the smallest row.
    launches: tuple[str, ...] = ()
    #: A contract whose function is run, in place of the kernel.
    contract: str | None = None
    #: The file of the family that is changed; without one it is the kernel's.
    own: str | None = None
    #: What is left as it was, of `digest` in the file and `manifest` beside it.
    stale: frozenset[str] = frozenset()

    @property
    def family(self) -> str:
        return self.kernel[0]

    @property
    def file(self) -> str:
        """The name of the file that is changed."""
        return self.own or f"{self.kernel[1]}.py"


def without(text: str, part: str) -> tuple[str, str]:
    """The change that takes `part` out of `text`."""
    return instead(text, part, "")


def instead(text: str, part: str, other: str) -> tuple[str, str]:
    """The change of `text` that puts `other` in the place of `part`."""
    if text.count(part) != 1 or part == other:
        raise ValueError(f"{part!r} is {text.count(part)} times in {text!r}, and {other!r} replaces it")
    return text, text.replace(part, other)
