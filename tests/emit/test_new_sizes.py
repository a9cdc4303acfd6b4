"""The first call of a size whose kernel is compiled: it is launched without Triton if Triton would run that kernel."""

import importlib
import sys
from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.runtime.autotuner import Heuristics
from triton.runtime.jit import JITFunction, compute_cache_key

from tests.helpers.stand_ins import Compiled, operands
from tests.helpers.support import spec

SPEC = spec(
    "layout: rcr; dtype: {dtype}; epilogue: [none, scale, row_sum]; load: {load}; "
    "tile: [{{m: 32, n: 32, k: 32, warps: 4, stages: 2}}]"
)


class Triton:
    """Stands for Triton's launches: compiles a kernel for each key of Triton's own, and keeps what it launched."""

    def __init__(self):
        self.device = None
        self.compiled = {}
        self.launches = []

    def key(self, kernel, arguments):
        """As `JITFunction.run` makes it."""
        _, keys, _, _, bind = kernel.device_caches[self.device]
        _, specialised, options = bind(**arguments, debug=triton.knobs.runtime.debug)
        return f"{self.device} {compute_cache_key(keys, specialised, options)}"

    def run(self, kernel, *, grid, warmup, **arguments):
        found = self.compiled.setdefault(self.key(kernel, arguments), Compiled())
        self.launches.append(found)
        return found


@pytest.fixture
def stand_in(monkeypatch):
    found, target = Triton(), GPUTarget("cuda", 90, 32)
    active = SimpleNamespace(get_current_device=lambda: found.device, get_current_target=lambda: target)
    monkeypatch.setattr("triton.runtime.jit.driver", SimpleNamespace(active=active))
    monkeypatch.setattr(JITFunction, "run", lambda kernel, **options: found.run(kernel, **options))
    return found


@pytest.fixture
def family(rendered, stand_in, monkeypatch):
    """Renders a family with kernels of Triton's, which the stand-in launches."""

    def render(load="pointer", dtype="fp16", more=""):
        package = rendered(SPEC.format(load=load, dtype=dtype) + more)
        monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
        for name in [name for names in package._KERNELS.values() for name in names]:
            module = importlib.reload(package._kernel(name))
            module.gemm_kernel = module.CALL.launches[-1].kernel
        monkeypatch.setattr(triton.knobs.runtime, "interpret", True)
        # The stand-in launches compiled kernels on memory of the CPU.
        active = SimpleNamespace(get_current_device=lambda: stand_in.device, get_current_stream=lambda x: ("stream", x))
        monkeypatch.setattr(sys.modules["again._runtime.fast"], "_driver", lambda: active)
        monkeypatch.setattr(sys.modules["again._runtime.copies"], "worth_aligning", lambda a, b: False)
        return package

    return render


def runs(stand_in):
    """How many launches were made without Triton."""
    return sum(len(compiled.runs) for compiled in stand_in.compiled.values())


@pytest.mark.parametrize("load", ["pointer", "descriptor"])
def test_a_size_of_a_known_specialisation_is_launched_without_triton(family, stand_in, load):
    function = family(load).gemm_fp16_rcr_none
    function(*operands(64, 64, 64))
    assert (len(stand_in.launches), runs(stand_in)) == (1, 0)
    a, b = operands(128, 96, 32)
    out = function(a, b)
    assert (len(stand_in.launches), runs(stand_in)) == (1, 1)
    (run,) = stand_in.launches[0].runs
    assert run[:4] == (4 * 3, 1, 1, ("stream", None))
    given = [getattr(x, "base", x) for x in run[9:]]
    addresses = [x if isinstance(x, int) else x.data_ptr() for x in given[:3]]
    assert addresses == [a.data_ptr(), b.data_ptr(), out.data_ptr()]
    assert given[3:6] == [128, 96, 32]
    if load == "descriptor":
        described = ([128, 32], [32, 1]), ([96, 32], [32, 1]), ([128, 96], [96, 1])
        assert [(x.shape, x.strides) for x in run[9:12]] == [*described]
    # Later calls of this size repeat the launch, and the first size's are as they were.
    function(*operands(128, 96, 32))
    function(*operands(64, 64, 64))
    assert [run[9:][3:6] for run in stand_in.launches[0].runs[1:]] == [(128, 96, 32), (64, 64, 64)]


