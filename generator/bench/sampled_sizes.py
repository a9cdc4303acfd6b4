"""Sizes drawn at random, so that kernels are also timed where nobody chose the sizes.

    fit       measured and fitted to: the files fit_*.yaml of suites/shapes
    unseen    never fitted to, only reported: the files unseen_*.yaml, whose sizes `tune` refuses

`python -m generator.bench.sampled_sizes` writes these files anew, or prints those that it names.
"""

from __future__ import annotations

import argparse
import functools
import random
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal

from generator.bench.suite import SHAPES, read_shapes
from generator.epilogue.chain import Epilogue
from generator.files.updating import put
from generator.language.elements import ELEMENTS
from generator.language.model import Dtype, Layout
from generator.problem.product import ROW_CLASSES, Problem, Shape

#: Limits of one problem: operations, of fp32 on the scalar units too, and bytes of A, B and C together.
MOST_FLOPS = 40 * 10**12
MOST_FP32_FLOPS = 10**12
MOST_BYTES = 8 * 10**9
#: N and K are at least the first, at most the second, and multiples of 16 bytes, of 64 or of 128 elements.
EXTENTS = (256, 65536)
_GRANULES = (64, 128)
_MOST_ROWS = 16384
#: M takes each of these ranges equally often.
STRATA = tuple((least, int(min(most, _MOST_ROWS))) for least, most in ROW_CLASSES.values())
#: Two sizes are near if M, N and K each differ by at most one part in this many.
_PARTS = 100

#: A number of tokens is in this range; half of those drawn are at most so much above a multiple of 64.
TOKENS, ABOVE = (65, 2048), 16
#: N and K of linear layers of language models. Those of the second group are never fitted to.
LAYERS: Mapping[str, Sequence[tuple[int, int]]] = {
    "fit": (
        *((4096, 4096), (6144, 4096), (28672, 4096), (4096, 14336), (10240, 8192), (8192, 8192), (57344, 8192)),
        *((8192, 28672), (4608, 3584), (37888, 3584), (3584, 18944), (7168, 5120), (27648, 5120), (5120, 13824)),
        *((6144, 2560), (2560, 4096), (19456, 2560), (2560, 9728), (1024, 4096), (2048, 8192), (7168, 2048)),
    ),
    "unseen": (
        *((9216, 3072), (16384, 3072), (3072, 8192), (7680, 5120), (35840, 5120), (5120, 17920), (30720, 3840)),
        *((3840, 15360), (8192, 3840), (1536, 7168), (24576, 1536), (4096, 7168), (12288, 4096), (3584, 14336)),
    ),
}

# `exp` and `ln` of decimal are rounded correctly, so that every machine draws the same sizes; those of math are not.
_EXACT = Context(prec=28)


@dataclass(frozen=True)
class SizeSample:
    """The sizes of one file.

    Where `layers` is given, the rows of A or, with `turned`, K are a number of `TOKENS`, and every other size has its
    other extents from these layers.
    """

    summary: str
    seed: int
    count: int
    dtype: str
    layers: Sequence[tuple[int, int]] = ()
    turned: bool = False
    #: Sizes that are drawn and left out, since products of other types were tuned near them.
    without: frozenset[tuple[int, ...]] = frozenset()

    @property
    def most_flops(self) -> int:
        """The operations of one problem, at most."""
        return MOST_FP32_FLOPS if self.dtype == "fp32" else MOST_FLOPS


_SUMMARIES = {
    "unseen": "Sizes drawn at random, only ever reported ({}); tune refuses them.",
    "fit": "Sizes drawn at random, to measure and to fit to ({}).",
}


def _samples() -> dict[str, SizeSample]:
    layouts = ("rcr", "rrr", "crr", "ccr")
    unseen = [(f"{dtype}_{layout}", 50, dtype) for dtype in ("fp16", "bf16") for layout in layouts]
    fit = [(layout, 300, "fp16") for layout in layouts]
    found = {}
    # Later groups stay away from the sizes of all earlier ones, which keep theirs when a type is added.
    for kind, first, group in (
        ("unseen", 1000, [*unseen, ("fp8_rcr", 70, "fp8e4m3")]),
        ("fit", 2000, [*fit, ("fp8_rcr", 300, "fp8e4m3")]),
        ("unseen", 1009, [("fp32_rcr", 30, "fp32")]),
        ("fit", 2005, [("fp32_rcr", 60, "fp32")]),
    ):
        for seed, (name, count, dtype) in enumerate(group, first):
            summary = _SUMMARIES[kind].format(name.replace("_", " "))
            found[f"{kind}_{name}"] = SizeSample(summary, seed, count, dtype)
    for kind, first in (("unseen", 1010), ("fit", 2006)):
        for seed, layout in enumerate(layouts, first):
            summary = _SUMMARIES[kind].format(f"{layout}, a batch of tokens")
            # The gradient of a weight: A is what came in, column-major, and K the number of tokens.
            turned = layout == "crr"
            found[f"{kind}_tokens_{layout}"] = SizeSample(summary, seed, 65, "fp16", LAYERS[kind], turned)
    # Drawn after what the sample before has shown was mended.
    for seed, layout in enumerate(("rcr", "rrr"), 1014):
        summary = _SUMMARIES["unseen"].format(f"{layout}, further batches of tokens")
        without = frozenset({(1551, 7680, 5120), (1028, 24576, 1536)} if layout == "rrr" else ())
        found[f"unseen_batches_{layout}"] = SizeSample(summary, seed, 130, "fp16", LAYERS["unseen"], without=without)
    return found


