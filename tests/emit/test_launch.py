"""A family's `_launch.py`: calls of one kind repeat the launch of the first, with their own addresses and numbers."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from generator.cli import main
from tests.helpers.stand_ins import Kernel, copied
from tests.helpers.support import forget

SPEC = """\
summary: Launched again.
layout: [rcr]
dtype: fp16
epilogue: [none, scale+bias, save+row_sum, accumulate]
schedule: [persistent, tiled]
load: [descriptor, pointer]
exclude:
  - {schedule: persistent, load: pointer, because: not here}
"""


@pytest.fixture
def family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "again.yaml").write_text(SPEC)
    assert main([str(tmp_path / "again.yaml"), "--out", str(tmp_path)]) == 0
    monkeypatch.syspath_prepend(tmp_path)
    package = importlib.import_module("again")
    launch, copies = importlib.import_module("again._launch"), importlib.import_module("again._copies")
    monkeypatch.setattr(triton.knobs.runtime, "interpret", True)
    monkeypatch.setattr(copies, "_launch", copied)
    monkeypatch.setattr(launch, "_on_gpu", lambda x: True)
    active = SimpleNamespace(get_current_stream=lambda index: ("stream", index), get_current_device=lambda: None)
    monkeypatch.setattr(launch, "driver", SimpleNamespace(active=active))
    for name in [name for names in package._KERNELS.values() for name in names]:
        module = package._kernel(name)
        module.gemm_kernel = Kernel(module.gemm_kernel.arg_names)
    yield package
    forget("again")


def launched(package: ModuleType, contract: str) -> Kernel:
    """The one kernel of a contract that was launched."""
    modules = [package._kernel(name) for name in package._KERNELS[contract]]
    (found,) = [module.gemm_kernel for module in modules if module.gemm_kernel.launches]
    return found


def operands(m: int = 64, n: int = 48, k: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(m, k, dtype=torch.float16), torch.randn(n, k, dtype=torch.float16).T


def addresses(arguments: tuple[Any, ...]) -> list[int]:
    found = [x.base if isinstance(x, TensorDescriptor) else x for x in arguments]
    return [x if isinstance(x, int) else x.data_ptr() for x in found if isinstance(x, int) or hasattr(x, "data_ptr")]


def test_a_second_call_of_a_kind_repeats_the_launch_with_its_own_addresses(family: ModuleType) -> None:
    function = family.gemm_fp16_rcr_none
    function(*operands())
    kernel = launched(family, "gemm_fp16_rcr_none")
    ((grid, arguments, options),) = kernel.launches
    a, b = operands()
    out = function(a, b)
    assert len(kernel.launches) == 1
    (run,) = kernel.compiled.runs
    assert run[:4] == (*grid, 1, 1, ("stream", None))
    assert run[4:9] == (kernel.compiled.function, kernel.compiled.packed_metadata, None, None, None)
    own = run[9:]
    assert len(own) == len(kernel.arg_names)
    assert addresses(own)[:3] == [a.data_ptr(), b.data_ptr(), out.data_ptr()]
    for name, first, second in zip(kernel.arg_names, arguments, own):
        if isinstance(first, TensorDescriptor):
            assert (second.shape, second.strides, second.block_shape) == (first.shape, first.strides, first.block_shape)
        else:
            assert first == second, name
    assert all(own[kernel.arg_names.index(name)] == value for name, value in options.items() if "num_" not in name)


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


def test_a_kernel_with_outputs_is_launched_by_its_launcher_each_time(family: ModuleType) -> None:
    function = family.gemm_fp16_rcr_save_rowsum
    for _ in range(2):
        out, preact, row_sum = function(*operands())
        assert (out.shape, preact.shape, row_sum.shape) == ((64, 48), (64, 48), (64,))
    kernel = launched(family, "gemm_fp16_rcr_save_rowsum")
    assert len(kernel.launches) == 2 and not kernel.compiled.runs
    given = {"row_sum": torch.empty(64)}
    assert all(function(*operands(), **given)[2] is given["row_sum"] for _ in range(2))
    with pytest.raises(TypeError, match="col_sum"):
        function(*operands(), col_sum=torch.empty(48))


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
    monkeypatch.setattr(sys.modules["again._copies"], "worth_aligning", lambda a, b: False)
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
    del a, b
    gc.collect()
    assert [reference() for reference in dead] == [None] * 4


def test_under_a_profiler_every_call_is_the_kernels_own(family: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = sys.modules["again._launch"]
    monkeypatch.setattr(launch, "_may_keep", lambda: False)
    for _ in range(2):
        family.gemm_fp16_rcr_none(*operands())
    assert len(launched(family, "gemm_fp16_rcr_none").launches) == 2


def test_ragged_operands_are_copied_where_each_element_is_used_often(
    family: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = family.gemm_fp16_rcr_none
    done: list[int] = []

    def launch(pairs: list[tuple[torch.Tensor, torch.Tensor, int]], block: object) -> None:
        done.append(len(pairs))
        copied(pairs, block)

    monkeypatch.setattr(sys.modules["again._copies"], "_launch", launch)
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


def test_columns_of_b_that_lie_across_lines_are_copied_where_they_are_used_often(
    family: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operands that every kernel takes as they are."""
    copies = sys.modules["again._copies"]
    monkeypatch.setattr(copies, "_launch", copied)
    given: list[tuple[int, ...]] = []

    def record(module: ModuleType, row: Any, a: torch.Tensor, b: torch.Tensor, *others: Any) -> Any:
        given.append((a.stride(0), b.stride(1)))
        return None, lambda *operands: None

    monkeypatch.setattr(sys.modules["again._launch"], "_record", record)
    a, b = torch.randn(4096, 72).half()[:, :64], torch.randn(512, 72).half()[:, :64].T
    family.gemm_fp16_rcr_none(a, b)
    family.gemm_fp16_rcr_none(a[:2048], b)
    assert given == [(72, 64), (72, 72)]


