"""A family's cached launches: calls of one signature repeat the launch of the first, with their own operands."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from generator.commands.command_line import main
from tests.helpers.stand_ins import copied, launched, operands
from tests.helpers.support import forget

SPEC = """\
summary: Launched again.
layout: [rcr]
dtype: fp16
epilogue: [none, scale+bias, save+row_sum, accumulate]
schedule: [persistent, tiled]
load: [descriptor, pointer]
select: fastest
exclude:
  - {schedule: persistent, load: pointer, because: not here}
"""


@pytest.fixture
def family(rendered: Callable[[str], ModuleType]) -> ModuleType:
    return rendered(SPEC)


def addresses(arguments: tuple[Any, ...]) -> list[int]:
    found = [x.base if isinstance(x, TensorDescriptor) else x for x in arguments]
    return [x if isinstance(x, int) else x.data_ptr() for x in found if isinstance(x, int) or hasattr(x, "data_ptr")]


def test_a_second_call_of_a_kind_repeats_the_launch_with_its_own_addresses(family: ModuleType) -> None:
    function = family.gemm_fp16_rcr_none
    function(*operands())
    kernel = launched(family, "gemm_fp16_rcr_none")
    ((grid, _, arguments),) = kernel.launches
    a, b = operands()
    out = function(a, b)
    assert len(kernel.launches) == 1
    (run,) = kernel.compiled.runs
    assert run[:4] == (*grid, 1, 1, ("stream", None))
    assert run[4:9] == (kernel.compiled.function, kernel.compiled.packed_metadata, None, None, None)
    own = run[9:]
    assert len(own) == len(kernel.arg_names)
    assert addresses(own)[:3] == [a.data_ptr(), b.data_ptr(), out.data_ptr()]
    for name, second in zip(kernel.arg_names, own):
        first = arguments.get(name)
        if isinstance(first, TensorDescriptor):
            assert (second.shape, second.strides, second.block_shape) == (first.shape, first.strides, first.block_shape)
        elif not isinstance(first, torch.Tensor):
            assert first == second, name


def test_the_result_is_as_the_first_call_made_it_or_the_one_given(family: ModuleType) -> None:
    function = family.gemm_fp16_rcr_none
    first = function(*operands())
    again = function(*operands())
    assert (again.shape, again.stride(), again.dtype) == (first.shape, first.stride(), first.dtype)
    given = torch.empty(64, 48, dtype=torch.float16)
    assert function(*operands(), out=given) is given
    assert function(*operands(), out=given) is given
    kernel = launched(family, "gemm_fp16_rcr_none")
    assert len(kernel.launches) == 2 and addresses(kernel.compiled.runs[-1][9:])[2] == given.data_ptr()


def test_outputs_are_made_or_filled_and_sums_are_added_by_every_call(
    family: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = family.gemm_fp16_rcr_save_rowsum
    function(*operands())
    kernel = launched(family, "gemm_fp16_rcr_save_rowsum")

    def ones(size: Any, strides: Any, **options: Any) -> torch.Tensor:
        return torch.ones(size, **options)

    # As if the kernel had written a sum of 1 for each tile and row.
    monkeypatch.setattr(torch, "empty_strided", ones)
    out, preact, row_sum = function(*operands(n=400))
    out, preact, row_sum = function(*operands(n=400))
    assert (out.shape, preact.shape, row_sum.shape) == ((64, 400), (64, 400), (64,))
    (_, run) = kernel.launches, kernel.compiled.runs[-1]
    assert len(kernel.launches) == 2 and len(kernel.compiled.runs) == 1
    own = dict(zip(kernel.arg_names, run[9:]))
    tiles = triton.cdiv(400, kernel.launches[-1][2]["BLOCK_N"])
    assert tiles > 1 and row_sum.tolist() == [tiles] * 64
    assert {out.data_ptr(), preact.data_ptr()} <= set(addresses(run[9:])) and own["row_sum_ptr"] != row_sum.data_ptr()
    given = {"row_sum": torch.empty(64)}
    assert all(function(*operands(), **given)[2] is given["row_sum"] for _ in range(2))
    assert given["row_sum"].tolist() == [1.0] * 64


def test_a_result_that_is_read_is_launched_again_in_its_place(family: ModuleType) -> None:
    function, out = family.gemm_fp16_rcr_accumulate, torch.empty(64, 48, dtype=torch.float16)
    assert function(*operands(), beta=2.0, out=out) is out and function(*operands(), beta=3.0, out=out) is out
    kernel = launched(family, "gemm_fp16_rcr_accumulate")
    (run,) = kernel.compiled.runs
    own = dict(zip(kernel.arg_names, run[9:]))
    assert len(kernel.launches) == 1 and own["beta_or_ptr"] == 3.0 and out.data_ptr() in addresses(run[9:])
    with pytest.raises(ValueError, match="out must be given"):
        function(*operands(), beta=2.0)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda a, b: (a[:48], b), "a shape"),
        (lambda a, b: (torch.randn(64, 40, dtype=torch.float16)[:, :32], b), "a stride"),
        (lambda a, b: (torch.randn(64 * 32 + 8, dtype=torch.float16)[1 : 64 * 32 + 1].view(64, 32), b), "an alignment"),
    ],
)
def test_a_call_of_another_kind_is_launched_by_its_kernel(
    family: ModuleType, change: Any, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["again._runtime.copies"], "worth_aligning", lambda a, b: False)
    function = family.gemm_fp16_rcr_none
    function(*operands())
    function(*change(*operands()))
    modules = [family._kernel(name) for name in family._KERNELS["gemm_fp16_rcr_none"]]
    assert sum(len(module.gemm_kernel.launches) for module in modules) == 2, why


def test_numbers_and_vectors_are_those_of_the_call(family: ModuleType) -> None:
    function = family.gemm_fp16_rcr_scale_bias
    vectors = [torch.randn(48) for _ in range(2)]
    function(*operands(), scale=2.0, bias=vectors[0])
    function(*operands(), scale=0.5, bias=vectors[1])
    kernel = launched(family, "gemm_fp16_rcr_scale_bias")
    own = dict(zip(kernel.arg_names, kernel.compiled.runs[0][9:]))
    assert own["scale_or_ptr"] == 0.5
    assert own["bias_ptr"] == vectors[1].data_ptr()
    # A number of another kind is another specialisation.
    function(*operands(), scale=torch.tensor([0.5]), bias=vectors[1])
    assert len(kernel.launches) == 2
    # Keywords in another order.
    function(*operands(), bias=vectors[0], scale=4.0)
    function(*operands(), bias=vectors[1], scale=8.0)
    own = dict(zip(kernel.arg_names, kernel.compiled.runs[-1][9:]))
    assert own["scale_or_ptr"] == 8.0 and own["bias_ptr"] == vectors[1].data_ptr()


def test_one_tensor_may_be_both_operands(family: ModuleType) -> None:
    function = family.gemm_fp16_rcr_none
    for _ in range(2):
        x = torch.randn(64, 64, dtype=torch.float16)
        function(x, x.T)
    own = launched(family, "gemm_fp16_rcr_none").compiled.runs[0][9:]
    assert addresses(own)[:2] == [x.data_ptr()] * 2


def test_a_kept_call_holds_no_tensor(family: ModuleType) -> None:
    import gc
    import weakref

    a, b = operands()
    dead = [weakref.ref(x) for x in (a, b, family.gemm_fp16_rcr_none(a, b), family.gemm_fp16_rcr_none(a, b))]
    kernel = launched(family, "gemm_fp16_rcr_none")
    kernel.launches.clear()
    kernel.compiled.runs.clear()
    kernel.compiled.again.clear()
    del a, b
    gc.collect()
    assert [reference() for reference in dead] == [None] * 4


def test_hooks_that_are_installed_after_the_first_calls_are_told(family: ModuleType) -> None:
    function = family.gemm_fp16_rcr_none
    function(*operands())
    function(*operands())
    kernel = launched(family, "gemm_fp16_rcr_none")
    assert kernel.compiled.runs[-1][6:9] == (None, None, None)
    told: list[tuple[str, Any]] = []
    hooks = {
        triton.knobs.runtime.launch_enter_hook: lambda metadata: told.append(("enter", metadata)),
        triton.knobs.runtime.launch_exit_hook: lambda metadata: told.append(("exit", metadata)),
    }
    metadata = {"name": "the kernel", "stream": ("stream", None)}
    for chain, hook in hooks.items():
        chain.add(hook)
    try:
        function(*operands())
        assert told == [("enter", metadata), ("exit", metadata)]
        triton.knobs.runtime.launch_enter_hook.remove(hooks[triton.knobs.runtime.launch_enter_hook])
        function(*operands())
        assert told[2:] == [("exit", metadata)]
    finally:
        for chain, hook in hooks.items():
            chain.remove(hook)
    function(*operands())
    assert len(told) == 3 and len(kernel.launches) == 1 and len(kernel.compiled.runs) == 4


def test_by_what_triton_documents_a_launch_has_its_own_operands(
    family: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second launch is `CompiledKernel[grid]` with the call's tensors, and descriptors of them."""
    monkeypatch.setattr(sys.modules["again._runtime.fast"], "KNOWN", False)
    function, given = family.gemm_fp16_rcr_scale_bias, {"bias": torch.randn(48)}
    function(*operands(), scale=2.0, **given)
    kernel = launched(family, "gemm_fp16_rcr_scale_bias")
    ((grid, _, first),) = kernel.launches
    a, b = operands()
    out = function(a, b, scale=3.0, **given)
    assert not kernel.compiled.runs
    ((again, own),) = kernel.compiled.again
    assert again == (*grid, 1, 1)
    named = dict(zip(kernel.arg_names, own))
    assert named["scale_or_ptr"] == 3.0
    assert addresses(own)[:3] == [a.data_ptr(), b.data_ptr(), out.data_ptr()]
    for name, x in first.items():
        if isinstance(x, TensorDescriptor):
            assert (named[name].shape, named[name].strides, named[name].block_shape) == (
                x.shape,
                x.strides,
                x.block_shape,
            )


