"""Suites and shapes as data, and what is said of mistakes in them; sizes that nothing is fitted to."""

import json
from pathlib import Path

import pytest

from generator.bench import suite
from generator.bench.comparison_plan import Families, of_specs, of_suite
from generator.bench.suite import DEFAULT_SHAPES, SHAPES, find, find_shapes, is_unseen, read_shapes, read_suite
from generator.language.errors import CallError, SpecError
from generator.problem.product import Shape
from generator.tune import winners
from tests.helpers.support import ROOT, render_spec

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


def read(tmp_path, text, name="mine.yaml"):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        read_suite(path)
    return [f"{mistake.line}:{mistake.column}: {mistake.message}" for mistake in caught.value.mistakes]


def test_a_suite_is_read_in_its_order(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD)
    found = read_suite(path)
    (case,) = found.cases
    assert (found.name, case.name, case.title) == ("mine", "squares", "Squares")
    assert case.shapes == (Shape(512, 256, 128), Shape(1, 2, 3))
    assert case.choices[0].axes == (("swizzle", "grouped"), ("schedule", "tiled"))
    assert case.choices[1].contract == "gemm_fp16_rcr_none"


def test_a_case_over_files_of_shapes_is_a_case_for_each(tmp_path, monkeypatch):
    monkeypatch.setattr(suite, "SHAPES", tmp_path)
    (tmp_path / "few_rows.yaml").write_text("[1x2x3, 2x2x3]")
    path = tmp_path / "mine.yaml"
    options = "seconds: 0.4\npeer: cublas,inductor\nbound: 0.93\nby_rows: true\n"
    text = options + GOOD.replace("[1, 2, 3]]", "few_rows, 7x5x3+1]")
    path.write_text(text)
    found = read_suite(path)
    assert (found.seconds, found.peers, found.bound, found.by_rows) == (0.4, ("cublas", "inductor"), 0.93, True)
    own, named = found.cases
    assert own.peers is named.peers is None
    path.write_text(text.replace("    kernels:", "    peer: cublas\n    kernels:", 1))
    assert [case.peers for case in read_suite(path).cases] == [("cublas",), ("cublas",)]
    assert (own.name, own.shapes) == ("squares", (Shape(512, 256, 128), Shape(7, 5, 3, 1)))
    assert (named.name, named.title, named.shapes) == (
        "squares/few_rows",
        "Squares: few rows",
        (Shape(1, 2, 3), Shape(2, 2, 3)),
    )
    assert named.choices == own.choices
    assert str(own.shapes[1]) == "7x5x3+1"
    (tmp_path / "few_rows.yaml").write_text("[1x2]")
    with pytest.raises(SpecError, match=r"few_rows.yaml:1:2: shapes: expected"):
        read_suite(path)
    assert any("did you mean 'few_rows'?" in line for line in read(tmp_path, text.replace("few_rows", "fewrows")))


def test_all_mistakes_are_told_at_once(tmp_path):
    text = GOOD.replace("title:", "tittle:").replace("512x256x128", "0x1x1")
    assert len(read(tmp_path, text)) == 2
    assert any("listed twice" in line for line in read(tmp_path, GOOD + GOOD[GOOD.index("  - name") :]))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title:", "tittle:", "4:5: case: unknown key 'tittle'; did you mean 'title'?"),
        ("schedule: tiled", "schedule: tilde", "6:48: schedule: unknown value 'tilde'; did you mean 'tiled'?"),
        ("schedule:", "shedule:", "6:38: kernels: unknown key 'shedule'; did you mean 'schedule'?"),
        ("[1, 2, 3]", "[1, 0, 3]", "8:27: shapes: expected MxNxK"),
        ("name: squares", "name: Squares", "3:11: case.name: expected lower-case letters, digits and _"),
        ("family: ladder, schedule", "family: ../x, schedule", "6:30: kernels.family: '../x' is not a name"),
        (
            "{family: ladder, contract: gemm",
            "{layout: rcr, contract: gemm",
            "7:9: kernels: the key 'family' is missing",
        ),
        ("contract:", "layout: rcr, contract:", "7:49: kernels: 'contract' excludes axes, found 'layout' beside it"),
        ("summary: two ways", "seconds: 0", "1:10: seconds: expected a number above 0, found 0"),
        ("summary: two ways", "by_rows: 1", "1:10: by_rows: expected true or false, found 1"),
        ("summary: two ways", "peer: mkl", "1:7: peer: invalid choice: 'mkl'"),
        ("summary: two ways", "peer: cublas,cublas", "1:7: peer: a peer is named twice"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path, old, new, message):
    assert old in GOOD
    assert any(found.startswith(message) for found in read(tmp_path, GOOD.replace(old, new, 1)))


