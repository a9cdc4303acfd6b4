"""The digest of a rendered file from its statements: the same as of the whole file, and parsed once a statement."""

import pytest

from generator.emit.divided_text import divided_digest
from generator.emit.file_digests import unformatted_digest
from tests.helpers import shipped

#: Kernels with every schedule, gradients, and the library.
FOLDERS = ("fused", "ladder", "stream_k", "training", "stored")


@pytest.mark.parametrize("folder", FOLDERS)
def test_it_is_the_digest_of_the_whole_file(folder):
    for path in sorted(shipped.folder(folder).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert divided_digest(text, path.stem) == unformatted_digest(text), path


KERNEL = '''# A comment.
"""A kernel."""

import triton


@triton.heuristics(
    {
        "EVEN": lambda args: True,
    }
)
@triton.jit
def gemm_one(
    a_ptr,
):
    # The first tile.
    for k in range(a_ptr):
        x = f"{k}" "b"
        if x:
            y = 1
        # None.
        else:
            y = 2
    else:
        z = 3
'''


@pytest.mark.parametrize(
    "text",
    [
        KERNEL,
        KERNEL.replace("    # The first", '    """What it does.\n\n    And how.\n    """\n    # The first'),
        KERNEL.replace("    # The first", "    'What it does.'\n    # The first"),
        KERNEL.replace("    # The first", "    def inner():\n        '''Inner.'''\n\n    # The first"),
        KERNEL.replace("A kernel.", "A kernel named gemm_one, `and so on`."),
        KERNEL + '\n\n\nTEXT = """\nimport triton\n    x = 1\n"""\n',
        KERNEL + "\n\nasync def f():\n    try:\n        pass\n    finally:\n        pass\n",
        KERNEL.replace("import triton", "import triton; import torch"),
        KERNEL.replace("A kernel.", "A \\x41."),
        KERNEL.replace("import triton", "import ("),
        KERNEL.replace('    x = f"', '    name_of_the_file = f"'),
        KERNEL.replace("def gemm_one", "def GEMM"),
        KERNEL + "@",
        "",
    ],
)
def test_text_of_any_kind_has_the_same_digest_or_none(text):
    found = divided_digest(text, "gemm_one")
    assert found in (None, unformatted_digest(text)) and (found or text != KERNEL)