def test_by_what_triton_documents_no_tensor_is_kept(family: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["again._runtime.fast"], "KNOWN", False)
    test_a_kept_call_holds_no_tensor(family)


class Lacking(SimpleNamespace):
    """A compiled kernel of a Triton that lacks a name."""

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __getitem__(self, grid: Any) -> Any:
        return lambda *arguments: self.again.append(arguments)


@pytest.mark.parametrize("name", ["function", "packed_metadata", "run", "metadata"])
def test_where_a_compiled_kernel_lacks_a_name_launches_are_as_documented(family: ModuleType, name: str) -> None:
    for each in family._KERNELS["gemm_fp16_rcr_none"]:
        kernel = family._kernel(each).gemm_kernel
        names = {"metadata", "function", "packed_metadata", "run", "again"} - {name}
        kernel.compiled = Lacking(**{x: getattr(kernel.compiled, x) for x in names})
    for _ in range(2):
        family.gemm_fp16_rcr_none(*operands())
    kernel = launched(family, "gemm_fp16_rcr_none")
    assert (len(kernel.launches), len(kernel.compiled.again)) == (1, 1)


def test_tensor_maps_are_made_once_for_an_address(family: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a kernel whose descriptors the hardware reads; the driver makes a launcher that takes maps."""
    maps = importlib.import_module("again._runtime.fast")
    asked: list[tuple[Any, Any]] = []
    ran: list[tuple[Any, ...]] = []

    def launcher(source: Any, metadata: Any) -> Any:
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


def test_ragged_operands_are_copied_where_each_element_is_used_often(
    family: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = family.gemm_fp16_rcr_none
    done: list[int] = []

    def launch(pairs: list[tuple[torch.Tensor, torch.Tensor, int]], block: object) -> None:
        done.append(len(pairs))
        copied(pairs, block)

    monkeypatch.setattr(sys.modules["again._runtime.copies"], "_launch", launch)
    for _ in range(2):
        a, b = operands(401, 408, 33)
        out = function(a, b)
    kernel = launched(family, "gemm_fp16_rcr_none")
    assert out.shape == (401, 408) and len(kernel.launches) == 1
    assert done == [2, 2], "both operands at once, and once a call"


def test_what_no_kernel_takes_is_said_by_the_kernel(family: ModuleType) -> None:
    with pytest.raises(TypeError, match=r"a must be a torch\.Tensor, got list"):
        family.gemm_fp16_rcr_none([1], [2])
    with pytest.raises(ValueError, match="they must be equal"):
        family.gemm_fp16_rcr_none(torch.randn(4, 8, dtype=torch.float16), torch.randn(16, 4, dtype=torch.float16).T)


def test_an_error_names_the_contract(family: ModuleType) -> None:
    function, name = family.gemm_fp16_rcr_scale_bias, "gemm_fp16_rcr_scale_bias"
    a, b = operands()
    with pytest.raises(TypeError, match=rf"^{name}: a must be a torch\.Tensor, got list$"):
        function([1], b, scale=1.0, bias=torch.empty(48))
    with pytest.raises(ValueError, match=rf"^{name}: bias must have shape \(48,\), got \(4,\)$"):
        function(a, b, scale=1.0, bias=torch.empty(4))
    for given, told in (
        ({"scale": 1.0}, "missing bias"),
        ({"scale": 1.0, "bias": torch.empty(48), "gain": 2.0}, "unexpected gain"),
        ({"gain": 2.0}, "missing bias, scale; unexpected gain"),
    ):
        with pytest.raises(TypeError, match=rf"^{name}\(\) got wrong keyword arguments: {told}$"):
            function(a, b, **given)
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'b'$"):
        function(a)


def test_an_error_of_a_call_for_another_layout_names_the_contract_that_was_called(
    rendered: Callable[[str], ModuleType],
) -> None:
    package = rendered("summary: Two layouts.\nlayout: [rcr, rrr]\ndtype: fp16\nepilogue: bias\n")
    a, b = torch.randn(64, 32).half(), torch.randn(32, 1).half()
    with pytest.raises(ValueError, match=r"^gemm_fp16_rrr_bias: bias must have shape \(1,\), got \(2,\)$"):
        package.gemm_fp16_rrr_bias(a, b, bias=torch.empty(2))


def test_columns_of_b_that_lie_across_lines_are_copied_where_they_are_used_often(
    family: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operands that every kernel takes as they are."""
    copies = sys.modules["again._runtime.copies"]
    monkeypatch.setattr(copies, "_launch", copied)
    given: list[tuple[int, ...]] = []

    def start(call: Any, plan: Any, operands: dict[str, Any], first: torch.Tensor) -> None:
        given.append((operands["a"].stride(0), operands["b"].stride(1)))

    monkeypatch.setattr(sys.modules["again._runtime.launch"], "started", start)
    a, b = torch.randn(4096, 72).half()[:, :64], torch.randn(512, 72).half()[:, :64].T
    family.gemm_fp16_rcr_none(a, b)
    family.gemm_fp16_rcr_none(a[:2048], b)
    assert given == [(72, 64), (72, 72)]


def test_nothing_is_copied_where_k_is_0(family: ModuleType) -> None:
    assert not sys.modules["again._runtime.copies"].worth_aligning(torch.empty(401, 0), torch.empty(0, 403))
    out = family.gemm_fp16_rcr_none(*operands(401, 403, 0))
    assert out.shape == (401, 403)


GATED = """\
summary: Two halves.
layout: rcr
dtype: fp16
epilogue: [none, swiglu]
select: table
tuned: found.json
"""


@pytest.mark.parametrize(("contract", "columns"), [("gemm_fp16_rcr_none", 96), ("gemm_fp16_rcr_swiglu", 48)])
def test_a_choice_by_measurements_is_by_the_columns_of_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contract: str, columns: int
) -> None:
    (tmp_path / "halves.yaml").write_text(GATED)
    nothing = {"format": 2, "device": "Some GPU", "error": 0.0, "regret": 0.0, "winners": [], "rates": []}
    (tmp_path / "found.json").write_text(json.dumps(nothing))
    assert main([str(tmp_path / "halves.yaml"), "--out", str(tmp_path)]) == 0
    monkeypatch.syspath_prepend(tmp_path)
    package = importlib.import_module("halves")
    launch, ranking, tuned = (
        importlib.import_module(f"halves.{x}") for x in ("_runtime.launch", "_runtime.ranking", "_tuned")
    )
    asked: list[tuple[int, ...]] = []
    for module in (launch, ranking):
        monkeypatch.setattr(module, "on_gpu", lambda x: True)
    monkeypatch.setattr(triton.knobs.runtime, "interpret", True)
    monkeypatch.setattr(launch, "started", lambda *given: None)
    monkeypatch.setattr(tuned, "choose", lambda name, kernels, sizes, *rest: asked.append(sizes))
    getattr(package, contract)(*operands(n=96))
    assert asked == [(64, columns, 32)]
    forget("halves")


def test_an_autotuned_launch_is_repeated_with_the_configuration_that_was_chosen(
    rendered: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
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