@pytest.mark.parametrize(
    "sizes", [(1, 64, 64), (72, 64, 64), (64, 72, 64), (64, 64, 72), (64, 64, 1), (100, 100, 100)], ids=str
)
def test_a_size_of_another_specialisation_is_launched_by_triton(family, stand_in, sizes):
    """With another divisibility by 16, an extent or a stride of 1, or other masks."""
    function = family().gemm_fp16_rcr_none
    function(*operands(64, 64, 64))
    function(*operands(*sizes))
    assert (len(stand_in.launches), len(stand_in.compiled), runs(stand_in)) == (2, 2, 0)


def test_another_device_is_another_specialisation(family, stand_in):
    function = family().gemm_fp16_rcr_none
    function(*operands(64, 64, 64))
    stand_in.device = 1
    function(*operands(192, 64, 64))
    assert (len(stand_in.launches), len(stand_in.compiled), runs(stand_in)) == (2, 2, 0)


def planned(package):
    """The plans that the family's kernel makes from now on."""
    kernel = package._kernel(package._KERNELS["gemm_fp16_rcr_none"][0])
    made, plan = [], kernel.CALL.plan_of

    def keep(*given, **options):
        made.append(plan(*given, **options))
        return made[-1]

    object.__setattr__(kernel.CALL, "plan_of", keep)
    return made


def test_a_new_size_has_a_workspace_of_its_own_size(family, stand_in):
    package = family(more="schedule: stream_k\n")
    plans = planned(package)
    for m in (64, 128):
        package.gemm_fp16_rcr_none(*operands(m, 64, 256))
    assert (len(stand_in.launches), runs(stand_in)) == (1, 1)
    own = dict(zip(plans[1].launches[0].kernel.arg_names, stand_in.launches[0].runs[0][9:]))
    expected = [plans[1].known[name].data_ptr() for name in ("work", "counters")]
    assert [own["work_ptr"], own["counters_ptr"]] == expected


def test_both_kernels_of_a_new_size_are_launched(family, stand_in):
    """The second adds what the first has summed. If Triton launches one, it launches both, in their order."""
    package = family(more="schedule: split_k\n")
    plans = planned(package)
    for m in (64, 128):
        package.gemm_fp16_rcr_none(*operands(m, 64, 256))
    sums, adds = stand_in.launches
    assert (len(sums.runs), len(adds.runs)) == (1, 1)
    first = dict(zip(plans[1].launches[0].kernel.arg_names, sums.runs[0][9:]))
    then = dict(zip(plans[1].launches[1].kernel.arg_names, adds.runs[0][9:]))
    assert first["sums_ptr"] == then["sums_ptr"] == plans[1].known["sums"].data_ptr()
    assert then["c_ptr"] == plans[1].results["out"].data_ptr() and (first["M"], then["M"]) == (128, 128)
    # K is an argument of the first kernel alone.
    package.gemm_fp16_rcr_none(*operands(128, 64, 200))
    assert len(stand_in.launches) == 4 and stand_in.launches[2] is not sums and stand_in.launches[3] is adds


def test_a_result_of_a_new_size_is_made_of_its_parts(family, stand_in, monkeypatch):
    """The stand-in computes nothing: the parts are ones."""
    package, empty = family(), torch.empty
    memory = sys.modules["again._runtime.memory"]
    monkeypatch.setattr(memory.torch, "empty", lambda *given, **options: empty(*given, **options).fill_(1))
    parts = torch.Tensor.new_empty
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda *given, **options: parts(*given, **options).fill_(1))
    for m in (64, 128):
        _, sums = package.gemm_fp16_rcr_rowsum(*operands(m, 64, 64))
        assert sums.tolist() == [2.0] * m
    assert (len(stand_in.launches), runs(stand_in)) == (1, 1)


