"""`package --format cubin`: kernels of a family as C files, compiled for a device and sizes."""

from __future__ import annotations

import argparse
from pathlib import Path

from generator.commands.prepare import shapes_of
from generator.emit import manifest_reader
from generator.emit.cubin.sources import files as sources_of
from generator.emit.cubin.sources import require_c_name
from generator.emit.job import counted
from generator.emit.package import require_folder, write_folder
from generator.emit.packed_family import packed_files
from generator.language.errors import CallError
from generator.plan.devices import named
from generator.verify.cubin_package import compiled_package


def run(options: argparse.Namespace) -> int:
    """Write the files and return 0; raises `CallError` for a wrong call, `Refused` for files in the way."""
    require_folder(options.out)
    families = [manifest_reader.read(folder) for folder in options.families]
    if len(families) > 1:
        raise CallError(f"package: --format cubin takes one family, found {len(families)}")
    (family,) = families
    if family.package == "files":
        reason = "has no functions, which choose among kernels: render it with 'package: torch' or 'plain'"
        raise CallError(f"package: --format cubin: {family.name} {reason}")
    # What is compiled is what was proved.
    packed_files(family)
    device = named(options.device)
    shapes, count = shapes_of(options.shapes, "1" if options.batch is None else options.batch, 1)
    if empty := next((shape for shape in shapes if 0 in (shape.n, shape.k)), None):
        raise CallError(f"package --format cubin: --shapes: {empty.n}x{empty.k}: N and K must be above 0")
    name = family.name if options.name is None else options.name
    require_c_name(name)
    only = "*" if options.only is None else options.only
    package = compiled_package(family, name, device, shapes, only=only, count=count)
    files = {Path(path): text.encode() for path, text in sources_of(package)}
    for contract, reason in package.left_out:
        print(f"left out: {contract}: {reason}")
    if not write_folder(options.out, files):
        print(f"{options.out}: same")
        return 0
    size = sum(len(image.data) for image in package.images) / 1e3
    functions, cubins = counted(len(package.contracts), "function"), counted(len(package.images), "cubin")
    print(f"{options.out}: {counted(len(files), 'file')}; {functions} for {device.name}, {cubins} of {size:.0f} kB")
    return 0
