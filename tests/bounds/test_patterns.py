"""Helpers are known by their syntax trees: words and spelling are free, and nothing that means another thing passes."""

import ast
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from generator import runtime
from generator.bounds import NotUnderstood, prove
from generator.bounds.patterns import assigned, dotted, expression, matches
from generator.emit.syntax_digest import undocumented
from tests.helpers.bounds import kernels
from tests.helpers.bounds.kernels import AUTO, planted, proof_of

BATCHES = "batched/bmm_fp16_rcr_bias_relu__persistent_descriptor_auto_grouped"


def tree(text):
    (statement,) = ast.parse(text).body
    return statement


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("f(1)", "f(True)"),
        ("f(1)", "f(1.0)"),
        ("x - y - z", "x - (y - z)"),
        ("x and y and z", "x and (y and z)"),
        ("f(x)", "f(x=x)"),
        ("f(x, y)", "f($x)"),
        ("f(x)", "f($x, $y, *$more)"),
        ("f(a + 1, a + 2)", "f($x, $x)"),
        ("f(x, x=1)", "f(x)"),
        ("f(x=1)", "f(*$more)"),
        ("return", "return $x"),
        ("x = y", "x += y"),
        ("def f(x):\n    return x", "def f(y):\n    return y"),
        ("def f(x=1):\n    return x", "def f(x):\n    return x"),
        ("def f(x, *, y):\n    return x", "def f(x, y):\n    return x"),
        ("@g\ndef f(x):\n    return x", "def f(x):\n    return x"),
        ("def f(x):\n    return x\n    'words'", "def f(x):\n    return x"),
        ("f'{x!r}'", "f'{x}'"),
        ("x if y else z", "x if y else (z, )"),
        ("HOLE", "$HOLE + 1"),
    ],
)
def test_another_tree(text, pattern):
    assert not matches(tree(text), pattern)


def test_what_else_is_asked_of_trees():
    body = ast.parse("'words'\nfor a, b[0] in c:\n    d += (e := 1)\n    def f(g):\n        del h\n").body
    assert assigned(body) == {"a", "d", "e", "f", "h"}
    assert [dotted(expression(x)) for x in ("a", "a.b.c", "a().b", "a[0]", "1")] == ["a", "a.b.c", "", "", ""]


def proved(proof):
    return Counter((access.operand, access.kind, access.state, str(access.row)) for access in proof.accesses)


KERNELS = (
    *(kernels.AUTO, kernels.NONE, kernels.STRIDED, kernels.BLOCK, kernels.NAIVE, kernels.ELEMENT, kernels.HILBERT),
    *(kernels.CHIPLET, kernels.DESCRIPTOR, kernels.TUNED, kernels.SCALE, BATCHES, kernels.OUTPUTS, kernels.DEALT),
    *(kernels.PARTS, kernels.SUMS_DESCRIPTORS, kernels.ADDS),
)


def respelled(text):
    """The same program: other words, no line breaks within statements, other quotes, comments, and parentheses."""
    module = ast.parse(text)
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef):
            node.body = [ast.Expr(ast.Constant("Other words.\n\nif a: return b")), *undocumented(node)]
    found = ast.unparse(ast.fix_missing_locations(module))
    found = re.sub(r"^( *)(return|if|raise) ", r"\1# if False: return\n\1\2 ", found, flags=re.MULTILINE)
    found = re.sub(r"^( *)return (\w[^\n]*)$", r"\1return ((\2))", found, flags=re.MULTILINE)
    return re.sub(r"^( *)(if|elif|while) (.*):$", r"\1\2 ((\n\1  \3\n\1  )  # why\n\1):", found, flags=re.MULTILINE)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.partition("__")[2])
def test_words_and_spelling_are_free(kernel, tmp_path):
    text = planted(kernel)
    again = respelled(text)
    assert "((" in again and ast.dump(ast.parse(text)) != ast.dump(ast.parse(again))
    before, after = proof_of(tmp_path, text), proof_of(tmp_path, again)
    assert proved(before) == proved(after) and before.order == after.order
    assert "not proved" not in {access.state for access in after.accesses} and after.order.state == "proved"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("from math import prod as max", "max"),
        ("import numpy as torch", "torch"),
        ("from other import *", r"\*"),
        ("from other import cost", "cost"),
        ("CALL = 1", "CALL"),
        ("tl = 1", "tl"),
    ],
)
def test_a_name_means_one_thing(line, name, tmp_path):
    text = planted(AUTO)
    with pytest.raises(NotUnderstood, match=f"another {name}$"):
        proof_of(tmp_path, f"{text}\n\n{line}\n")
    # What says nothing of these may be imported.
    assert proved(proof_of(tmp_path, f"{text}\n\nimport math\nfrom math import prod\n")) == proved(
        proof_of(tmp_path, text)
    )


def test_another_library_is_not_understood(tmp_path):
    library = tmp_path / "_runtime"
    shutil.copytree(Path(runtime.__file__).parent, library)
    module = library / "call.py"
    module.write_text("# Rendered.\n" + module.read_text())
    assert proof_of(tmp_path, planted(AUTO)).order.state == "proved"
    module.write_text(f"{module.read_text()}\nMOST = 2**40\n")
    proof = proof_of(tmp_path, planted(AUTO))
    assert proof.order.state == "not proved" and {access.state for access in proof.accesses} == {"not proved"}
    told = "the family's _runtime is another one (call.py differs from this package's): render it again"
    assert proof.order.detail.startswith("not understood: line ") and proof.order.detail.endswith(told)
    module.unlink()
    assert proof_of(tmp_path, planted(AUTO)).order.detail.endswith(told)


def test_a_file_without_a_kernel_is_refused(tmp_path):
    path = tmp_path / "empty.py"
    path.write_text('"""Nothing."""\n\nimport triton.language as tl\n')
    with pytest.raises(NotUnderstood, match="no function gemm_kernel"):
        prove(path)
