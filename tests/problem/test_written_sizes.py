"""Numbers and sizes that calls and files give: ranges and names, read in one way, and refused with what is wrong."""

import re
from pathlib import Path

import pytest

from generator.bench.suite import given_shapes, read_shapes, read_suite
from generator.bounds import runtime_theorems
from generator.commands import explain, prepare
from generator.language.call_numbers import MOST_ELEMENTS, MOST_SIZES, number_above_0, sizes_of, too_large, whole_number
from generator.language.errors import CallError, SpecError
from generator.language.measured_values import LARGEST_SIZE
from generator.problem.product import Shape
from generator.problem.written_sizes import written_sizes
from generator.runtime import call
from tests.helpers.support import BASE, GENERATED, called

POWERS = (1, 2, 4, 8, 16, 32, 64)


@pytest.mark.parametrize(
    ("part", "sizes"),
    [
        ("1:4", (1, 2, 3, 4)),
        ("1-4", (1, 2, 3, 4)),
        ("7:7", (7,)),
        ("1:64:*2", POWERS),
        ("3:100:*3", (3, 9, 27, 81)),
        ("16:64:16", (16, 32, 48, 64)),
        ("1:10:4", (1, 5, 9)),
        ("5:6:*2", (5,)),
    ],
)
def test_a_range_has_both_its_ends(part, sizes):
    assert sizes_of([part]) == sizes
    assert written_sizes(f"{part}x16x32").m == written_sizes(f"K=32,M={part},N=16").m == sizes
    assert written_sizes(f"8x{part}x32").n == written_sizes(f"8x16x{part}").k == sizes


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("1:2x3x4", [Shape(1, 3, 4), Shape(2, 3, 4)]),
        ("M=1:2,N=3:4,K=5", [Shape(1, 3, 5), Shape(2, 3, 5), Shape(1, 4, 5), Shape(2, 4, 5)]),
        ("m = 1, n = 2, k = 3", [Shape(1, 2, 3)]),
        ("1:2x3x4x5", [Shape(3, 4, 5, batch=1), Shape(3, 4, 5, batch=2)]),
        ("B=2,M=3,N=4,K=5,pad=8", [Shape(3, 4, 5, 8, 2)]),
        ("2:3g4x5x6:zipf", [Shape(4, 5, 6, groups=2, routing="zipf"), Shape(4, 5, 6, groups=3, routing="zipf")]),
        ("G=2,M=4,N=5,K=6", [Shape(4, 5, 6, groups=2, routing="uniform")]),
        ("G=2,M=4,N=5,K=6,routing=one", [Shape(4, 5, 6, groups=2, routing="one")]),
        ("1:2x3x4+8", [Shape(1, 3, 4, 8), Shape(2, 3, 4, 8)]),
        ("1:2,3,4", [Shape(1, 3, 4), Shape(2, 3, 4)]),
        ("2,3,4,5", [Shape(3, 4, 5, batch=2)]),
    ],
)
def test_a_text_is_all_combinations(text, shapes, tmp_path):
    assert list(written_sizes(text).shapes()) == list(given_shapes(text)) == shapes
    (tmp_path / "shapes.yaml").write_text(f"- {text}\n")
    assert list(read_shapes(tmp_path / "shapes.yaml")) == shapes


