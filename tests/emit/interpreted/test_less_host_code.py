"""What a call refuses with each amount of host code (`package`), and the tests of a repository of the Hub."""

import importlib
import sys
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd import forward_ad
from torch.testing import assert_close

from generator.__main__ import main
from tests.helpers.support import render_spec, spec

SPEC = spec("layout: rcr; dtype: fp32; epilogue: [none, scale, bias+save+relu]; load: pointer; package: {package}")
TUNED = spec(
    "layout: rcr; dtype: fp32; schedule: [stream_k, persistent]; load: pointer; masking: auto; select: autotune; "
    "tile: [{{m: 64, n: 64, k: 32, warps: 4}}, {{m: 16, n: 16, k: 32, warps: 4}}]; package: {package}"
)


def files_of(folder, monkeypatch):
    """The files of a folder, each by itself."""
    monkeypatch.syspath_prepend(folder)
    names = sorted(path.stem for path in folder.glob("*.py"))
    for name in names:
        sys.modules.pop(name, None)
    return [importlib.import_module(name) for name in names]


@pytest.fixture(params=["torch", "kernel", "plain", "files"])
def contracts(request, tmp_path, monkeypatch, render):
    """Renders a spec with an amount of host code; `kernel` is the function `gemm` of a kernel's file."""
    package = {"kernel": "torch"}.get(request.param, request.param)

    def rendered(name, text):
        text = text.format(package=package)
        if request.param == "files":
            return partial(contract, files_of(folder_of(name, text, tmp_path), monkeypatch))
        family = render(f"{name}_{request.param}", text)
        if request.param == "kernel":
            return partial(contract, [family._kernel(x) for names in family._KERNELS.values() for x in names])
        return partial(getattr, family)

    rendered.package = request.param
    return rendered


def folder_of(name, text, folder):
    from generator.verify import interpreter

    interpreter.install()
    render_spec(folder, name, text)
    return folder / name


def contract(files, name):
    """The function of the first file of a contract."""
    return next(file.gemm for file in files if file.__name__.rpartition(".")[2].startswith(f"{name}__"))


def operands(m=32, n=48, k=64):
    return {"a": torch.randn(m, k), "b": torch.randn(n, k).T}


def test_results_in_the_memory_of_others_are_refused(contracts):
    family = contracts("apart", SPEC)
    x = torch.randn(32, 32)
    for given in ({"a": x, "b": torch.randn(32, 32).T}, {"a": torch.randn(32, 32), "b": x.T}):
        with pytest.raises(ValueError, match=r"out shares memory with [ab]"):
            family("gemm_fp32_rcr_none")(**given, out=x)
    saving = family("gemm_fp32_rcr_bias_save_relu")
    given = operands(32, 32, 32)
    out = torch.empty(32, 32)
    with pytest.raises(ValueError, match="preact shares memory with out, which is"):
        saving(**given, bias=torch.randn(32), out=out, preact=out)
    with pytest.raises(ValueError, match="preact shares memory with a"):
        saving(x, given["b"], bias=torch.randn(32), preact=x)
    bias, apart = torch.randn(32), torch.empty(32, 32)
    _, kept = saving(**given, bias=bias, out=out, preact=apart)
    assert kept is apart
    assert_close(apart, given["a"] @ given["b"] + bias, atol=1e-4, rtol=1e-4)


