"""Rendered families as a wheel: a package with a subpackage for each family, which pip installs without building."""

from __future__ import annotations

import base64
import hashlib
import io
import keyword
import re
import zipfile
from collections.abc import Iterator, Sequence

from packaging.version import InvalidVersion, Version

import generator
from generator.emit.apply import MANIFEST, read_manifest
from generator.emit.manifest_reader import Rendered
from generator.language.errors import CallError
from generator.language.versions import SUPPORTED, spelled

_NAME = re.compile(r"[a-z][a-z0-9_]*")
#: An SPDX licence expression, as far as a line of metadata needs it.
_LICENSE = re.compile(r"[A-Za-z0-9.+() -]+")
#: The earliest time that a file of a zip archive can have, so that the same families make the same bytes.
_TIME = (1980, 1, 1, 0, 0, 0)


def wheel(families: Sequence[Rendered], name: str, version: str, license: str | None) -> tuple[str, bytes]:
    """The file name and the bytes of the wheel `name`, whose subpackages are the families.

    Raises `CallError` for a name, a version or a licence that a wheel cannot have.
    """
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise CallError(f"package: --name: {name!r} is not the name of a package; expected letters, digits and _")
    if license is not None and not _LICENSE.fullmatch(license):
        raise CallError(f"package: --license: {license!r} is no licence expression, such as MIT or Apache-2.0")
    try:
        number = str(Version(version))
    except InvalidVersion:
        raise CallError(f"package: --version: {version!r} is not a version, such as 1.0") from None
    info = f"{name}-{number}.dist-info"
    files = dict(_files(families, name))
    files[f"{info}/METADATA"] = _metadata(families, name, number, license).encode()
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: gemm-generator {generator.__version__}\n"
        "Root-Is-Purelib: true\nTag: py3-none-any\n"
    ).encode()
    lines = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, _TIME)
            entry.external_attr = 0o644 << 16
            made.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return f"{name}-{number}-py3-none-any.whl", archive.getvalue()


def _files(families: Sequence[Rendered], name: str) -> Iterator[tuple[str, bytes]]:
    listed = "".join(f"\n    {family.name}" for family in families)
    yield f"{name}/__init__.py", f'"""Rendered GEMM kernels, a subpackage for each family:\n{listed}\n"""\n'.encode()
    for family in families:
        for file in (*sorted((read_manifest(family.folder) or {})["files"]), MANIFEST):
            yield f"{name}/{family.name}/{file}", (family.folder / file).read_bytes()


def _metadata(families: Sequence[Rendered], name: str, version: str, license: str | None) -> str:
    named = ", ".join(family.name for family in families)
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {name.replace('_', '-')}",
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
