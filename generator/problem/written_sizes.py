"""The sizes of products as a call, a suite or a file of shapes writes them: the one reader of all of them.

4096x4096x14336             M, N and K, also with commas; of a batch BxMxNxK, of groups GgMxNxK, with padding MxNxK+PAD
1:64x4096x14336             each of them may be a range: `generator.language.call_numbers.sizes_of`
M=1:64,N=4096,K=14336       the same by names, in any order; also B, G, pad and routing
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from generator.language.call_numbers import MOST_SIZES, sizes_of, whole_number
from generator.language.errors import nearest, shown
from generator.problem.grouping import EVEN, ROUTING
from generator.problem.product import LARGEST_PAD, Shape

_FORMS = f"MxNxK or M,N,K, MxNxK+PAD, BxMxNxK, GgMxNxK, GgMxNxK:{{{','.join(ROUTING)}}}"
_NAMED = "M=1:64,N=4096,K=4096"
_RANGES = f"a size may be a range, 1:64 or 1:8192:*2, and sizes may have names: {_NAMED}"
_NUMBER = "[0-9]{1,10}"
_SIZE = rf"{_NUMBER}(?:-{_NUMBER}|:{_NUMBER}(?::\*?{_NUMBER})?)?"
_PRODUCT = re.compile(
    rf"(?:(?P<B>{_SIZE})x|(?P<G>{_SIZE})g)?(?P<M>{_SIZE})x(?P<N>{_SIZE})x(?P<K>{_SIZE})"
    rf"(?:\+(?P<pad>[1-9][0-9]{{0,5}}))?(?(G)(?::(?P<routing>{'|'.join(ROUTING)}))?)"
)
_REQUIRED, _KEYS = ("M", "N", "K"), ("M", "N", "K", "B", "G", "pad", "routing")
#: How a text begins that is meant as sizes, and not as the name of a file.
_SIZES = re.compile(r"[0-9]|[A-Za-z]+ *=")


@dataclass(frozen=True)
class WrittenSizes:
    """The values of each size; the products are all combinations."""

    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]
    batch: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()
    pad: int = 0
    routing: str = ""

    def shapes(self) -> Iterator[Shape]:
        """The product of each combination; M varies before N, and N before K. One may have a `fault`."""
        fronts = [(batch, 0) for batch in self.batch] + [(0, groups) for groups in self.groups] or [(0, 0)]
        for (batch, groups), k, n, m in itertools.product(fronts, self.k, self.n, self.m):
            yield Shape(m, n, k, self.pad, batch, groups, (self.routing or EVEN) if groups else "")


def are_sizes(text: str) -> bool:
    """Whether a text is meant as sizes."""
    return _SIZES.match(text) is not None


def written_sizes(text: str, least: int = 1, also: str = "") -> WrittenSizes:
    """The sizes that a text gives; raises ValueError, with the size that is wrong, for something else.

    A single number is taken as it is: the product says whether a kernel takes it. `also` is a form that the caller
    takes beside these. A text with both commas and x is refused: NxK,M is how `prepare` has it.
    """
    match = _PRODUCT.fullmatch(text if "x" in text else text.replace(",", "x"))
    words = {key: word for key, word in match.groupdict().items() if word} if match else {}
    words = _named(text) if "=" in text else words
    if any(word.isdecimal() and int(word) < least for key, word in words.items() if len(key) == 1) or not words:
        raise ValueError(f"expected {_FORMS}{also}, each at least {least}, found {shown(text)}; {_RANGES}")
    values = {key: _values(key, words[key], least) for key in ("M", "N", "K", "B", "G") if key in words}
    count = math.prod(map(len, values.values()))
    if count > MOST_SIZES:
        raise ValueError(f"at most {MOST_SIZES} sizes are possible, got {count} in {shown(text)}")
    pad = whole_number(words["pad"], 0, LARGEST_PAD) if "pad" in words else 0
    m, n, k, batch, groups = (values.get(key, ()) for key in ("M", "N", "K", "B", "G"))
    return WrittenSizes(m, n, k, batch, groups, pad, words.get("routing", ""))


def _values(key: str, word: str, least: int) -> tuple[int, ...]:
    if word.isascii() and word.isdecimal() and len(word) <= 10:
        return (int(word),)
    try:
        sizes = sizes_of([word], least)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None
    if not sizes:
        raise ValueError(f"{key}: the range {shown(word)} ends before it begins")
    return sizes


def _named(text: str) -> dict[str, str]:
    """The words of `M=1:64,N=4096,K=4096` by their keys; raises ValueError for another key, or one that is missing."""
    sizes: dict[str, str] = {}
    for part in text.split(","):
        key, equals, word = part.strip().partition("=")
        key = key.strip().upper() if len(key.strip()) == 1 else key.strip()
        if not equals or key not in _KEYS:
            raise ValueError(f"{shown(part)} is no size; expected KEY=SIZE; {nearest(key, _KEYS)}")
        if key in sizes:
            raise ValueError(f"{key} is given twice in {shown(text)}")
        sizes[key] = word.strip()
    missing = [key for key in _REQUIRED if key not in sizes]
    if missing:
        raise ValueError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing in {shown(text)}; {_NAMED} has all"
        )
    if "routing" in sizes and sizes["routing"] not in ROUTING:
        raise ValueError(f"routing: {nearest(sizes['routing'], ROUTING)}, found {shown(sizes['routing'])}")
    if "routing" in sizes and "G" not in sizes:
        raise ValueError("routing: there are no groups; expected G beside it")
    return sizes
