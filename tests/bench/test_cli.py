"""The command line, and the whole way with interpreted kernels."""

from dataclasses import replace
from pathlib import Path

import pytest

from generator.bench import comparison_plan
from generator.bench.benchmark_run import plan_of, run
from generator.bench.measurements import load
from generator.bench.suite import SUITES, read_suite
from generator.commands import command_line
from generator.commands.bench import parse
from generator.language.errors import CallError
from tests.helpers import shipped
from tests.helpers.bench import records
from tests.helpers.bench.fake_device import FakeDevice
from tests.helpers.support import ROOT, python

SPEC = (
    "summary: Small tiles.\nname: tiny\nlayout: [rcr, sss]\ndtype: fp16\nepilogue: [none, bias+relu]\n"
    "swizzle: [linear, grouped]\ntile:\n"
    "  - {m: 16, n: 16, k: 16, warps: 1, stages: 2, group: 2}\n"
    "  - {m: 32, n: 16, k: 16, warps: 1, stages: 2, group: 2}\n"
)
SUITE = """\
cases:
  - name: order
    title: Orders of tiles
    kernels:
      - {label: grouped, family: tiny, layout: rcr, epilogue: none, swizzle: grouped}
      - {label: strided, family: tiny, layout: sss, epilogue: none, swizzle: grouped}
      - {label: public, family: tiny, contract: gemm_fp16_rcr_none}
    shapes: [40x24x20]
  - name: fused
    kernels:
      - {label: fused, family: tiny, layout: rcr, epilogue: bias+relu}
    shapes: [16x16x16]
"""


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A folder with a spec, rendered, and a suite."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "tiny.yaml").write_text(SPEC)
    (tmp_path / "suite.yaml").write_text(SUITE)
    assert command_line.main(["specs/tiny.yaml"]) == 0
    return tmp_path


def interpreted(folder, *arguments):
    environment = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    return python("-m", "tests.helpers.bench.interpreted", *arguments, cwd=folder, env=environment)


def test_a_suite_from_file_to_table_and_back(tiny, capsys):
    arguments = ["--suite", "suite.yaml", "--rounds", "2", "--workers", "0", "--json", "kept.json"]
    first = interpreted(tiny, *arguments)
    capsys.readouterr()
    assert first.returncode == 0, first.stderr
    assert "[2/3] " not in first.stderr and "[2/2] fused 16x16x16" in first.stderr
    assert "**Orders of tiles** (`order`)" in first.stdout
    kept = load(tiny / "kept.json")
    order, fused = kept.records
    assert [side.label for side in order.sides] == ["grouped", "strided", "public", "torch.matmul"]
    assert [side.label for side in fused.sides] == ["fused linear", "fused grouped", "torch.addmm + relu"]
    assert all(side.failure is None and side.gpu is not None for record in kept.records for side in record.sides)
    text = (tiny / "generated" / "tiny" / f"{order.sides[0].name}.py").read_text()
    assert f"# sha256 of the text below: {order.sides[0].digest}\n" in text
    call = parse(arguments)
    assert run(call, plan_of(call), FakeDevice()) == 0
    again = capsys.readouterr()
    assert "2 of 2 comparisons are already in " in again.err
    assert again.out == first.stdout


def test_a_suite_says_how_it_is_timed_and_the_call_overrides_it(tiny):
    def planned(*more):
        call = parse(["--suite", "suite.yaml", *more])
        found = plan_of(call)
        return call.seconds, {each.peers for each in found}

    peers = ("cublas", "inductor")
    (tiny / "suite.yaml").write_text("seconds: 0.5\npeer: cublas,inductor\n" + SUITE)
    assert planned() == (0.5, {peers})
    assert planned("--seconds", "2", "--peer", "none") == (2.0, {()})
    # A case's own come before the suite's, and the call before both.
    own = SUITE.replace("    kernels:", "    peer: eager\n    kernels:")
    (tiny / "suite.yaml").write_text("peer: cublas,inductor\n" + own)
    assert planned()[1] == {("eager",)} and planned("--peer", "cublas")[1] == {("cublas",)}


def test_without_a_gpu_it_is_refused(tiny, cli, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    said = cli("bench", "--suite", "suite.yaml")
    assert said.status == 2 and "torch finds no CUDA device" in said.err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("swizzle: grouped}", "swizzle: spiral}", "unknown value 'spiral'"),
        ("layout: sss, epilogue: none", "layout: rcr, epilogue: bias+relu", "epilogue is none in"),
        ("layout: sss", "layout: rrr", "no kernel of the family 'tiny' has layout: rrr"),
        ("label: strided", "label: grouped", "two kernels are labelled 'grouped'"),
        ("family: tiny, contract", "family: none_such, contract", "there is no specs/none_such.yaml"),
        ("contract: gemm_fp16_rcr_none", "contract: gemm_bf16_rcr_none", "has gemm_bf16_rcr_none"),
    ],
)
def test_a_wrong_suite_is_refused(tiny, cli, old, new, message):
    (tiny / "suite.yaml").write_text(SUITE.replace(old, new, 1))
    said = cli("bench", "--suite", "suite.yaml")
    assert said.status == 2 and message in said.err


def test_only_keeps_cases_or_kernels(tiny):
    assert [c.case for c in plan_of(parse(["--suite", "suite.yaml", "--only", "fused"]))] == ["fused"]
    (some,) = plan_of(parse(["--suite", "suite.yaml", "--only", "*sss*"]))
    assert [c.label for c in some.contestants] == ["strided"]
    with pytest.raises(CallError, match="matches 'nothing'"):
        plan_of(parse(["--suite", "suite.yaml", "--only", "nothing"]))


#: Suites of families that are no golden record, with the spec of each.
RENDERED = {"formulas": Path("docs/examples/formulas.yaml")}


def test_the_suites_shipped_find_their_kernels(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    for path in SUITES.glob("*.yaml"):
        specs, out = [RENDERED[path.stem]] if path.stem in RENDERED else [], shipped.GENERATED
        if specs:
            out = tmp_path
            assert command_line.main([*map(str, specs), "--out", str(out)]) == 0
        assert comparison_plan.of_suite(read_suite(path), comparison_plan.Families(specs, out))


def test_a_summary_needs_ratios_and_a_table_a_time(tmp_path, cli):
    def said(what, *kept):
        records.save(records.results(*kept), tmp_path / "kept.json")
        found = cli("bench", "--json", "kept.json", what)
        return found.status, found.err

    ours, peer = records.side("ours", "kernel", [1.0, 2.0]), records.side("torch", "peer", [1.0, 2.0])
    one, other = records.record(ours, peer), records.record(ours, peer, shape=(16, 16, 16))
    status, told = said("--summary", one)
    assert status == 1 and "there is no summary: it needs 2 comparisons on one device" in told
    assert said("--summary", one, other) == (0, "")
    refused = replace(records.wrong(ours), refused=True, failure="too large")
    status, told = said("--table", records.record(refused, peer))
    assert status == 1 and "none of 1 comparisons has a time of a kernel, most often: too large" in told
    found = cli("bench", "--json", "/dev/zero", "--table")
    assert found.status == 2 and "--json: /dev/zero: is a device or a pipe, not a file" in found.err
