"""Which modules of the library a family has: only those that its kernels and functions can need."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from generator.commands.command_line import main
from generator.emit.render import OPTIONAL

PLAIN = "summary: A product.\nlayout: rcr\ndtype: fp16\nload: pointer\n"


def modules(folder: Path, spec: str) -> set[str]:
    """The modules of a rendered family, each of which Python can parse."""
    (folder / "family.yaml").write_text(spec)
    assert main([str(folder / "family.yaml"), "--out", str(folder)]) == 0
    paths = [*(folder / "family" / "_runtime").glob("*.py")]
    assert all(ast.parse(path.read_text()) for path in paths)
    return {path.stem for path in paths} - {"__init__"}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", {"copies"}),
        ("select: fastest\n", {"copies", "ranking", "spreading"}),
        ("schedule: stream_k\n", {"copies", "workspaces"}),
        ("layout: [rcr, rrr]\n", {"copies", "turned"}),
        ("load: descriptor\n", {"copies", "tensor_maps"}),
        ("dtype: bf16\n", {"copies", "interpreted_bf16"}),
        ("batch: grouped\n", {"grouped_calls", "spreading"}),
        ("backward: kernels\n", {"autograd", "copies", "recorded", "turned"}),
        ("invariant: rows\n", set()),
    ],
)
def test_a_family_has_the_modules_that_it_needs(tmp_path: Path, more: str, expected: set[str]) -> None:
    key = more.partition(":")[0]
    spec = "".join(line + "\n" for line in PLAIN.splitlines() if not more or not line.startswith(f"{key}:")) + more
    found = modules(tmp_path, spec)
    assert found & OPTIONAL == expected
    assert ("pack" in found, "linear" in found) == (False, "batch" not in more)