def test_a_missing_file_and_a_missing_suite(tmp_path):
    with pytest.raises(SpecError, match="cannot be read: No such file"):
        read_suite(tmp_path / "none.yaml")
    with pytest.raises(CallError, match=r"no suite is named 'spin'; known: .*spine"):
        find("spin")
    with pytest.raises(CallError, match=r"no file of shapes is named 'spin'; known: .*default"):
        find_shapes("spin")
    for found in (find, find_shapes):
        assert found("a/b") == Path("a/b") and found("b.yaml") == Path("b.yaml")


def test_shapes_as_a_list_or_under_a_key(tmp_path):
    path = tmp_path / "shapes.json"
    case = {"name": "one", "kernels": [{"family": "ladder", "layout": "rcr"}], "shapes": [[8, 8, 8]]}
    path.write_text(json.dumps({"cases": [case]}))
    assert read_suite(path).cases[0].shapes == (Shape(8, 8, 8),)
    assert Shape(4096, 4096, 4096) in read_shapes(find_shapes(DEFAULT_SHAPES))


def test_kernels_of_another_rounding_are_not_compared_and_those_of_another_math_are(tmp_path):
    exact = "summary: x\nlayout: rcr\ndtype: fp16\nepilogue: silu\n"
    specs = [tmp_path / f"{name}.yaml" for name in ("exact", "fast", "rounded")]
    for path, more in zip(specs, ("", "math: fast\n", "rounding: [late, torch]\n")):
        render_spec(tmp_path, path.stem, exact + more)
    families = Families(specs, tmp_path)

    def planned(*choices):
        path = tmp_path / "suite.yaml"
        lines = "".join(f"      - {{{choice}}}\n" for choice in choices)
        path.write_text(f"cases:\n  - name: one\n    kernels:\n{lines}    shapes: [8x8x8]\n")
        (found,) = of_suite(read_suite(path), families)
        return len(found.contestants)

    assert planned("family: exact", "family: fast, label: fast") == 2
    assert planned("family: exact", "family: rounded, rounding: late, label: late") == 2
    for choices in (["family: exact", "family: rounded, rounding: torch"], ["family: rounded"]):
        with pytest.raises(CallError, match=r"case 'one': rounding is late in .* and torch in gemm_.*_roundingtorch__"):
            planned(*choices)
    # Each contract by itself, of one spec.
    assert len(of_specs(Families([tmp_path / "rounded.yaml"], tmp_path), (Shape(8, 8, 8),))) == 2


def test_batches_are_timed_on_shapes_of_batches(tmp_path):
    render_spec(tmp_path, "several", "summary: Batches.\nlayout: rcr\ndtype: fp16\nbatch: [none, strided]\n")
    families = Families([tmp_path / "several.yaml"], tmp_path)
    single, batch = Shape(8, 8, 8), Shape(8, 8, 8, batch=4)
    with pytest.raises(CallError, match=r"bmm_fp16_rcr_none__.* multiplies batches, and needs shapes BxMxNxK; found"):
        of_specs(families, (single,))
    with pytest.raises(CallError, match=r"gemm_fp16_rcr_none__.* multiplies single products, .* found 4x8x8x8"):
        of_specs(families, (batch,))
    assert [str(found.problem.shape) for found in of_specs(families, (single, batch))] == ["8x8x8", "4x8x8x8"]


SIZES = {path.stem: read_shapes(path) for path in sorted(SHAPES.glob("*.yaml"))}
#: Files of winners.
TUNED = sorted(path for path in (ROOT / "specs" / "tuned").rglob("*.json") if path.stem != "torch")


def test_fitted_sizes_are_none_of_the_unseen_ones():
    """The samples of one kind are checked in steps, because each size is compared with all unseen ones."""
    unseen = [shape for name, sizes in SIZES.items() if name.startswith("unseen_") for shape in sizes]
    fit = [shape for name, sizes in SIZES.items() if name.startswith("fit_") for shape in sizes]
    assert len(unseen) > 900 and len(fit) > 1800
    assert all(is_unseen(shape) for shape in unseen[::20])
    assert not any(is_unseen(shape) for shape in fit[::5])


@pytest.mark.parametrize("path", TUNED, ids=lambda path: path.name)
def test_no_winner_is_of_an_unseen_size(path):
    found = winners.read(path).winners
    assert found and [winner.shape for winner in found if is_unseen(winner.shape)] == []
