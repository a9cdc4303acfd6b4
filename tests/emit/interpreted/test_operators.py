"""The contracts of a family as operators of torch: fake tensors, subclasses, dispatch modes, transforms, autocast."""

import importlib
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from generator.emit.loading import load_family, load_kernel
from tests.helpers.emit.calls import Seen, contracts, drawn, in_threads, operands, results
from tests.helpers.support import forget, spec

SPEC = spec(
    "layout: [rcr, rcc]; dtype: [fp16, bf16, int8]; batch: [none, strided]; "
    "epilogue: [none, scale+bias, bias+save+gelu+row_sum, save+swiglu, accumulate]; load: pointer; "
    "exclude: [{layout: rcc, epilogue: [none, scale+bias, bias+save+gelu+row_sum, accumulate], because: one will do}]"
)
PLAIN, CHAIN = "gemm_fp16_rcr_none", "gemm_fp16_rcr_scale_bias"


def called(family, name, given):
    return results(getattr(family, name)(**given))


def alike(x, y):
    assert (x.shape, x.stride(), x.dtype) == (y.shape, y.stride(), y.dtype)


def test_fake_tensors_and_meta_tensors_launch_nothing(family, launches):
    """Of every contract: shapes, strides and types of all results, also by the kernel's own `gemm`."""
    variants = contracts(family)
    assert len(variants) == 26
    for name, variant in variants.items():
        given = operands(variant)
        expected = called(family, name, {x: value.clone() for x, value in given.items()})
        assert launches
        launches.clear()
        with FakeTensorMode() as mode:
            fake = {x: torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device="cuda") for x, v in given.items()}
        meta = {x: value.to("meta") for x, value in given.items()}
        alone = load_kernel(Path(family.__path__[0]) / f"{family._KERNELS[name][0]}.py")
        for gemm in (getattr(family, name), alone.gemm):
            for those, device in ((fake, "cuda"), (meta, "meta")):
                with mode if device == "cuda" else nullcontext():
                    found = results(gemm(**those))
                assert len(found) == len(expected)
                for x, y in zip(found, expected):
                    alike(x, y)
                    assert x.device.type == device and isinstance(x, FakeTensor) == (device == "cuda")
                if "out" in those:
                    assert found[0] is those["out"]
        assert not launches, name


def test_autocast_calls_the_contract_of_its_type(family, launches):
    given = operands(contracts(family)[CHAIN])
    wide = {x: value.float() for x, value in given.items()}
    for dtype, name in ((torch.float16, CHAIN), (torch.bfloat16, CHAIN.replace("fp16", "bf16"))):
        cast = {x: value.to(dtype) if x in ("a", "b") else value for x, value in wide.items()}
        expected = called(family, name, cast)
        with torch.autocast("cpu", dtype=dtype), Seen(family) as seen:
            (found,) = called(family, CHAIN, wide)
        assert seen.names == [name] and found.dtype == dtype and torch.equal(found, *expected)
    assert len(launches) == 4


def test_autocast_casts_what_is_not_stored(render):
    """`a` of a stored weight is cast to the type of the contract, and to no other."""
    dtype = "{a: bf16, b: int8, scales: {b: [32, 1]}}"
    text = f"summary: x\nlayout: rcr\ndtype: {dtype}\nbatch: [none, grouped]\nload: pointer\n"
    family = render("autocast_stored", text)
    for name, variant in contracts(family).items():
        given = operands(variant)
        assert given["a"].dtype == torch.bfloat16 and given["b"].dtype == torch.int8
        expected = called(family, name, given)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            (found,) = called(family, name, {**given, "a": given["a"].float()})
        assert torch.equal(found[:4], expected[0][:4])
        told = f"^{name}: autocast is to float16, and this family lacks this contract for that type$"
        with torch.autocast("cpu", dtype=torch.float16), pytest.raises(TypeError, match=told):
            called(family, name, given)


@pytest.mark.parametrize(
    "name", ["gemm_fp16_rcr_none", "gemm_fp16_rcr_scale_bias", "gemm_fp16_rcr_bias_save_gelu_rowsum"]
)
def test_vmap_calls_the_contract_of_a_batch(family, launches, name):
    batch = "bmm" + name.removeprefix("gemm")
    given = {x: value[0] if value.dim() == 2 else value for x, value in operands(contracts(family)[batch]).items()}
    for shared in ((), ("a",), ("b",)):
        one = {x: value[0] if x in shared else value for x, value in given.items()}
        whole = {x: one[x].expand(value.shape) if x in shared else value for x, value in given.items()}
        expected = called(family, batch, whole)
        places = {x: 0 if x in ("a", "b") and x not in shared else None for x in one}
        launches.clear()
        found = results(torch.vmap(lambda given: getattr(family, name)(**given), in_dims=(places,))(one))
        assert len(launches) == 1 and all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))
    moved = {**given, "a": given["a"].movedim(0, 2)}
    places = {x: {"a": 2, "b": 0}.get(x) for x in moved}
    found = results(torch.vmap(lambda given: getattr(family, name)(**given), in_dims=(places,))(moved))
    assert torch.equal(found[0], called(family, batch, given)[0])


