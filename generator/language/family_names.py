"""Which names a family, a package of families and its distribution may have, and why not another.

A family's folder is a Python package, part of a wheel, and a folder on every system. The verdict is the same on every
version of Python and on every system.
"""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Mapping

from generator.language.errors import shown

#: A name that is valid as a folder and as a Python package, and never a path.
NAME = "[a-z][a-z0-9_]*"
LONGEST_NAME = 64

#: Modules of Python 3.10 to 3.15 that not every one of these versions lists as those of its standard library.
_STANDARD_LIBRARY = """
aifc annotationlib asynchat asyncore audioop binhex cgi cgitb chunk compression crypt distutils imghdr imp lib2to3
mailcap msilib nis nntplib nturl2path ossaudiodev pipes profiling sitecustomize smtpd sndhdr spwd sre_compile
sre_constants sre_parse sunau telnetlib test tomllib usercustomize uu xdrlib
"""
#: What torch and Triton need, by the name under which it is imported.
_NEEDED = """
cuda filelock fsspec functorch isympy jinja2 markupsafe mpmath networkx nvidia pkg_resources setuptools sympy torchgen
typing_extensions
"""
#: The generator, what it needs, and what packages of kernels are loaded and tested with.
_TOOLS = """
covertable distributed fastjsonschema gemm_generator generator huggingface_hub kernels packaging pip pluggy pytest
ruff tqdm wheel yaml z3
"""
#: Names that Windows keeps for devices, with any extension.
_DEVICES = frozenset({"con", "prn", "aux", "nul", *(f"{port}{x}" for port in ("com", "lpt") for x in range(10))})

#: Name -> why no family has it.
_RESERVED: Mapping[str, str] = {
    **dict.fromkeys(
        (*sys.stdlib_module_names, *_STANDARD_LIBRARY.split()),
        "is a module of Python's standard library, which it would replace",
    ),
    **dict.fromkeys(_NEEDED.split(), "is a module that torch or Triton needs, which it would replace"),
    **dict.fromkeys(_TOOLS.split(), "is a module of the generator or of a tool, which it would replace"),
    **dict.fromkeys(("torch", "triton", "numpy"), "is a module that rendered code imports, which it would replace"),
    **dict.fromkeys(_DEVICES, "is a device on Windows, so no folder can have the name"),
}
#: Distributions over which a wheel of that name would be installed.
_DISTRIBUTIONS = frozenset(
    {*(name.replace("_", "-") for name in _RESERVED), "pytorch-triton", "pyyaml", "triton-windows"}
)


def why_no_identifier(text: str, longest: int = LONGEST_NAME) -> str | None:
    """Why `text` is no name of a spec's operation, operand or family; None if it can be one."""
    if not re.fullmatch(NAME, text):
        return f"{shown(text)} is not a name; expected lower-case letters, digits and _, a letter first"
    if keyword.iskeyword(text):
        return f"{text!r} is a keyword of Python and cannot be imported"
    if len(text) > longest:
        return f"the name has {len(text)} characters, at most {longest} are allowed"
    return None


def why_no_family(text: str, longest: int = LONGEST_NAME) -> str | None:
    """Why `text` is no name of a family or of a package; None if it can be one."""
    reason = why_no_identifier(text, longest)
    if reason is None and text in _RESERVED:
        return f"{text!r} {_RESERVED[text]}; choose another name, such as {text}_gemm"
    return reason


def why_no_package(name: str) -> str | None:
    """Why `name` is no name of a package that a distribution of the same name holds; None if it can be one."""
    # The default is the name of a family with a few letters behind it.
    reason = why_no_family(name, LONGEST_NAME + 16)
    if reason is not None:
        return reason
    own = distribution(name)
    if name.endswith("_"):
        return f"{name!r} ends with _, but the name of a distribution ends with a letter or a digit"
    if own in _DISTRIBUTIONS:
        return f"{name!r} would be installed over the distribution {own}; choose another name, such as {name}_gemm"
    return None


def distribution(name: str) -> str:
    """The name of a package's distribution as package indexes compare names (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