def test_no_call_returns_what_nothing_was_written_to(contracts):
    """Tensors without memory have a result without memory, and none has one where some operands have memory."""
    family = contracts("memory", SPEC)
    plain, scaled = family("gemm_fp32_rcr_none"), family("gemm_fp32_rcr_scale")
    given = operands()
    assert plain(**{name: x.to("meta") for name, x in given.items()}).is_meta
    with FakeTensorMode() as mode:
        fake = {name: mode.from_tensor(x) for name, x in given.items()}
        assert isinstance(plain(**fake), FakeTensor)
        one = mode.from_tensor(torch.tensor(2.0))
    assert isinstance(plain(**fake), FakeTensor)
    for name in given:
        with pytest.raises((ValueError, TypeError, AssertionError, RuntimeError)):
            result = plain(**{**given, name: fake[name]})
            assert not isinstance(result, FakeTensor), "a fake result says that nothing was computed"
            pytest.fail("a real tensor that nothing was written to")
    for number in (torch.tensor(2.0, device="meta"), one):
        with pytest.raises((ValueError, TypeError, AssertionError, RuntimeError)):
            scaled(**given, scale=number)


def test_derivatives_negated_views_and_sparse_tensors(contracts):
    family = contracts("views", SPEC)
    plain, given = family("gemm_fp32_rcr_none"), operands()
    expected = given["a"] @ given["b"]
    negated = torch._neg_view(given["a"])
    if contracts.package == "torch":
        assert_close(plain(negated, given["b"]), -expected, atol=1e-4, rtol=1e-4)
    else:
        with pytest.raises(TypeError, match="a must be a plain tensor, got a view of negated memory"):
            plain(negated, given["b"])
        with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="no derivatives in forward mode"):
            plain(forward_ad.make_dual(given["a"], given["a"]), given["b"])
        with pytest.raises(RuntimeError, match="a requires a gradient, and a kernel records none"):
            plain(given["a"].clone().requires_grad_(), given["b"])
    assert_close(plain(**given), expected, atol=1e-4, rtol=1e-4)
    for sparse in (given["a"].to_sparse(), given["a"].to_sparse_csr()):
        with pytest.raises(TypeError, match="a must be a dense tensor, got one of layout"):
            plain(sparse, given["b"])


def test_a_number_is_a_number(contracts):
    scaled = contracts("number", SPEC)("gemm_fp32_rcr_scale")
    for number in ("2", None, [1.0], 2j):
        with pytest.raises(TypeError, match=r"scale must be a number or a tensor of one element, got \w+"):
            scaled(**operands(), scale=number)
    with pytest.raises(ValueError, match="scale is too large for a float"):
        scaled(**operands(), scale=10**400)


def test_a_forgotten_transposition_is_named(contracts):
    plain = contracts("turned", SPEC)("gemm_fp32_rcr_none")
    given = operands()
    wrong = {
        "b, a weight (N, K)": {**given, "b": given["b"].T},
        "b, square": {"a": torch.randn(32, 64), "b": torch.randn(64, 64)},
        "b, row-major": {**given, "b": given["b"].contiguous()},
        "a, column-major": {**given, "a": given["a"].T.contiguous().T},
    }
    for what, operands_ in wrong.items():
        with pytest.raises(ValueError, match=rf"{what[0]}\b.*\.m?T\b"):
            plain(**operands_)
            pytest.fail(what)
    # Neither is the transpose of what fits.
    for other in ({**given, "b": torch.randn(48, 63).T}, {**given, "b": torch.randn(48, 128).T[::2]}):
        with pytest.raises(ValueError) as caught:
            plain(**other)
        assert "forgotten" not in str(caught.value)


def test_a_configuration_is_one_of_the_table_or_its_index(contracts):
    plain, given = contracts("configured", SPEC)("gemm_fp32_rcr_none"), operands()
    expected = given["a"] @ given["b"]
    for index in (0, numpy.int64(1), numpy.uint8(0)):
        assert_close(plain(**given, config=index), expected, atol=1e-4, rtol=1e-4)
    told = r"config must be an element of CONFIGS or an index below \d+, got "
    wrong = [(True, "bool"), (False, "bool"), ("0", "str"), (0.0, "float"), (numpy.float32(1), "float32")]
    for config, kind in [*wrong, ((0,), "tuple"), (torch.tensor(0), "Tensor")]:
        with pytest.raises(ValueError, match=rf"{told}.*, a {kind}$"):
            plain(**given, config=config)
    for config in (99, -1, {"BLOCK_M": 64}):
        with pytest.raises(ValueError, match=rf"{told}[^,]*$"):
            plain(**given, config=config)


