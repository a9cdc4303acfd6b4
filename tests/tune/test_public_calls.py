"""From a spec that names a file of winners which does not exist yet to a function that runs them."""

import json
import re
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from generator.commands.tune import parse
from generator.emit.loading import load_family
from generator.language.errors import CallError
from generator.plan.devices import DEVICES
from generator.tune import public_calls, trial_worker, tuning_call
from generator.verify.ahead_of_time import standing_in_for
from tests.helpers.support import ROOT, forget, python
from tests.helpers.tune import fake_gpu as fakes

OWN = (
    "summary: A layer of one's own.\nlayout: rcr\ndtype: fp16\nepilogue: bias+own\nmasking: mnk\nswizzle: linear\n"
    "schedule: tiled\nload: pointer\nproduct: direct\nSELECT\ntuned: found/mine.json\n"
    'ops:\n  own: {formula: "x * x"}\n'
    "tile:\n  - {m: 16, n: 16, k: 16, warps: 1, stages: 2}\n  - {m: 32, n: 16, k: 16, warps: 1, stages: 2}\n"
)
CONTRACT = "gemm_fp16_rcr_bias_own"


def tuned_in(folder, shapes):
    """A call that tunes the spec of a folder at the shapes, its kernels interpreted."""
    (folder / "shapes.yaml").write_text(shapes)
    path = {"PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    arguments = ["own.yaml", "--shapes", "shapes.yaml", "--executor", "tests.helpers.tune.fake_gpu:threads"]
    done = python("-m", "tests.helpers.tune.interpreted", *arguments, cwd=folder, env=path)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("select", ["table", pytest.param("fastest", marks=pytest.mark.product)])
def test_one_call_renders_measures_writes_and_renders_again(tmp_path, select):
    (tmp_path / "own.yaml").write_text(OWN.replace("SELECT", f"select: {select}"))
    lines = tuned_in(tmp_path, "[16x32x16, 48x16x32]").stdout.splitlines()
    found = json.loads((tmp_path / "found" / "mine.json").read_text())
    won = {(w["m"], w["n"], w["k"]): w["config"] for w in found["winners"]}
    assert set(won) == {(16, 32, 16), (48, 16, 32)}
    assert re.fullmatch(r"generated/own: 1 kernel; \d+ created", lines[0])
    assert any(line.startswith("found/mine.json: 2 winners, 2 of them in ") for line in lines)
    again = [line for line in lines if line.startswith("generated/own: 1 kernel;")]
    assert len(again) == 2 and "updated" in again[1]
    # The times of the public function before and after, at each size, and their mean.
    rows = [line.split(" | ") for line in lines if line.startswith(f"| {CONTRACT}")]
    assert [row[1] for row in rows] == ["16x32x16", "48x16x32"]
    assert all(float(cell) > 0 for row in rows for cell in row[2:5])
    assert lines[-1].startswith("The public functions are ")
    assert not list((tmp_path / ".tune_cache").glob("*/"))
    # What won is what the function runs, although two sizes are too few for rates.
    assert found["rates"] == []
    family = load_family(tmp_path / "generated" / "own")
    function = getattr(family, CONTRACT)
    (name,) = family._KERNELS[CONTRACT]
    with standing_in_for(DEVICES["nvidia_h200"]), FakeTensorMode(allow_non_fake_inputs=True):
        for (m, n, k), config in won.items():
            a, b, bias = (torch.empty(size, dtype=torch.half, device="cuda") for size in ((m, k), (n, k), n))
            assert function.which(a, b.T, bias=bias) == (name, config)
    forget("own")


def test_a_spec_that_does_not_name_the_file_is_told(bench):
    for file in bench.folder.glob("generated/tiny/gemm*"):
        fakes.write(file, "5e-3, 4e-3, 6e-3")
    assert bench.tune() == 0
    said = bench.said()
    assert "tune: tiny is measured as it is: " in said.err
    named = "add it as `tuned`, with `select: table` or `fastest`"
    assert f"specs/tiny.yaml does not name specs/tuned/nvidia_h200/tiny.json: {named}" in said.out


def test_a_file_that_is_shared_with_another_family_is_not_written(bench):
    """`tiny` names a file of more contracts than it has: its winners go to a file of its own."""
    assert bench.tune() == 0
    shared = bench.folder / "specs" / "shared.json"
    others = json.loads(bench.winners.read_text())
    for entry in others["winners"][:2]:
        entry["runner_up"] = None
        entry["contract"] = "gemm_fp16_crr_none"
        entry["kernel"] = f"gemm_fp16_crr_none__{entry['kernel'].partition('__')[2]}"
        others["kernels"][entry["kernel"]] = "digest"
    shared.write_text(json.dumps(others))
    before, own = shared.read_bytes(), bench.winners.read_bytes()
    (bench.folder / "specs" / "tiny.yaml").write_text(f"{fakes.SPEC}select: table\ntuned: shared.json\n")
    bench.winners.unlink()
    assert bench.tune() == 0
    assert shared.read_bytes() == before and bench.winners.read_bytes() == own
    assert "does not name specs/tuned/nvidia_h200/tiny.json: add it as `tuned`" in bench.said().out
    told = "also has measurements of contracts that the family tiny lacks (gemm_fp16_crr_none); name another file"
    with pytest.raises(CallError, match=re.escape(told)):
        bench.tune("--tuned", "specs/shared.json")
    assert shared.read_bytes() == before


def test_a_family_that_is_not_rendered_loses_no_winners_and_is_rendered_before_it_is_measured(bench):
    assert bench.tune() == 0
    before, kernel = bench.winners.read_bytes(), bench.kernel("rcr", "linear")
    arguments = ["specs/tiny.yaml", "--again", "--device", "nvidia_h200", "--out", "nowhere"]
    for call in (arguments, arguments[:-2]):
        with pytest.raises(CallError, match="render the family 'tiny' first"):
            tuning_call.again(parse(call))
        kernel.unlink(missing_ok=True)
    assert bench.winners.read_bytes() == before
    kernel.parent.rename(bench.folder / "moved")
    assert bench.tune("--complete") == 0 and kernel.is_file()


def test_the_smallest_portfolio_keeps_what_the_journal_does_not_have(bench):
    assert bench.tune() == 0
    before = json.loads(bench.winners.read_text())
    lines = bench.journal.read_text().splitlines(keepends=True)
    (bench.folder / "rcr.jsonl").write_text("".join(line for line in lines if "gemm_fp16_rcr_none" in line))
    arguments = ["specs/tiny.yaml", "--again", "--smallest", "--device", "nvidia_h200", "--journal", "rcr.jsonl"]
    assert tuning_call.again(parse(arguments)) == 0
    after = json.loads(bench.winners.read_text())
    others = [[w for w in found["winners"] if "rrr" in w["contract"]] for found in (before, after)]
    assert others[0] == others[1] != []
    assert [w["config"] for w in after["winners"]] == [w["config"] for w in before["winners"]]


def test_a_second_device_borrows_what_the_first_one_measured(bench, monkeypatch):
    monkeypatch.setattr("generator.tune.rate_fit._FEWEST", 2)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert bench.tune() == 0
    lines = bench.journal.read_text().replace("NVIDIA H200", "NVIDIA H100 80GB HBM3").splitlines(keepends=True)
    other = [line for line in lines if "gemm_fp16_rcr_none" in line]
    (bench.folder / "h100.jsonl").write_text("".join(other[:1]))
    arguments = ["specs/tiny.yaml", "--again", "--device", "nvidia_h100_80gb_hbm3", "--journal", "h100.jsonl"]
    assert tuning_call.again(parse([*arguments, "--tuned", "alone.json"])) == 0
    assert tuning_call.again(parse([*arguments, "--tuned", "also.json", "--also", str(bench.journal)])) == 0
    alone, also = (json.loads((bench.folder / name).read_text()) for name in ("alone.json", "also.json"))
    assert alone["winners"] == also["winners"] != []
    # It has measured one size of one contract, which is too few for rates.
    borrowed = {"gemm_fp16_rcr_none", "gemm_fp16_rrr_none"}
    assert alone["rates"] == [] and {rate["contract"] for rate in also["rates"]} == borrowed
    for wrong, told in (
        ("h100.jsonl", "has measurements of nvidia_h100_80gb_hbm3; name a journal of one other GPU"),
        ("nothing.jsonl", "has measurements of no GPU; name a journal of one other GPU"),
    ):
        with pytest.raises(CallError, match=re.escape(told)):
            tuning_call.again(parse([*arguments, "--also", wrong]))


def test_a_device_that_is_lost_while_functions_are_compared_is_reported(bench, monkeypatch):
    def lost(*arguments):
        raise RuntimeError("the device is lost")

    monkeypatch.setattr(trial_worker, "functions", lost)
    contract = "gemm_fp16_rcr_none"
    trial = SimpleNamespace(family="tiny", contract=contract, problem=SimpleNamespace(shape="32x32x32"))
    before, after = ({("tiny", contract): SimpleNamespace(digest=digest)} for digest in "ab")
    assert public_calls.compare([trial, trial], before, after, fakes.AtOnce(), float("inf"), fakes.__name__)
    assert bench.said().err == "tune: gemm_fp16_rcr_none 32x32x32: RuntimeError: the device is lost\n"


@pytest.mark.parametrize(
    ("batch", "shapes", "calls"),
    [
        # The rows of a call in G groups are those of each of as many groups as rows can reach, if all have as many.
        (
            "grouped",
            "[4g30x16x16, '4g30x16x16:one', 5g3x16x32, '5g9x16x32:zipf']",
            {(4, 8, 16, 16): (4, 30, 16, 16), (3, 1, 16, 32): (5, 3, 16, 32)},
        ),
        ("grouped_k", "[4g16x16x32, 5g32x16x3]", {(4, 16, 16, 8): (4, 16, 16, 32), (5, 32, 16, 1): (5, 32, 16, 3)}),
    ],
)
def test_groups_are_tuned_and_what_won_is_run(tmp_path, batch, shapes, calls):
    """A size has one winner for all routings that were measured, and none without equal groups."""
    inner = batch == "grouped_k"
    spec = OWN.replace("epilogue: bias+own", f"batch: {batch}\nstore: pointer").partition("ops:")
    text = spec[0] + "".join(spec[2].partition("tile:")[1:])
    (tmp_path / "own.yaml").write_text(text.replace("SELECT", "select: table").replace("masking: mnk\n", ""))
    done = tuned_in(tmp_path, shapes)
    if not inner:
        assert "mine.json: 1 sizes have no winner, because equal groups were not measured there" in done.stdout
    found = json.loads((tmp_path / "found" / "mine.json").read_text())["winners"]
    won = {(w["batch"], w["m"], w["n"], w["k"]): w["config"] for w in found}
    assert set(won) == set(calls) and all(w["divided"] and w.get("inner", False) == inner for w in found)
    family = load_family(tmp_path / "generated" / "own")
    function = family.gmmk_fp16_rcr_none if inner else family.gmm_fp16_rcr_none
    with standing_in_for(DEVICES["nvidia_h200"]), FakeTensorMode(allow_non_fake_inputs=True):
        for sizes, (groups, m, n, k) in calls.items():
            weights = (n, k) if inner else (groups, n, k)
            a, b = (torch.empty(size, dtype=torch.half, device="cuda") for size in ((m, k), weights))
            offsets = torch.empty(groups, dtype=torch.int32, device="cuda")
            assert function.which(a, b.mT, offsets)[1] == won[sizes]
    forget("own")
