"""A family's cached launches: calls of one signature repeat the launch of the first, with their own operands."""

import importlib.util
import sys
from collections import namedtuple
from types import SimpleNamespace

import pytest
import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.helpers.stand_ins import Compiled, copied, launched, operands
from tests.helpers.support import spec

SPEC = spec(
    "layout: [rcr]; dtype: fp16; epilogue: [none, scale+bias, save+row_sum, accumulate]; "
    "schedule: [persistent, tiled]; load: [descriptor, pointer]; select: fastest; "
    "exclude: [{schedule: persistent, load: pointer, because: not here}]"
)


class Lacking(Compiled):
    """What a launch returns by a Triton that lacks the name `missing`."""

    missing = ""

    def __getattribute__(self, name):
        if name == type(self).missing:
            raise AttributeError(name)
        return super().__getattribute__(name)


@pytest.fixture
def family(rendered):
    """Its launches are repeated by what Triton does not document."""
    return rendered(SPEC)


@pytest.fixture(params=["fastest", "heuristic"])
def either(rendered, request):
    """`family`, or one whose launches are repeated as Triton documents it."""
    return rendered(SPEC.replace("fastest", request.param))


def repeats(kernel):
    """The arguments with which launches of a kernel were repeated, by name; of tensors and descriptors addresses."""
    calls = [*(run[9:] for run in kernel.compiled.runs), *(given for _, given in kernel.compiled.documented)]
    assert all(len(given) == len(kernel.arg_names) for given in calls)
    bases = [[getattr(x, "base", x) for x in given] for given in calls]
    return [
        {name: x.data_ptr() if hasattr(x, "data_ptr") else x for name, x in zip(kernel.arg_names, given)}
        for given in bases
    ]


def own_addresses(given):
    """The addresses of A, B and C."""
    return [value for name, value in given.items() if name.startswith(("a_", "b_", "c_"))]


@pytest.mark.parametrize("lacks", ["", "fast", "a known version", "function", "packed_metadata", "run", "metadata"])
def test_a_second_call_repeats_the_launch_with_its_own_addresses(rendered, monkeypatch, lacks):
    """Without Triton's own path where that is known; otherwise as Triton documents it."""
    package = rendered(SPEC.replace("fastest", "heuristic") if lacks == "fast" else SPEC)
    if lacks == "a known version":
        monkeypatch.setattr("again._runtime.fast.KNOWN", False)
    elif lacks not in ("", "fast"):
        monkeypatch.setattr(Lacking, "missing", lacks)
        for name in package._KERNELS["gemm_fp16_rcr_none"]:
            package._kernel(name).gemm_kernel.compiled = Lacking()
    function = package.gemm_fp16_rcr_none
    function(*operands())
    kernel = launched(package, "gemm_fp16_rcr_none")
    a, b = operands()
    out = function(a, b)
    ((grid, _, arguments),) = kernel.launches
    (own,) = repeats(kernel)
    assert own_addresses(own) == [x.data_ptr() for x in (a, b, out)]
    if lacks:
        ((again, run),) = kernel.compiled.documented
        assert again == (*grid, 1, 1)
    else:
        (whole,) = kernel.compiled.runs
        own, run = (kernel.compiled.function, kernel.compiled.packed_metadata), whole[9:]
        assert whole[:9] == (*grid, 1, 1, ("stream", None), *own, None, None, None)
    for name, second in zip(kernel.arg_names, run):
        first = arguments.get(name)
        if isinstance(first, TensorDescriptor):
            assert (second.shape, second.strides, second.block_shape) == (first.shape, first.strides, first.block_shape)
        elif not isinstance(first, torch.Tensor):
            assert first == second, name


def test_the_result_is_as_the_first_call_made_it_or_the_one_given(either):
    function = either.gemm_fp16_rcr_none
    first = function(*operands())
    again = function(*operands())
    assert (again.shape, again.stride(), again.dtype) == (first.shape, first.stride(), first.dtype)
    given = torch.empty(64, 48, dtype=torch.float16)
    assert function(*operands(), out=given) is given
    assert function(*operands(), out=given) is given
    kernel = launched(either, "gemm_fp16_rcr_none")
    assert len(kernel.launches) == 2 and own_addresses(repeats(kernel)[-1])[2] == given.data_ptr()


