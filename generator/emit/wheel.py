"""Rendered families as a wheel: a package with a subpackage for each family, which pip installs without building."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Iterator, Sequence

from packaging.version import InvalidVersion, Version

import generator
from generator.emit.apply import MANIFEST
from generator.emit.packed_family import Packed, license_expression
from generator.language.errors import CallError, shown
from generator.language.family_names import distribution, why_no_package
from generator.language.versions import SUPPORTED, spelled

#: A longer version makes the name of a file too long, or has a number that Python does not read.
_LONGEST = 100
#: The earliest time that a file of a zip archive can have, so that the same families make the same bytes.
_TIME = (1980, 1, 1, 0, 0, 0)


def wheel(families: Sequence[Packed], name: str, version: str, license: str | None) -> tuple[str, bytes]:
    """The file name and the bytes of the wheel of the package `name`, whose subpackages are the families.

    Raises `CallError` for a name, a version or a licence that a wheel cannot have.
    """
    reason = why_no_package(name)
    if reason is not None:
        raise CallError(f"package: --name: {reason}")
    expression = None if license is None else license_expression(license)
    if license is not None and expression is None:
        expected = "no licence expression of SPDX, such as MIT or Apache-2.0"
        raise CallError(f"package: --license: {shown(license)} is {expected}")
    try:
        if len(version) > _LONGEST:
            raise InvalidVersion
        number = str(Version(version))
    except InvalidVersion:
        raise CallError(f"package: --version: {shown(version)} is not a version, such as 1.0") from None
    # The parts of a wheel's name, and of its folder of metadata, are written with single underscores.
    stem = f"{distribution(name).replace('-', '_')}-{number}"
    info = f"{stem}.dist-info"
    files = dict(_files(families, name))
    files[f"{info}/METADATA"] = _metadata(families, name, number, expression).encode()
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: gemm-generator {generator.__version__}\n"
        "Root-Is-Purelib: true\nTag: py3-none-any\n"
    ).encode()
    lines = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zip_file:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, _TIME)
            entry.external_attr = 0o644 << 16
            zip_file.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return f"{stem}-py3-none-any.whl", archive.getvalue()


def _files(families: Sequence[Packed], name: str) -> Iterator[tuple[str, bytes]]:
    listed = "".join(f"\n    {each.family.name}" for each in families)
    yield f"{name}/__init__.py", f'"""Rendered GEMM kernels, a subpackage for each family:\n{listed}\n"""\n'.encode()
    for each in families:
        for file, text in (*sorted(each.texts.items()), (MANIFEST, each.manifest())):
            yield f"{name}/{each.family.name}/{file}", text.encode()


def _metadata(families: Sequence[Packed], name: str, version: str, license: str | None) -> str:
    named = ", ".join(each.family.name for each in families)
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {distribution(name)}",
        f"Version: {version}",
        f"Summary: GEMM kernels in Triton: {named}",
        *([f"License-Expression: {license}"] if license else []),
        "Requires-Python: >=3.10",
        "Requires-Dist: torch>=2.11",
        f"Requires-Dist: triton{spelled(SUPPORTED)}",
    ]
    return "\n".join(lines) + "\n"


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