WRONG = [
    ("64:1x4x4", "M: the range '64:1' ends before it begins"),
    ("4x64-1x4", "N: the range '64-1' ends before it begins"),
    ("4x4x1:64:*1", "K: expected a whole number from 2 to 2147418112, got '1'"),
    ("4x4x1:64:0", "K: expected a whole number from 1 to 2147418112, got '0'"),
    ("0:64x4x4", "M: expected a whole number from 1 to 2147418112, got '0'"),
    ("1:2147483647x4x4", "M: expected a whole number from 1 to 2147418112, got '2147483647'"),
    ("1:20000x4x4", "M: at most 10000 sizes are possible, got '1:20000'"),
    ("1:200x1:200x4", "at most 10000 sizes are possible, got 40000 in '1:200x1:200x4'"),
    ("1:64", "expected MxNxK"),
    ("1:x4x4", "expected MxNxK"),
    ("4096x14336,1-64", "expected MxNxK"),
    ("64x64x64,128", "expected MxNxK"),
    ("M=1:64,N=4", "K is missing in 'M=1:64,N=4'"),
    ("M=1,M=2,N=3,K=4", "M is given twice in 'M=1,M=2,N=3,K=4'"),
    ("M=1,N=3,K=4,L=2", "'L=2' is no size; expected KEY=SIZE; legal: M, N, K, B, G, pad, routing"),
    ("M=1,N=3,K=", "K: expected a size or a range such as 1-64, got ''; 1:64, 16:64:16 (a step)"),
    ("M=1,N=3,K=4,routing=zipf", "routing: there are no groups"),
    ("G=2,M=1,N=3,K=4,routing=zipp", "routing: did you mean 'zipf'?"),
    ("M=1,N=3,K=4,pad=x", "expected a whole number from 0 to 999999, got 'x'"),
    ("M=0,N=3,K=4", "expected MxNxK"),
    ("40x24x32:zipf", "expected MxNxK"),
    ("2147418112x2147418112x1", "2147418112x2147418112x1: a matrix has "),
    ("99999999g4x1x1", "99999999g4x1x1: 4 in 99999999 groups, and at most 4194304 in 65536 are possible"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_a_wrong_size_is_told_with_its_place(text, message, tmp_path):
    with pytest.raises(CallError, match=r"^--shapes: " + re.escape(message)):
        given_shapes(text)
    path = tmp_path / "shapes.yaml"
    path.write_text(f"- 1x2x3\n-   {text}\n")
    with pytest.raises(SpecError, match=re.escape(f"{path}:2:5: shapes: {message}")):
        read_shapes(path)


def test_ranges_in_lists_and_suites(tmp_path):
    path = tmp_path / "shapes.json"
    path.write_text('[["1:2", 3, "4:8:*2"], [5, 6, 7, 8]]')
    four = tuple(Shape(m, 3, k) for k in (4, 8) for m in (1, 2))
    assert read_shapes(path) == (*four, Shape(5, 6, 7, 8))
    path = tmp_path / "suite.yaml"
    path.write_text("cases: [{name: one, kernels: [{family: ladder}], shapes: [1:2x3x4, M=8:9]}]\n")
    with pytest.raises(SpecError, match=r"suite.yaml:1:68: shapes: N and K are missing in 'M=8:9'"):
        read_suite(path)
    path.write_text("cases: [{name: one, kernels: [{family: ladder}], shapes: [1:2x3x4, rows_4096]}]\n")
    own, rows = read_suite(path).cases
    assert own.shapes == (Shape(1, 3, 4), Shape(2, 3, 4)) and len(rows.shapes) > 5


def test_a_size_that_is_listed_twice_is_one(tmp_path):
    path = tmp_path / "shapes.yaml"
    path.write_text("- 1:2x3x4\n- 2:3x3x4\n- 1x3x4\n")
    assert read_shapes(path) == (Shape(1, 3, 4), Shape(2, 3, 4), Shape(3, 3, 4))


@pytest.mark.parametrize(
    "text",
    [
        "- {M: 5, N: 6, K: 7}\n- {m: 8, k: 10, n: 9}\n",
        "m,n,k\n5,6,7\n8, 9, 10\n",
        "# Of a layer.\n\nK,M,N\n\n7,5,6  # first\n10,8,9\n",
        "5x6x7\n\n8x9x10  # second\n",
        "M=5,N=6,K=7\n8x9x10\n",
    ],
)
def test_sizes_as_other_tools_list_them(tmp_path, text):
    path = tmp_path / "shapes.txt"
    path.write_text(text)
    assert read_shapes(path) == (Shape(5, 6, 7), Shape(8, 9, 10))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("m,n,k,lda\n1,2,3,4\n", "2:3: shapes: 'lda=4' is no size"),
        ("- {M: 1, N: 2, transA: n}\n", "1:3: shapes: 'transA=n' is no size"),
        ("1x2x3\n4y5\n", "2:3: shapes: expected MxNxK"),
        ("m,n,k\n1,2\n", "2:3: shapes: K is missing"),
    ],
)
def test_what_is_no_size_is_named_with_its_line(tmp_path, text, told):
    path = tmp_path / "shapes.txt"
    path.write_text(text)
    with pytest.raises(SpecError, match=re.escape(f"{path}:{told}")):
        read_shapes(path)


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("1:4:*2,8,16:32:16", [(1, 8, 16), (2, 8, 16), (4, 8, 16), (1, 8, 32), (2, 8, 32), (4, 8, 32)]),
        ("1:2x8x16", [(1, 8, 16), (2, 8, 16)]),
        ("2:3x4x8x16", [(2, 4, 8, 16), (3, 4, 8, 16)]),
        ("3,1:2,8,16", [(3, 1, 8, 16), (3, 2, 8, 16)]),
        ("B=3,M=1:2,N=8,K=16", [(3, 1, 8, 16), (3, 2, 8, 16)]),
    ],
)
def test_explain_takes_them_too(text, calls):
    assert list(explain._sizes(text)) == calls