def test_nothing_is_copied_where_k_is_0(family: ModuleType) -> None:
    assert not sys.modules["again._copies"].worth_aligning(torch.empty(401, 0), torch.empty(0, 403))
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
    nothing = {"format": 1, "device": "Some GPU", "error": 0.0, "regret": 0.0, "winners": [], "rates": []}
    (tmp_path / "found.json").write_text(json.dumps(nothing))
    assert main([str(tmp_path / "halves.yaml"), "--out", str(tmp_path)]) == 0
    monkeypatch.syspath_prepend(tmp_path)
    package = importlib.import_module("halves")
    launch, tuned = importlib.import_module("halves._launch"), importlib.import_module("halves._tuned")
    asked: list[tuple[int, ...]] = []
    monkeypatch.setattr(launch, "_on_gpu", lambda x: True)
    monkeypatch.setattr(launch, "_record", lambda *given: (None, None))
    monkeypatch.setattr(tuned, "choose", lambda name, kernels, sizes, *rest: asked.append(sizes))
    getattr(package, contract)(*operands(n=96))
    assert asked == [(64, columns, 32)]
    forget("halves")


def test_a_result_that_is_added_to_is_cleared_for_every_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = SPEC.replace("again", "added")
    text = text.replace("dtype: fp16", "dtype: {a: fp16, out: fp32}").replace(
        "epilogue: [none, scale+bias, save+row_sum, accumulate]\n", ""
    )
    text = text[: text.index("schedule:")] + "schedule: split_k_atomic\n"
    (tmp_path / "added.yaml").write_text(text)
    assert main([str(tmp_path / "added.yaml"), "--out", str(tmp_path)]) == 0
    monkeypatch.syspath_prepend(tmp_path)
    package = importlib.import_module("added")
    launch = importlib.import_module("added._launch")
    monkeypatch.setattr(triton.knobs.runtime, "interpret", True)
    monkeypatch.setattr(launch, "_on_gpu", lambda x: True)
    ((contract, (name,)),) = package._KERNELS.items()
    module = package._kernel(name)
    module.gemm_kernel = Kernel(module.gemm_kernel.arg_names)
    for _ in range(2):
        out = torch.ones(64, 48)
        getattr(package, contract)(*operands(), out=out)
        assert not out.any()
    assert len(module.gemm_kernel.launches) == 2
    forget("added")
