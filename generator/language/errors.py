"""Mistakes in a spec, each with its position; all of them are collected and reported together."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from generator.files.generator_error import GeneratorError


@dataclass(frozen=True, order=True)
class Mistake:
    """One mistake in a spec file; line and column count from 1."""

    path: Path
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return on_one_line(f"{self.path}:{self.line}:{self.column}: {self.message}")


#: Nobody reads more mistakes of a file, and each takes time to describe.
MOST_MISTAKES = 200


class SpecError(GeneratorError):
    """A spec, or several, that cannot be rendered."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(sorted(set(mistakes)))
        super().__init__("\n".join(map(str, self.mistakes)))


class CallError(GeneratorError):
    """A call of a command or of a function that cannot be carried out."""


def lacks(command: str, package: str | None, extra: str) -> CallError:
    """The error of a command that needs a package that an extra of the generator installs."""
    # The generator is on no index.
    how = f"pip install '.[{extra}]' in a checkout of the generator, or its wheel with [{extra}]"
    return CallError(f"{command} needs {package}; install the extra: {how}")


def on_one_line(text: str) -> str:
    """The text with escapes for line endings, control characters and halves of surrogate pairs, for printing.

    A path may have them: the system takes almost any bytes as a file's name.
    """
    if text.isprintable():
        return text
    return "".join(x if x.isprintable() else x.encode("unicode_escape").decode() for x in text)


def nearest(given: str, legal: Iterable[str], meant: str | None = None) -> str:
    """The end of a message: the most similar legal word, if there is one, and all legal words.

    Of words that are equally similar it is the one that begins alike. `meant` is what is known to be meant, if it is.
    """
    words = list(legal)
    matcher = difflib.SequenceMatcher(b=given)

    def similarity(word: str) -> tuple[float, int]:
        matcher.set_seq1(word)
        alike = next((i for i, (x, y) in enumerate(zip(word, given)) if x != y), min(len(word), len(given)))
        return matcher.ratio(), alike

    near = [meant] if meant in words else difflib.get_close_matches(given, words, n=len(words) or 1)
    hint = f"did you mean {max(map(str, near), key=similarity)!r}? " if near else ""
    return f"{hint}legal: {', '.join(words)}"


def nearest_sums(value: int, powers: int = 1, least: int = 1) -> str:
    """For a message: the sums of so many powers of two, of at least `least`, below and above another number."""
    least = min(least, 1 << value.bit_length() - 1)
    bits = [1 << bit for bit in reversed(range(value.bit_length())) if value >> bit & 1 and 1 << bit >= least]
    above = bits[powers - 1] if len(bits) >= powers else least
    return f"{sum(bits[:powers])}, {sum(bits[:powers]) + above}"


def shown(value: object, limit: int = 60) -> str:
    """A value for a message, on one line and not longer than `limit`."""
    return shortened(repr(value), limit)


def shortened(text: str, limit: int = 60) -> str:
    """The text, of which the end is left out where it is longer than `limit`."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
