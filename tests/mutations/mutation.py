"""What a mutation is: one rendered file, changed in one place, and what must become of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """One mistake planted in one rendered file. It is known by its `name`."""

    name: str
    #: What is broken: the heading that it stands under.
    kind: str
    #: The family's folder and the kernel's name.
    kernel: tuple[str, str]
    #: Each text of the file that is replaced, found exactly once, and what stands there instead.
    changes: tuple[tuple[str, str], ...]
    #: What comes of it in use.
    why: str
    #: The level that finds it at the latest: one before may be the first.
    by: str = "interpret"
    #: Words of the message when that level is the first.
    says: str = ""
    #: Why nothing that anybody could observe is changed: then every level must pass it.
    equivalent: str | None = None
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
