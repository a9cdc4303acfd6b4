"""Sizes drawn at random: the files are what the generator makes, and nothing is fitted to those that are unseen."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from generator.bench import sampled_sizes
from generator.bench.comparison_plan import Comparison, Families, of_suite
from generator.bench.sampled_sizes import SAMPLES, is_unseen, near
from generator.bench.suite import SHAPES, find, find_shapes, read_shapes, read_suite
from generator.epilogue.chain import Epilogue
from generator.language.model import Dtype, Layout
from generator.problem.product import Problem, Shape
from generator.tune import winners
from tests.helpers.support import GENERATED, ROOT, python

SIZES = {name: read_shapes(find_shapes(name)) for name in SAMPLES}
UNSEEN = {name: sizes for name, sizes in SIZES.items() if name.startswith("unseen_")}
FIT = {name: sizes for name, sizes in SIZES.items() if name.startswith("fit_")}
TUNED = sorted((ROOT / "specs" / "tuned").rglob("*.json"))


def comparisons(suite: str, monkeypatch: pytest.MonkeyPatch) -> list[Comparison]:
    monkeypatch.chdir(ROOT)
    return of_suite(read_suite(find(suite)), Families([], GENERATED))


def test_the_committed_files_are_those_that_the_command_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    committed = {path.stem: path.read_bytes() for path in SHAPES.glob("*.yaml") if path.stem in SAMPLES}
    monkeypatch.setattr(sampled_sizes, "SHAPES", tmp_path)
    assert sampled_sizes.main([]) == 0
    assert {path.stem: path.read_bytes() for path in tmp_path.iterdir()} == committed
    assert committed.keys() == SAMPLES.keys()
    assert sampled_sizes.main(["fit_rcr"]) == 0
    assert capsys.readouterr().out.encode() == committed["fit_rcr"]
    with pytest.raises(SystemExit):
        sampled_sizes.main(["fit_sss"])
    assert "no sample is named 'fit_sss'; known: unseen_fp16_rcr" in capsys.readouterr().err


def test_every_file_that_begins_so_is_a_sample() -> None:
    """A file of that name would be refused by `tune` without being reported by anything."""
    assert {path.stem for path in SHAPES.glob("unseen_*.yaml")} == UNSEEN.keys()
    assert {path.stem for path in SHAPES.glob("fit_*.yaml")} == FIT.keys()


def test_no_two_sizes_are_near() -> None:
    sizes = sorted((shape for sizes in SIZES.values() for shape in sizes), key=lambda shape: shape.sizes)
    for place, shape in enumerate(sizes):
        for other in sizes[place + 1 :]:
            if 99 * other.m > 100 * shape.m:
                break
            apart = (abs(x - y) / max(x, y) for x, y in zip(shape.sizes, other.sizes))
            assert max(apart) > 0.01, f"{shape} and {other}"


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (Shape(100, 512, 1024), Shape(99, 512, 1024), True),
        (Shape(100, 512, 1024), Shape(98, 512, 1024), False),
        (Shape(100, 512, 1024), Shape(100, 512, 1040), False),
        (Shape(1, 512, 1024), Shape(2, 512, 1024), False),
        (Shape(100, 512, 1024), Shape(100, 512, 1024, batch=2), False),
    ],
)
def test_near_is_at_most_one_percent_in_every_size(one: Shape, other: Shape, expected: bool) -> None:
    assert near(one, other) is near(other, one) is expected


@pytest.mark.parametrize("path", TUNED, ids=lambda path: path.name)
def test_no_winner_is_of_an_unseen_size(path: Path) -> None:
    found = winners.read(path).winners
    assert found and [winner.shape for winner in found if is_unseen(winner.shape)] == []


def test_what_is_unseen_is_told_from_what_is_not() -> None:
    assert all(is_unseen(shape) for sizes in UNSEEN.values() for shape in sizes)
    assert not any(is_unseen(shape) for sizes in FIT.values() for shape in sizes)


@pytest.mark.parametrize("name", [name for name in SAMPLES if not SAMPLES[name].layers])
def test_a_sample_has_the_sizes_that_it_promises(name: str) -> None:
    sizes = SIZES[name]
    width = next((width for word, width in (("fp8", 1), ("fp32", 4)) if word in name), 2)
    for shape in sizes:
        assert 1 <= shape.m <= 16384
        for extent in (shape.n, shape.k):
            assert 256 <= extent <= 65536 and extent % (16 // width) == 0
        # fp32 in full precision has less than a tenth of the rate.
        assert 2 * shape.m * shape.n * shape.k <= (1e12 if width == 4 else 40e12)
        assert width * shape.k * (shape.m + shape.n) + max(width, 2) * shape.m * shape.n <= 8e9
    thirds = Counter("few" if shape.m <= 64 else "some" if shape.m <= 1024 else "many" for shape in sizes)
    assert set(thirds) == {"few", "some", "many"} and max(thirds.values()) - min(thirds.values()) <= 1
    assert any(shape.m > 1 and shape.m % 2 for shape in sizes)
    assert min(shape.k for shape in sizes) < 512 and max(shape.k for shape in sizes) > 32768


@pytest.mark.parametrize("name", [name for name in SAMPLES if SAMPLES[name].layers])
def test_a_sample_of_tokens_has_layers_and_rows_just_above_a_tile(name: str) -> None:
    sizes = SIZES[name]
    turned = name.endswith("crr")
    tokens = [shape.k if turned else shape.m for shape in sizes]
    assert len(sizes) == SAMPLES[name].count - len(SAMPLES[name].without) and min(tokens) >= 65 and max(tokens) <= 2048
    above = sum(1 <= count % 64 <= 16 for count in tokens)
    assert 0.5 <= above / len(sizes) <= 0.75
    kind, other = ("unseen", "fit") if name.startswith("unseen") else ("fit", "unseen")
    extents = [(shape.m, shape.n) if turned else (shape.n, shape.k) for shape in sizes]
    layers = sum(each in sampled_sizes.LAYERS[kind] for each in extents)
    assert 0.4 <= layers / len(sizes) <= 0.6
    assert not any(each in sampled_sizes.LAYERS[other] for each in extents)


def test_all_granules_of_n_and_k_are_there() -> None:
    drawn = [sizes for name, sizes in FIT.items() if "tokens" not in name]
    extents = [extent for sizes in drawn for shape in sizes for extent in (shape.n, shape.k)]
    for granule, share in ((64, 0.5), (128, 0.3)):
        found = sum(extent % granule == 0 for extent in extents) / len(extents)
        assert share < found < share + 0.35


def test_the_suite_has_400_sizes_of_16_bits_each_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    found = comparisons("unseen", monkeypatch)
    kinds = Counter((c.problem.dtype.word, c.problem.layout.word) for c in found)
    assert kinds == {(dtype, layout): 50 for dtype in ("fp16", "bf16") for layout in ("rcr", "rrr", "crr", "ccr")}
    assert len({c.problem.shape for c in found}) == 400
    assert sum(65 <= c.problem.shape.m <= 1024 for c in found) >= 120
    assert {c.contestants[0].family for c in found} == {"gemm16"} and all(c.contestants[0].is_contract for c in found)
    assert all(c.case.endswith(f"/unseen_{c.problem.dtype.word}_{c.problem.layout.word}") for c in found)


def test_the_suite_of_tokens_has_260_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = comparisons("unseen_tokens", monkeypatch)
    assert Counter(c.problem.layout.word for c in found) == dict.fromkeys(("rcr", "rrr", "crr", "ccr"), 65)
    assert {c.contestants[0].family for c in found} == {"gemm16"} and all(c.contestants[0].is_contract for c in found)


def test_the_suite_of_eight_bits_times_both_accumulators(monkeypatch: pytest.MonkeyPatch) -> None:
    found = comparisons("unseen_fp8", monkeypatch)
    assert Counter(c.problem.dtype.word for c in found) == {"fp8e4m3": 70, "fp8e4m3_fp32_bf16_fast": 70}
    assert all(c.problem.aligned_rows for c in found), "else torch._scaled_mm has no result to compare with"


@pytest.mark.parametrize(
    ("shape", "layout", "dtype", "expected"),
    [
        (Shape(7, 64, 64), "rcr", "fp16", True),
        (Shape(7, 64, 64), "crr", "fp16", False),
        (Shape(8, 64, 64), "crr", "fp16", True),
        (Shape(8, 60, 64), "rcr", "fp16", False),
        (Shape(8, 64, 60), "rcr", "fp16", False),
        (Shape(8, 64, 60), "rrr", "fp16", False),
        (Shape(8, 64, 60), "crr", "fp16", True),
        (Shape(8, 64, 64, 4), "rcr", "fp16", False),
        (Shape(8, 64, 64, 8), "rcr", "fp16", True),
        (Shape(8, 64, 72), "rcr", "fp8e4m3", False),
        (Shape(8, 72, 64), "rcr", "fp8e4m3", True),
    ],
)
def test_rows_are_aligned_by_the_leading_dimension_of_each_operand(
    shape: Shape, layout: str, dtype: str, expected: bool
) -> None:
    assert Problem(shape, Dtype.of(dtype), Layout.of(layout), Epilogue()).aligned_rows is expected


def test_the_command_prints_a_file() -> None:
    made = python("-m", "generator.bench.sampled_sizes", "unseen_bf16_ccr")
    assert made.stdout == (SHAPES / "unseen_bf16_ccr.yaml").read_text()