def test_outputs_are_made_or_filled_and_sums_are_added_by_every_call(either, monkeypatch):
    function = either.gemm_fp16_rcr_save_rowsum
    function(*operands())
    kernel = launched(either, "gemm_fp16_rcr_save_rowsum")

    def ones(size, strides, **options):
        return torch.ones(size, **options)

    # As if the kernel had written a sum of 1 for each tile and row.
    monkeypatch.setattr(torch, "empty_strided", ones)
    out, preact, row_sum = function(*operands(n=400))
    out, preact, row_sum = function(*operands(n=400))
    assert (out.shape, preact.shape, row_sum.shape) == ((64, 400), (64, 400), (64,))
    (own,) = repeats(kernel)
    assert len(kernel.launches) == 2
    tiles = triton.cdiv(400, kernel.launches[-1][2]["BLOCK_N"])
    assert tiles > 1 and row_sum.tolist() == [tiles] * 64
    assert {out.data_ptr(), preact.data_ptr()} <= {*own.values()} and own["row_sum_ptr"] != row_sum.data_ptr()
    given = {"row_sum": torch.empty(64)}
    assert all(function(*operands(), **given)[2] is given["row_sum"] for _ in range(2))
    assert given["row_sum"].tolist() == [1.0] * 64


def test_a_result_that_is_read_is_launched_again_in_its_place(either):
    function, out = either.gemm_fp16_rcr_accumulate, torch.empty(64, 48, dtype=torch.float16)
    assert function(*operands(), beta=2.0, out=out) is out and function(*operands(), beta=3.0, out=out) is out
    kernel = launched(either, "gemm_fp16_rcr_accumulate")
    (own,) = repeats(kernel)
    assert len(kernel.launches) == 1 and own["beta_or_ptr"] == 3.0 and out.data_ptr() in own.values()
    with pytest.raises(ValueError, match="out must be given"):
        function(*operands(), beta=2.0)


def test_numbers_and_vectors_are_those_of_the_call(either):
    function = either.gemm_fp16_rcr_scale_bias
    vectors = [torch.randn(48) for _ in range(2)]
    function(*operands(), scale=2.0, bias=vectors[0])
    function(*operands(), scale=0.5, bias=vectors[1])
    kernel = launched(either, "gemm_fp16_rcr_scale_bias")
    (own,) = repeats(kernel)
    assert own["scale_or_ptr"] == 0.5
    assert own["bias_ptr"] == vectors[1].data_ptr()
    # A number of another kind is another specialisation.
    function(*operands(), scale=torch.tensor([0.5]), bias=vectors[1])
    assert len(kernel.launches) == 2
    # Keywords in another order.
    function(*operands(), bias=vectors[0], scale=4.0)
    function(*operands(), bias=vectors[1], scale=8.0)
    own = repeats(kernel)[-1]
    assert own["scale_or_ptr"] == 8.0 and own["bias_ptr"] == vectors[1].data_ptr()


def test_a_kept_call_holds_no_tensor(either):
    import gc
    import weakref

    a, b = operands()
    dead = [weakref.ref(x) for x in (a, b, either.gemm_fp16_rcr_none(a, b), either.gemm_fp16_rcr_none(a, b))]
    kernel = launched(either, "gemm_fp16_rcr_none")
    for kept in (kernel.launches, kernel.compiled.runs, kernel.compiled.documented):
        kept.clear()
    del a, b
    gc.collect()
    assert [reference() for reference in dead] == [None] * 4


def test_hooks_that_are_installed_after_the_first_calls_are_told(family):
    function, told, knobs = family.gemm_fp16_rcr_none, [], triton.knobs.runtime
    for _ in range(2):
        function(*operands())
    kernel = launched(family, "gemm_fp16_rcr_none")
    assert kernel.compiled.runs[-1][6:9] == (None, None, None)
    hooks = {
        knobs.launch_enter_hook: lambda metadata: told.append(("enter", metadata)),
        knobs.launch_exit_hook: lambda metadata: told.append(("exit", metadata)),
    }
    metadata = {"name": "the kernel", "stream": ("stream", None)}
    for chain, hook in hooks.items():
        chain.add(hook)
    try:
        function(*operands())
        assert told == [("enter", metadata), ("exit", metadata)]
        knobs.launch_enter_hook.remove(hooks[knobs.launch_enter_hook])
        function(*operands())
        assert told[2:] == [("exit", metadata)]
    finally:
        for chain, hook in hooks.items():
            chain.remove(hook)
    function(*operands())
    assert len(told) == 3 and len(kernel.launches) == 1 and len(kernel.compiled.runs) == 4