def test_hooks_of_a_kernel_and_of_its_compiler_go_through_triton(family, stand_in, monkeypatch):
    package = family("descriptor")
    function = package.gemm_fp16_rcr_none
    function(*operands(64, 64, 64))
    monkeypatch.setattr(triton.knobs.runtime, "debug", True)
    function(*operands(128, 64, 64))
    assert (len(stand_in.launches), len(stand_in.compiled)) == (2, 2)
    kernel = package._kernel(package._KERNELS["gemm_fp16_rcr_none"][0]).gemm_kernel
    kernel.pre_run_hooks.append(lambda *given, **options: None)
    function(*operands(192, 64, 64))
    assert len(stand_in.launches) == 3 and runs(stand_in) == 0


WRONG = {
    "another shape": lambda a, b: {"out": torch.empty(7, 7).half()},
    "another type": lambda a, b: {"out": torch.empty(a.shape[0], b.shape[1])},
    "lines that overlap": lambda a, b: {"out": torch.empty(512).half().as_strided((a.shape[0], b.shape[1]), (1, 1))},
    "another stride": lambda a, b: {"out": torch.empty(b.shape[1], a.shape[0]).half().T},
    "memory of an operand": lambda a, b: {"out": a[:, : b.shape[1]]},
    "a gradient": lambda a, b: {"a": a.clone().requires_grad_()},
    "negated memory": lambda a, b: {"a": torch._neg_view(a)},
    "another K": lambda a, b: {"a": a[:, :-16]},
    "rows apart": lambda a, b: {"b": torch.empty(2 * b.shape[0], b.shape[1]).half()[::2]},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_call_of_a_known_form_is_refused_in_the_same_words(family, stand_in, wrong):
    package = family("descriptor")
    kernel = package._kernel(package._KERNELS["gemm_fp16_rcr_none"][0])

    def launch(given):
        call = kernel.CALL
        plan = call.plan_of(call.state(given), kernel.CONFIGS[0])
        sys.modules["again._runtime.launch"].started(call, plan, given, given["a"])

    for size in ((64, 64, 64), (128, 64, 64)):
        a, b = operands(*size)
        launch({"a": a, "b": b, "out": torch.empty(size[:2]).half()})
        launch({"a": a, "b": b, "out": None})
    a, b = operands(192, 64, 64)
    given = {"a": a, "b": b, "out": None} | WRONG[wrong](a, b)
    with pytest.raises(Exception) as expected:
        kernel.CALL.plan(kernel.CONFIGS[0], **given)
    with pytest.raises(type(expected.value)) as found:
        launch(given)
    assert str(found.value) == str(expected.value)
    assert len(stand_in.launches) == 1


# Triton's even if the tests run with its interpreter.
@JITFunction
def _kernel(x, n, flag, SIZE: tl.constexpr, EVEN: tl.constexpr):
    pass


VALUES = {
    "x": [torch.empty(64).half(), torch.empty(64), torch.empty(64).half()[1:], torch.empty(64).half()[8:]],
    "n": [1, 2, 16, 17, 32, 2**31, 2**31 + 1, -16, 0],
    "flag": [1.0, 2.0, torch.empty(1)],
    "SIZE": [16, 32],
    "num_warps": [4, 8],
}


def test_specialisations_are_equal_as_tritons_keys_are(family, stand_in):
    family()
    specialisation = sys.modules["again._runtime.fast"].specialisation
    plain = {name: values[0] for name, values in VALUES.items()}
    told = []
    for name, values in VALUES.items():
        for value in values:
            given = plain | {name: value}
            key = stand_in.key(_kernel, given | {"EVEN": given["n"] % given["SIZE"] == 0})
            masked = Heuristics(_kernel, _kernel.arg_names, {"EVEN": lambda args: args["n"] % args["SIZE"] == 0})
            told.append((key, specialisation(masked, given)))
    tuner = triton.autotune([triton.Config({"SIZE": 16})], key=[])(_kernel)
    assert specialisation(tuner, {}) is None and specialisation(SimpleNamespace(), {}) is None
    assert len({key for key, _ in told}) == len({found for _, found in told}) == len(set(told)) == 10
