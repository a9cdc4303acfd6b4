"""Suites and shapes as data, and what is said of mistakes in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from generator.bench.problem import Shape
from generator.bench.suite import DEFAULT_SHAPES, SUITES, find, read_shapes, read_suite
from generator.errors import CallError, SpecError

GOOD = """\
summary: two ways
cases:
  - name: squares
    title: Squares
    kernels:
      - {label: one, family: ladder, schedule: tiled, swizzle: grouped}
      - {family: ladder, contract: gemm_fp16_rcr_none}
    shapes: [512x256x128, [1, 2, 3]]
"""


def read(tmp_path: Path, text: str, name: str = "mine.yaml") -> list[str]:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        read_suite(path)
    return [f"{mistake.line}:{mistake.column}: {mistake.message}" for mistake in caught.value.mistakes]


def test_a_suite_is_read_in_its_order(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD)
    suite = read_suite(path)
    (case,) = suite.cases
    assert (suite.name, case.name, case.title) == ("mine", "squares", "Squares")
    assert case.shapes == (Shape(512, 256, 128), Shape(1, 2, 3))
    assert case.choices[0].axes == (("swizzle", "grouped"), ("schedule", "tiled"))
    assert case.choices[1].contract == "gemm_fp16_rcr_none"


def test_json_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    case = {"name": "one", "kernels": [{"family": "ladder", "layout": "rcr"}], "shapes": [[8, 8, 8]]}
    path.write_text(json.dumps({"cases": [case]}))
    assert read_suite(path).cases[0].shapes == (Shape(8, 8, 8),)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title:", "tittle:", "4:5: case: unknown key 'tittle'; did you mean 'title'?"),
        ("schedule: tiled", "schedule: tilde", "6:48: schedule: unknown value 'tilde'; did you mean 'tiled'?"),
        ("schedule: tiled", "schedule: persistent", "6:48: schedule: 'persistent' is not available yet"),
        ("schedule:", "shedule:", "6:38: kernels: unknown key 'shedule'; did you mean 'schedule'?"),
        ("512x256x128", "512x256", "8:14: shapes: expected MxNxK or [M, N, K], each at least 1, found '512x256'"),
        ("[1, 2, 3]", "[1, 0, 3]", "8:27: shapes: expected MxNxK or [M, N, K], each at least 1, found [1, 0, 3]"),
        ("[1, 2, 3]", "512x256x128", "8:27: shapes: '512x256x128' is listed twice"),
        ("name: squares", "name: Squares", "3:11: case.name: expected lower-case letters, digits and _"),
        ("family: ladder, schedule", "family: ../x, schedule", "6:30: kernels.family: '../x' is no name"),
        (
            "{family: ladder, contract: gemm",
            "{layout: rcr, contract: gemm",
            "7:9: kernels: the key 'family' is missing",
        ),
        ("contract:", "layout: rcr, contract:", "7:49: kernels: 'contract' stands alone, found 'layout' beside it"),
        ("cases:", "case:", "2:1: suite: unknown key 'case'; did you mean 'cases'?"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    assert any(found.startswith(message) for found in read(tmp_path, GOOD.replace(old, new, 1)))


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("title:", "tittle:").replace("512x256x128", "0x1x1")
    assert len(read(tmp_path, text)) == 2


def test_two_cases_of_one_name_are_refused(tmp_path: Path) -> None:
    case = GOOD[GOOD.index("  - name") :]
    assert any("'squares' is listed twice" in message for message in read(tmp_path, GOOD + case))


def test_a_missing_file_and_a_missing_suite(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read: No such file"):
        read_suite(tmp_path / "none.yaml")
    with pytest.raises(CallError, match=r"no suite is named 'spin'; known: .*spine"):
        find("spin")
    assert find("a/b.yaml") == Path("a/b.yaml")


def test_shapes_as_a_list_or_under_a_key(tmp_path: Path) -> None:
    path = tmp_path / "shapes.json"
    path.write_text('["1x2x3", [4, 5, 6]]')
    assert read_shapes(path) == (Shape(1, 2, 3), Shape(4, 5, 6))
    assert Shape(4096, 4096, 4096) in read_shapes(DEFAULT_SHAPES)


def test_the_suites_shipped_are_sound() -> None:
    for path in SUITES.glob("*.yaml"):
        assert read_suite(path).cases