def test_tensor_maps_are_made_once_for_an_address(family, monkeypatch):
    """Of a kernel whose descriptors the hardware reads; the driver makes a launcher that takes maps."""
    maps = importlib.import_module("again._runtime.fast")
    asked = []
    ran = []

    def launcher(source, metadata):
        asked.append((source, metadata))
        return lambda *arguments: ran.append(arguments)

    active = maps._driver()
    active.launcher_cls = launcher
    monkeypatch.setattr(maps, "_encoder", lambda: lambda x, meta: [(meta, x.base.data_ptr()), "shape", "strides"])
    function = family.gemm_fp16_rcr_none
    name = family._KERNELS["gemm_fp16_rcr_none"][0]
    compiled = family._kernel(name).gemm_kernel.compiled
    kinds = ["tensordesc<fp16[64,64]>"] * 3 + ["i32"] * 3
    compiled.src = SimpleNamespace(signature=dict(enumerate(kinds)))
    compiled.metadata = namedtuple("Metadata", ["tensordesc_meta"])(["one", "two", "three"])
    a, b = operands()
    function(a, b)
    calls = [function(a, b) for _ in range(3)] and [function(*operands()) for _ in range(2)]
    ((source, metadata),) = asked
    described = ["nvTmaDesc", "i32", "i32", "i64", "i64"]
    assert [*source.signature.values()] == [*described * 3, "i32", "i32", "i32"]
    assert source.constants == {} and metadata.tensordesc_meta is None
    assert not compiled.runs and len(ran) == 5 and len(calls) == 2
    maps = [[run[9], run[14]] for run in ran[:3]]
    assert maps[0] == [("one", a.data_ptr()), ("two", b.data_ptr())]
    assert all(x is y for one in maps[1:] for x, y in zip(maps[0], one))
    assert ran[0][10:14] == (64, 32, 32, 1) and ran[0][15:19] == (48, 32, 32, 1)
    assert ran[4][9] != maps[0][0]


def test_ragged_operands_are_copied_where_each_element_is_used_often(family, monkeypatch):
    function = family.gemm_fp16_rcr_none
    done = []

    def launch(pairs, block):
        done.append(len(pairs))
        copied(pairs, block)

    monkeypatch.setattr(sys.modules["again._runtime.copies"], "_launch", launch)
    for _ in range(2):
        a, b = operands(401, 408, 33)
        out = function(a, b)
    kernel = launched(family, "gemm_fp16_rcr_none")
    assert out.shape == (401, 408) and len(kernel.launches) == 1
    assert done == [2, 2], "both operands at once, and once a call"


def test_an_error_of_a_call_for_another_layout_names_the_contract_that_was_called(rendered):
    package = rendered("summary: Two layouts.\nlayout: [rcr, rrr]\ndtype: fp16\nepilogue: bias\n")
    a, b = torch.randn(64, 32).half(), torch.randn(32, 1).half()
    with pytest.raises(ValueError, match=r"^gemm_fp16_rrr_bias: bias must have shape \(1,\), got \(2,\)$"):
        package.gemm_fp16_rrr_bias(a, b, bias=torch.empty(2))


def test_an_autotuned_launch_is_repeated_with_the_configuration_that_was_chosen(rendered, monkeypatch):
    package = rendered("summary: Tuned.\nlayout: rcr\ndtype: fp16\nselect: autotune\nload: pointer\n")
    name = package._KERNELS["gemm_fp16_rcr_none"][0]
    table, kernel = package._kernel(name).CALL, package._kernel(name).gemm_kernel
    row = {"BLOCK_M": 16, "BLOCK_N": 8}
    # As on a GPU.
    monkeypatch.setattr(type(table), "tunes", True)
    table.tuner.kernel = lambda call: kernel
    kernel.best_config = SimpleNamespace(all_kwargs=lambda: row)
    for _ in range(2):
        package.gemm_fp16_rcr_none(*operands())
    (run,) = kernel.compiled.runs
    assert run[:3] == (4 * 6, 1, 1) and len(kernel.launches) == 1
