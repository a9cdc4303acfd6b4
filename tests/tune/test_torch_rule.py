"""`tune --torch`: the rules by which torch's own product is taken."""

import math
from pathlib import Path

import pytest

from generator.commands import tune
from generator.language import tuned_file
from generator.language.errors import CallError
from generator.runtime.aten_product import faster, features
from generator.tune import torch_rule, winners
from generator.tune.torch_rule import ComparedSize, fit, halves
from tests.helpers.support import ROOT

MEASURED = ROOT / "measured" / "nvidia_h200"
FP8 = MEASURED / "bench_unseen_fp8.json"


def compared(M, N, K, ratio, alignment=16):
    found = features((M, N, K), alignment, a_column=False, b_row=False)
    return ComparedSize((N, K), found, math.log(ratio))


def says(rule, *sizes, alignment=16):
    return faster(rule, features(sizes, alignment, a_column=False, b_row=False))


def test_features_are_those_that_a_file_may_name():
    assert tuple(features((3, 5, 7), 2, a_column=True, b_row=False)) == tuned_file.FEATURES
    found = features((2, 300, 256, 64), 48, a_column=False, b_row=True)
    assert (found["work"], found["tiles"], found["aligned"], found["b_row"]) == (2 * 300 * 256 * 64, 12, 16, True)
    assert found["intensity"] == pytest.approx(1 / (1 / 256 + 1 / 300 + 1 / 64))


def test_a_rule_finds_where_it_turns():
    sizes = [(M, N, 4096) for M in (1, 4, 16, 48, 100, 300, 1000, 4000) for N in (1024, 2048, 4096, 8192)]
    rule = fit([compared(*each, 1.05 if each[0] < 64 else 0.9) for each in sizes])
    assert len(rule) < torch_rule._ENDS
    for M in (2, 40, 150, 2000):
        assert says(rule, M, 3072, 4096) == ("triton" if M < 64 else "aten")
    # Torch is slow where rows are not aligned.
    ragged = [compared(*each, 1.9, alignment=2) for each in sizes]
    rule = fit([*ragged, *(compared(*each, 0.9) for each in sizes)])
    assert [says(rule, 100, 3072, 4096, alignment=each) for each in (2, 16)] == ["triton", "aten"]


def test_a_loss_counts_more_than_a_gain():
    even = [compared(M, 1024, 1024, ratio) for M in range(1, 41) for ratio in (1.05, 0.96)]
    assert says(fit(even), 9, 1024, 1024) == "aten"
    better = [compared(M, 1024, 1024, ratio) for M in range(1, 41) for ratio in (1.05, 0.98)]
    assert says(fit(better), 9, 1024, 1024) == "triton"


def test_the_order_makes_no_difference():
    own = [compared(M, N, 512, 1 + (M * N % 7 - 3) / 50) for M in (1, 9, 70, 600) for N in range(256, 4096, 256)]
    assert fit(own) == fit(own[::-1])


def test_halves_are_judged_by_the_other_half():
    own = [compared(M, N, 512, 1.1 if M < 64 else 0.8) for M in (1, 8, 16, 90, 300, 900) for N in range(256, 8192, 256)]
    held = halves(own)
    assert len(held.ours) == len(held.both) == len(own)
    assert min(held.both) == 0.0 and min(held.ours) == pytest.approx(math.log(0.8))
    # Each pair of N and K is of its own: none but those of the other half are seen.
    lone = [compared(M, 64 * i, 64, 0.5 if i % 2 else 2.0) for i in range(1, 5) for M in range(1, 9)]
    assert len(halves(lone).both) == len(lone)


def test_a_file_is_fitted_and_read(tmp_path, capsys):
    out = tmp_path / "torch.json"
    assert tune.main(["--torch", str(FP8), "--tuned", str(out)]) == 0
    told = capsys.readouterr().out
    assert "| `gemm_fp8e4m3` | 70 | 0.825, 0.587, 0.431 |" in told
    found = tuned_file.parse(out.read_text())
    assert found.device == "NVIDIA H200" and found.aten.keys() == {"gemm_fp8e4m3", "gemm_fp8e4m3_fp32_bf16_fast"}
    assert says(found.aten["gemm_fp8e4m3"], 4096, 8192, 8192) == "aten"
    # Winners are in a file of their own.
    with pytest.raises(CallError, match="rules of torch's products"):
        winners.read(out)


def test_wrong_calls(tmp_path, capsys):
    out = str(tmp_path / "torch.json")
    both = [str(FP8), str(MEASURED.parent / "nvidia_h100_80gb_hbm3" / "bench_unseen_fp8.json")]
    with pytest.raises(CallError, match="results of one device are needed"):
        torch_rule.write(list(map(Path, both)), Path(out))
    assert tune.main(["--torch", str(MEASURED / "bench_batched.json"), "--tuned", out]) == 1
    assert "no contracts were compared at 20 sizes" in capsys.readouterr().err and not Path(out).exists()
    for arguments in (["--torch", str(FP8)], ["spec.yaml", "--torch", str(FP8), "--tuned", out]):
        with pytest.raises(SystemExit):
            tune.main(arguments)
        assert "--torch reads results of bench" in capsys.readouterr().err


def test_what_is_shipped_is_fitted_to_what_is_committed(tmp_path):
    """The command of docs/choosing.md."""
    for device in ("nvidia_h200", "nvidia_h100_80gb_hbm3"):
        folder = ROOT / "measured" / device
        paths = [*sorted(folder.glob("bench_unseen*.json")), folder / "bench_models.json.bz2"]
        assert torch_rule.write(paths, tmp_path / "torch.json") == 0
        assert (tmp_path / "torch.json").read_text() == (ROOT / "specs/tuned" / device / "torch.json").read_text()