def test_prepare_takes_them_too():
    def shapes(text):
        return [(each.n, each.k, each.m) for each in prepare._shapes(text)]

    assert shapes("64x32,1:64:*2,100") == [(64, 32, (*POWERS, 100))]
    assert shapes("M=1:64:*2,N=64,K=16:32:16") == [(64, 16, POWERS), (64, 32, POWERS)]
    assert shapes("64x32,1-2") == [(64, 32, (1, 2))]


def test_prepare_refuses_with_the_line_of_a_size(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("shapes.txt").write_text("64x64,1\nM=2:1,N=8,K=8\n")
    said = called(capsys, "prepare", GENERATED / "ladder", "--gpu", "h200", "--shapes", "shapes.txt")
    assert said.status == 2 and "shapes.txt:2: M: the range '2:1' ends" in said.err and said.out == ""


def test_tune_plans_a_range(cli):
    Path("family.yaml").write_text(BASE)
    cli("family.yaml")
    options = ("--dry-run", "--gpu", "h200", "--candidates", "1")
    said = cli("tune", "family.yaml", "--shapes", "M=16:128:*2,N=512,K=512", "--shapes", "200x512x512", *options)
    sizes = re.findall(r"^gemm_fp16_rcr_none (\S+)$", said.out, re.M)
    assert sizes == [f"{m}x512x512" for m in (16, 32, 64, 128, 200)]


def test_what_is_read():
    assert [whole_number(text, 0, 1024) for text in ("0", "7", "007", "1024", "0" * 5000 + "3")] == [0, 7, 7, 1024, 3]
    assert number_above_0("1e-3") == 1e-3
    assert sizes_of(["1-3", "2", "9"]) == (1, 2, 3, 9)
    assert sizes_of(["9-8"]) == ()
    assert len(sizes_of([f"1-{MOST_SIZES}"])) == MOST_SIZES


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "+1", "1.0", "1e3", "nan", "x", "1025", "9" * 5000, "²", "٣", "1_0", " 1"]
)
def test_what_is_no_number(text):
    with pytest.raises(ValueError, match=r"expected a whole number from 1 to 1024, got '") as error:
        whole_number(text, 1, 1024)
    assert len(str(error.value)) < 120
    if text not in ("+1", "1.0", "1e3", "1025", "1_0", " 1"):
        with pytest.raises(ValueError, match=r"expected a number above 0, got '") as error:
            number_above_0(text)
        assert len(str(error.value)) < 120


def test_the_largest_size_is_that_of_a_call():
    assert LARGEST_SIZE == call.MOST == runtime_theorems.LARGEST
    assert sizes_of([str(LARGEST_SIZE)]) == (LARGEST_SIZE,)
    for refused in (LARGEST_SIZE + 1, 2**31 - 1, 2**31):
        with pytest.raises(ValueError, match=f"from 1 to {LARGEST_SIZE}, got '{refused}'"):
            sizes_of([str(refused)])


def test_matrices_whose_bytes_torch_cannot_count():
    assert too_large(LARGEST_SIZE, 2**20, 16) is None
    for sizes in ((LARGEST_SIZE, LARGEST_SIZE, 1, 1), (2**20, 2**20, 2**20, 2**20), (1, 2**30, 2**29, 1)):
        assert f"and at most {MOST_ELEMENTS} are possible" in (too_large(*sizes) or "")