def test_vmap_over_what_a_batch_shares_is_refused(family, launches):
    a, b = drawn((3, 20, 33), torch.float16), drawn((33, 24), torch.float16, column=True)
    told = f"^{CHAIN}: torch.vmap over scale, which all products of a batch share$"
    with pytest.raises(NotImplementedError, match=told):
        torch.vmap(lambda x, scale: getattr(family, CHAIN)(x, b, scale=scale, bias=torch.ones(24)))(a, torch.ones(3))
    assert not launches


def negated(x):
    """The values of `x`, as a view of memory that holds their negatives, as `z.conj().imag` is one."""
    view = torch._neg_view(-x)
    assert view.is_neg()
    return view


@pytest.mark.parametrize("operand", ["a", "b", "bias"])
def test_views_of_negated_memory_are_read_as_such_and_not_written(family, launches, operand):
    given = operands(contracts(family)[CHAIN])
    (expected,) = called(family, CHAIN, given)
    for made in (negated(given[operand]), torch.nn.Parameter(negated(given[operand]), requires_grad=False)):
        assert torch.equal(*called(family, CHAIN, {**given, operand: made}), expected)
    assert len(launches) == 3
    with pytest.raises(TypeError, match=f"^{CHAIN}: out must be a plain tensor, got a view of negated memory$"):
        called(family, CHAIN, {**given, "out": negated(torch.zeros(20, 24, dtype=torch.float16))})
    assert len(launches) == 3


def test_deterministic_algorithms_refuse_atomic_additions(render, launches):
    text = "summary: x\nlayout: rcr\ndtype: {a: fp16, out: fp32}\nload: pointer\nschedule: split_k_atomic\n"
    family = render("atomic", text)
    ((name, variant),) = contracts(family).items()
    called(family, name, given := operands(variant))
    torch.use_deterministic_algorithms(True)
    try:
        for call in (getattr(family, name), family._kernel(family._KERNELS[name][0]).gemm):
            with pytest.raises(ValueError, match="split_k_atomic"):
                call(**given)
    finally:
        torch.use_deterministic_algorithms(False)
    assert len(launches) == 1


def test_copies_of_a_family_under_two_paths_have_operators_of_their_own(family, tmp_path, monkeypatch):
    given = operands(contracts(family)[CHAIN])
    expected = called(family, CHAIN, given)
    for place in ("vendor_one", "vendor_two"):
        shutil.copytree(family.__path__[0], tmp_path / place / "seen")
        (tmp_path / place / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    import vendor_one.seen as one
    import vendor_two.seen as two

    for package in (one, two, one):
        with Seen(package) as seen:
            assert torch.equal(*called(package, CHAIN, given), *expected)
        assert seen.names == [CHAIN]
    # Names whose parts the underscores of a namespace would confuse.
    other = load_family(Path(shutil.copytree(family.__path__[0], tmp_path / "vendor_one__seen")))
    with Seen(one) as seen:
        assert torch.equal(*called(other, CHAIN, given), *expected)
    assert seen.names == []


def seen_call(family, given):
    with Seen(family):
        return called(family, CHAIN, given)[0]


def test_threads_may_make_the_first_call_at_once(render):
    """With tensors on "meta", because the interpreter runs one thread."""
    family = render("threads", SPEC)
    given = {x: value.to("meta") for x, value in operands(contracts(family)[CHAIN]).items()}
    # Threads change places as often as they can.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        found = in_threads(8, lambda _: seen_call(family, given))
    finally:
        sys.setswitchinterval(interval)
    assert {(x.shape, x.dtype) for x in found} == {(torch.Size([20, 24]), torch.float16)}


@pytest.mark.parametrize("name", ["gr\u00fcn", "a-b", "2nd"])
def test_a_folder_of_any_name_has_operators(family, tmp_path, monkeypatch, name):
    shutil.copytree(family.__path__[0], tmp_path / name)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module(name).register_operators()
    forget(name)
