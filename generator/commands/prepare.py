"""`python -m generator prepare FOLDER`: fill a Triton cache for a device, on a machine that need not have one."""

from __future__ import annotations

import argparse
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from generator.commands.argument_types import Parser, add_device, add_shapes
from generator.files.reading import FileError, read_text
from generator.language.call_numbers import MOST_SIZES, sizes_of, too_large, whole_number
from generator.language.errors import CallError, shown
from generator.language.measured_values import LARGEST_SIZE
from generator.plan.devices import named
from generator.problem.written_sizes import written_sizes
from generator.verify.ahead_of_time import ProductSizes, prepare

#: N, K, and sizes or ranges, which `sizes_of` reads.
_SHAPE = re.compile(r"([0-9]+)x([0-9]+)((?:,[0-9]+(?:[-:][0-9:*]+)?)+)")


def main(argv: Sequence[str]) -> int:
    """Compile what calls with these sizes can run and return 0; before, raises `CallError` for a wrong command line."""
    call = parser().parse_args(argv)
    device = named(call.device)
    shapes, batch = shapes_of(call.shapes, call.batch, 0)
    prepare(call.folder, device, shapes, only=call.only, batch=batch, aligned=call.aligned, cache=call.cache)
    return 0


def parser() -> argparse.ArgumentParser:
    cli = Parser("prepare", "Compile the kernels that calls with the given sizes can run, into a Triton cache.")
    cli.option("folder FOLDER", "the folder of a rendered family")
    add_device(cli, "for which GPU", required=True)
    add_shapes(cli, required=True)
    cli.option("--only GLOB", "only functions whose name matches", default="*")
    cli.option("--aligned", "only calls with aligned, contiguous operands")
    cli.option("--batch B", "the matrices of a batch (default: 1)", default="1")
    cli.option("--cache DIR", "the cache (default: TRITON_CACHE_DIR or Triton's own)")
    return cli


def shapes_of(texts: Sequence[str], batch: str, least: int) -> tuple[list[ProductSizes], int]:
    """The shapes of `--shapes`, and the number of products of `--batch`, at least `least`.

    Raises `CallError` for wrong ones, and for more than a call can have.
    """
    try:
        products = whole_number(batch, least, LARGEST_SIZE)
    except ValueError as error:
        raise CallError(f"--batch: {error}") from None
    shapes = [shape for text in texts for shape in _shapes(text)]
    count = sum(len(shape.m) for shape in shapes)
    if count > MOST_SIZES:
        raise CallError(f"--shapes: at most {MOST_SIZES} sizes are possible in a call, got {count}; divide it")
    for shape in shapes:
        if reason := too_large(max(shape.m), shape.n, shape.k, products):
            raise CallError(f"--shapes: {shape.n}x{shape.k}: {reason}")
    return shapes, products


def _shapes(text: str) -> Iterator[ProductSizes]:
    """The shapes that an argument of `--shapes` gives, itself or by the lines of a file."""
    lines = [("--shapes", text)]
    if _SHAPE.fullmatch(text) is None and "=" not in text:
        try:
            text_lines = read_text(Path(text)).splitlines()
        except FileNotFoundError:
            pass
        except FileError as error:
            raise CallError(f"--shapes: {error}") from None
        else:
            lines = [(f"{Path(text)}:{number}", line) for number, line in enumerate(text_lines, 1)]
            if not any(line.partition("#")[0].strip() for line in text_lines):
                reason = "the file has no shape; expected lines such as 4096x14336,1-64"
                raise CallError(f"--shapes: {Path(text)}:1: {reason}")
    for where, line in lines:
        line = line.partition("#")[0].strip()
        try:
            if line:
                yield from _named(line) if "=" in line else [_shape(line)]
        except ValueError as error:
            raise CallError(f"{where}: {error}") from None


def _named(line: str) -> Iterator[ProductSizes]:
    """The sizes of `M=1:64,N=4096,K=14336`; raises ValueError."""
    written = written_sizes(line, least=0)
    if written.batch or written.groups or written.pad:
        raise ValueError(f"expected M, N and K, found {shown(line)}; --batch gives the matrices of a batch")
    for name, sizes in (("M", written.m), ("N", written.n), ("K", written.k)):
        if max(sizes) > LARGEST_SIZE:
            raise ValueError(f"{name}: expected a size up to {LARGEST_SIZE}, found {max(sizes)}")
    for n, k in itertools.product(written.n, written.k):
        yield ProductSizes(n, k, written.m)


def _shape(line: str) -> ProductSizes:
    """The sizes of `4096x14336,1-64,128`; raises ValueError."""
    match = _SHAPE.fullmatch(line)
    if match is None:
        raise ValueError(f"expected NxK,M..., as in 4096x14336,1-64,128, or a file of such lines, got {shown(line)}")
    n, k = (whole_number(size, 0, LARGEST_SIZE) for size in (match[1], match[2]))
    sizes = sizes_of(match[3].removeprefix(",").split(","), least=0)
    if not sizes:
        raise ValueError(f"{shown(line)} has an empty range of M")
    return ProductSizes(n, k, sizes)
