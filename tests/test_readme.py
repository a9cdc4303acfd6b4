"""README.md and docs/ say what is so: of examples, words of the language, proofs, and messages that the code has."""

import ast
import functools
import json
import re

import pytest

from generator.commands.command_line import main as render
from generator.emit.code_parts import of_file
from generator.language.dtypes import NAMING
from generator.language.targets import TARGETS
from generator.language.vocabulary import CHOICES, WORDS
from tests.helpers import shipped, support

ROOT = support.ROOT
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = ROOT / "docs"
PROVING = (DOCS / "proving.md").read_text(encoding="utf-8")
TUNED = ROOT / "specs" / "tuned"


@pytest.mark.parametrize(
    "path", sorted({*TUNED.glob("*/*.json")} - {*TUNED.glob("*/torch.json")}), ids=lambda path: path.stem
)
def test_what_is_tuned_was_measured_of_kernels_as_they_are(path, tmp_path):
    """A kernel whose code has changed since may be slower or faster: measure it again."""
    if (ROOT / "specs" / f"{path.stem}.yaml").is_file():
        folder = shipped.folder(path.stem)
    else:
        folder = tmp_path / path.stem
        assert render([str(ROOT / "measured" / "specs" / f"{path.stem}.yaml"), "--out", str(tmp_path)]) == 0
    measured = json.loads(path.read_text())["kernels"]
    assert measured and all(of_file(folder / f"{name}.py").timed == digest for name, digest in measured.items())


def test_the_kernel_shown_is_the_one_rendered():
    shown = re.search(r"```python\n(    acc = .*?)```", README, re.S)
    rendered = ROOT / "generated" / "ladder" / "gemm_fp16_rcr_none__tiled_pointer_mnk_grouped.py"
    assert shown[1] in rendered.read_text(encoding="utf-8")


def test_the_operations_shown_are_those_of_the_specs():
    shown = re.findall(r"```yaml\n(ops:\n.*?)epilogue:", (DOCS / "epilogues.md").read_text(encoding="utf-8"), re.S)
    rendered = "".join((ROOT / "specs" / name).read_text(encoding="utf-8") for name in ("ops.yaml", "gated.yaml"))
    assert len(shown) == 2
    assert all(line in rendered for block in shown for line in block.splitlines())


def test_the_axes_named_are_those_of_the_language():
    table = (DOCS / "spec.md").read_text(encoding="utf-8")
    words = {*NAMING}
    words.update(*CHOICES.values(), *WORDS.values())
    assert {word for word in words if not re.search(rf"\b{word}\b", table)} == set()


def test_the_correction_that_is_shown_makes_products_of_bf16_right():
    calling = (DOCS / "calling.md").read_text(encoding="utf-8")
    shown = re.search(r"```python\n([^`]*interpreter\.install\(\)\n)```", calling)
    call = """
import torch
from generated.fused import gemm_bf16_rcr_bias_relu
a, b, bias = torch.randn(40, 72).bfloat16(), torch.randn(24, 72).bfloat16().T, torch.randn(24).bfloat16()
exact = torch.relu(a.double() @ b.double() + bias.double())
torch.testing.assert_close(gemm_bf16_rcr_bias_relu(a, b, bias=bias), exact.bfloat16())
"""
    done = support.python("-c", f"{shown[1]}{call}", env={"TRITON_INTERPRET": "1"})
    assert done.returncode == 0, done.stderr
    # Triton's own product of bf16 is that of integers: the page need not say so once it is not.
    assert support.python("-c", call, env={"TRITON_INTERPRET": "1"}).returncode == 1


def test_every_target_is_told():
    table = PROVING.split("how far its kernels are proved |")[1].split("\n\n")[0]
    assert {target for target in TARGETS if not re.search(rf"\b{target}\b", table)} == set()


PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
MESSAGES = re.findall(r"^\| `(.{8,}?)` \| ", PAGE, re.M)


def text(node):
    """A string as the code writes it, with `…` for what is put into it."""
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=values):
            return "".join(text(value) for value in values)
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return text(left) + text(right)
    return "…"


@functools.cache
def everything():
    """All texts of the generator and its templates."""
    found = []
    for path in sorted((ROOT / "generator").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found += [text(node) for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp)]
    found += [path.read_text(encoding="utf-8") for path in sorted((ROOT / "templates").rglob("*.j2"))]
    return "\n".join(found)


@pytest.mark.parametrize("message", MESSAGES)
def test_an_entry_is_of_a_message(message):
    parts = [part for part in message.split("…") if len(part.strip()) > 3]
    assert parts and [part for part in parts if part not in everything()] == []


def test_every_entry_is_found():
    assert len(MESSAGES) == len(re.findall(r"^\| `", PAGE, re.M)) > 30