#: The samples by the names of their files. Later ones stay away from the sizes of earlier ones.
SAMPLES: Mapping[str, SizeSample] = _samples()


@functools.cache
def drawn() -> Mapping[str, tuple[Shape, ...]]:
    """The sizes of every sample; no two of all of them are near.

    A third of a sample without layers has M in each of `STRATA`, in turn, so that a part of a file covers all of them.
    """
    taken: list[Shape] = []
    found = {}
    for name, sample in SAMPLES.items():
        numbers, sizes = random.Random(sample.seed), list[Shape]()
        while len(sizes) < sample.count:
            place = len(sizes)
            if sample.layers:
                shape = _draw_tokens(numbers, place, sample)
            else:
                shape = _draw(numbers, STRATA[place % len(STRATA)], sample.dtype)
            problem = Problem(shape, Dtype.of(sample.dtype), Layout.of("rcr"), Epilogue())
            if problem.flops <= sample.most_flops and problem.bytes <= MOST_BYTES and not _near_any(shape, taken):
                sizes.append(shape)
                taken.append(shape)
        found[name] = tuple(shape for shape in sizes if shape.sizes not in sample.without)
    return found


def _draw(numbers: random.Random, rows: tuple[int, int], dtype: str) -> Shape:
    m = _log_uniform(numbers, *rows)
    granules = (128 // ELEMENTS[Dtype.of(dtype).a].bits, *_GRANULES)
    n, k = (_multiple(numbers, granules) for _ in range(2))
    return Shape(m, n, k)


def _draw_tokens(numbers: random.Random, place: int, sample: SizeSample) -> Shape:
    """The size at this place of a sample with layers: two of four with many rows just above a multiple of 64."""
    least, most = TOKENS
    if place % 2:
        tokens = _log_uniform(numbers, least, most)
    else:
        tokens = 64 * _log_uniform(numbers, 1, most // 64 - 1) + 1 + int(numbers.random() * ABOVE)
    if place // 2 % 2:
        n, k = sample.layers[int(numbers.random() * len(sample.layers))]
    else:
        n, k = (_multiple(numbers, _GRANULES, 16384) for _ in range(2))
    return Shape(n, k, tokens) if sample.turned else Shape(tokens, n, k)


def _multiple(numbers: random.Random, granules: Sequence[int], most: int = EXTENTS[1]) -> int:
    """A number from the first of `EXTENTS` to `most`, a multiple of one of `granules`."""
    granule = granules[int(numbers.random() * len(granules))]
    return granule * _log_uniform(numbers, EXTENTS[0] // granule, most // granule)


def _log_uniform(numbers: random.Random, least: int, most: int) -> int:
    """An integer from `least` to `most`, whose logarithm is distributed evenly."""
    span = _EXACT.ln(_EXACT.divide(Decimal(most + 1), Decimal(least)))
    factor = _EXACT.exp(_EXACT.multiply(Decimal(numbers.random()), span))
    return min(most, int(_EXACT.multiply(Decimal(least), factor)))


def near(one: Shape, other: Shape) -> bool:
    """Whether M, N and K of two single products each differ by at most 1 %."""
    if {one.products, other.products} != {"none"}:
        return False
    return all(_PARTS * abs(x - y) <= max(x, y) for x, y in zip(one.sizes, other.sizes))


def _near_any(shape: Shape, others: Iterable[Shape]) -> bool:
    return any(near(shape, other) for other in others)


def is_unseen(shape: Shape) -> bool:
    """Whether a size is in a file unseen_*.yaml of suites/shapes, or near one that is."""
    return _near_any(shape, _unseen())


@functools.cache
def _unseen() -> tuple[Shape, ...]:
    return tuple(shape for path in sorted(SHAPES.glob("unseen_*.yaml")) for shape in read_shapes(path))


def text(name: str) -> str:
    """The file of a sample."""
    lines = [f"# python -m generator.bench.sampled_sizes {name}", f"summary: {SAMPLES[name].summary}", "shapes:"]
    return "\n".join([*lines, *(f"  - {shape}" for shape in drawn()[name])]) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the files that the call names, or write all of them."""
    parser = argparse.ArgumentParser(
        prog="python -m generator.bench.sampled_sizes",
        description="Draw the random sizes of suites/shapes anew, and write their files.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="print this file, such as fit_rcr; write nothing")
    names = parser.parse_args(argv).names
    unknown = [name for name in names if name not in SAMPLES]
    if unknown:
        parser.error(f"no sample is named {unknown[0]!r}; known: {', '.join(SAMPLES)}")
    for name in names:
        print(text(name), end="")
    for name in SAMPLES if not names else ():
        put(SHAPES / f"{name}.yaml", text(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