def test_the_interpreter_measures_nothing(contracts):
    given = operands(128, 128, 64)
    family = contracts("measured", TUNED)
    assert_close(family("gemm_fp32_rcr_none")(**given), given["a"] @ given["b"], atol=1e-4, rtol=1e-4)


def test_a_file_allocates_enough_for_each_configuration_that_is_tried(tmp_path, monkeypatch):
    """A tuner that chooses the last has as many counters as that has tiles, and launches its programs."""
    files = files_of(folder_of("tried", TUNED.format(package="files"), tmp_path), monkeypatch)
    given = operands(128, 128, 64)
    for file in files:
        source = Path(str(file.__file__)).read_text()
        assert source.count("tuned = config is None and a.is_cuda") == 1
        text = source.replace("tuned = config is None and a.is_cuda", "tuned = config is None")
        module = {"__name__": "tried"}
        exec(compile(text, file.__name__, "exec"), module)
        tuned = LastConfiguration(file)
        module["tuned_kernel"] = tuned
        assert_close(module["gemm"](**given), given["a"] @ given["b"], atol=1e-4, rtol=1e-4)
        if "streamk" in file.__name__:
            assert tuned.arguments["counters_ptr"].numel() == 64
            assert tuned.arguments["work_ptr"].numel() == 3 * 2 * 64 * 64


class LastConfiguration:
    """Launches the kernel of a file with the last of its configurations, as a tuner that finds it fastest."""

    def __init__(self, file):
        self.kernel, self.row = getattr(file, file.__name__.rpartition(".")[2]), file.CONFIGS[-1]
        self.arguments = {}

    def __getitem__(self, grid):
        def launch(**arguments):
            self.arguments = arguments
            self.kernel[grid(self.row)](**arguments, **self.row)

        return launch


@pytest.mark.parametrize("package", ["torch", "plain"])
def test_which_refuses_what_its_call_does(render, package):
    function = render(f"which_{package}", SPEC.format(package=package)).gemm_fp32_rcr_scale
    given = operands()
    changes = {"b": given["b"].double()}, {"b": given["b"].contiguous()}, {"out": torch.empty(1, 1)}
    for change in (*changes, {"scale": [1]}):
        said = []
        for call in (function, function.which):
            with pytest.raises((TypeError, ValueError)) as caught:
                call(**{**given, "scale": 2.0, **change})
            said.append((caught.type, str(caught.value)))
        assert said[0] == said[1] and said[0][1].startswith("gemm_fp32_rcr_scale: ")


PLAIN = "layout: rcr\ndtype: fp16\nload: pointer\ntargets: [sm90]\ntile: [{m: 16, n: 128, k: 32, warps: 4}]\n"
QUANTISED = "[save, {quantize: {to: mxfp4}}], [{quantize: {to: nvfp4}}], [{quantize: {to: fp8e4m3}}]"
HUB_SPECS = {
    "quantised": f"{PLAIN}batch: [none, strided, grouped]\nepilogue: [none, {QUANTISED}, row_sum]\n",
    "groups": f"{PLAIN}batch: [grouped, grouped_k]\nepilogue: [none, bias, swiglu, scale_m]\n"
    "exclude: [{batch: grouped_k, epilogue: [swiglu], because: no caller has it}]\n",
    "symmetric": f"{PLAIN}result: symmetric\nepilogue: [none, scale+add, save+relu, accumulate]\n",
}


@pytest.mark.parametrize("name", HUB_SPECS)
def test_the_tests_run_every_function(render, name, tmp_path, monkeypatch):
    spec = HUB_SPECS[name].replace(", row_sum", "") if "grouped" in HUB_SPECS[name] else HUB_SPECS[name]
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
