"""The tests of a repository of the Hub, for contracts of every form: they run as its author has them."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from generator.__main__ import main

PLAIN = "layout: rcr\ndtype: fp16\nload: pointer\ntargets: [sm90]\ntile: [{m: 16, n: 128, k: 32, warps: 4}]\n"
QUANTISED = "[save, {quantize: {to: mxfp4}}], [{quantize: {to: nvfp4}}], [{quantize: {to: fp8e4m3}}]"
SPECS = {
    "quantised": f"{PLAIN}batch: [none, strided, grouped]\nepilogue: [none, {QUANTISED}, row_sum]\n",
    "groups": f"{PLAIN}batch: [grouped, grouped_k]\nepilogue: [none, bias, swiglu, scale_m]\n"
    "exclude: [{batch: grouped_k, epilogue: [swiglu], because: no caller has it}]\n",
    "symmetric": f"{PLAIN}result: symmetric\nepilogue: [none, scale+add, save+relu, accumulate]\n",
}


@pytest.mark.parametrize("name", SPECS)
def test_the_tests_run_every_function(render, name, tmp_path, monkeypatch):
    spec = SPECS[name].replace(", row_sum", "") if "grouped" in SPECS[name] else SPECS[name]
    family = render(f"hub_{name}", f"summary: For the Hub.\n{spec}")
    (own,) = family.__path__
    assert main(["package", own, "--format", "kernels", "--out", str(tmp_path / "made")]) == 0
    # What the library `kernels` would load.
    monkeypatch.setitem(sys.modules, "kernels", SimpleNamespace(get_local_kernel=lambda _: family))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "_operands", raising=False)
    path = tmp_path / "made" / "tests" / "test_kernels.py"
    tests = ModuleType("hub_tests")
    tests.__file__ = str(path)
    # The marker is one that `kernel-builder` registers.
    exec(path.read_text().replace("@pytest.mark.kernels_ci\n", ""), vars(tests))
    monkeypatch.delitem(sys.modules, "_operands")
    assert set(tests.FUNCTIONS) == set(family._KERNELS) and len(tests.FUNCTIONS) > 3
    for function in tests.FUNCTIONS:
        for sizes in ((32, 48, 16), (64, 32, 48)):
            tests.test_function(function, sizes)
    card = (tmp_path / "made" / "README.md").read_text()
    assert ("; C is symmetric |" in card) == (name == "symmetric")
    assert ("; C is stored as nvfp4 under a scale for 16 columns of a row |" in card) == (name == "quantised")


def test_the_card_names_every_result(render, tmp_path):
    family = render("hub_pair", f"summary: A pair.\n{PLAIN}epilogue: [[row_amax, {{quantize: {{to: int8}}}}]]\n")
    (own,) = family.__path__
    assert main(["package", own, "--format", "kernels", "--out", str(tmp_path / "made")]) == 0
    card = (tmp_path / "made" / "README.md").read_text()
    assert "\nout, row_amax, out_scale = kernel.gemm_fp16_rcr_rowamax_quantize_int8(a, b)\n" in card
