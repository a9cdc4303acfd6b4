"""What docs/contributing.md says of a new load: a file of macros and a word, which claims what it handles."""

import shutil

import pytest

from tests.helpers.support import ROOT, python, spec

SPEC = spec(
    "layout: [rcr, crr]; dtype: fp16; epilogue: [none, bias+add, swiglu]; masking: [none, auto]; "
    "schedule: [naive, tiled, persistent, split_k, stream_k]; load: [pointer, streamed]; "
    'exclude: [{schedule: naive, epilogue: swiglu, because: "one idea a step"}]'
)
LOADS = "LOAD: Mapping[str, Load] = {\n"
STREAMED = '    "streamed": Load("tiles of pointers, whose lines leave the cache first", rank=3),\n'
HANDLES = STREAMED.replace("rank=3", "rank=3, handles=(*_OPERANDS, Feature.STRIDED)")
POLICY = ', eviction_policy="evict_first"'


@pytest.fixture
def checkout(tmp_path):
    """A copy of the generator and its templates, to which a load is added."""
    for name in ("generator", "templates"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    words = tmp_path / "generator" / "language" / "vocabulary.py"
    text = words.read_text(encoding="utf-8")
    assert text.count(LOADS) == 1
    words.write_text(text.replace(LOADS, LOADS + STREAMED), encoding="utf-8")
    loads = tmp_path / "templates" / "load"
    macros = (loads / "pointer.j2").read_text(encoding="utf-8")
    end = "other={{ matrix.zero }}{% endif %})"
    assert macros.count(end) == 1
    (loads / "streamed.j2").write_text(macros.replace(end, f"{end[:-1]}{POLICY})"), encoding="utf-8")
    return tmp_path


def called(checkout, *options):
    """What a call there prints of the spec."""
    (checkout / "loads.yaml").write_text(SPEC)
    done = python("-m", "generator", "loads.yaml", *options, cwd=checkout, env={"PYTHONPATH": str(checkout)})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_load_is_a_file_and_a_word(checkout):
    # As it stands the word is for plain products, and each other one is refused with the reason.
    listed = called(checkout, "--list")
    for refused in ("gated linear units", "epilogues", "programs that share the K of a tile"):
        assert f"load streamed handles no {refused}; use pointer" in listed
    words = checkout / "generator" / "language" / "vocabulary.py"
    words.write_text(words.read_text(encoding="utf-8").replace(STREAMED, HANDLES), encoding="utf-8")
    called(checkout, "--out", "out")
    found = sorted((checkout / "out" / "loads").glob("gemm_*_streamed_*.py"))
    # Two layouts and two maskings, of three chains by four schedules and of two by one.
    assert len(found) == 2 * 2 * (3 * 4 + 2)
    for path in found:
        _, _, text = path.read_text(encoding="utf-8").split("\n", 2)
        plain = path.with_name(path.name.replace("streamed", "pointer")).read_text(encoding="utf-8")
        assert POLICY in text
        assert text.replace(POLICY, "").replace("_streamed_", "_pointer_") == plain.split("\n", 2)[2], path.name
