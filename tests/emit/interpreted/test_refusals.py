"""Wrong operands, in each of torch's modes: the error of eager mode, which says what to do, and nothing is launched."""

import importlib
from types import ModuleType

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.helpers.emit.calls import Seen, Tagged, contracts, operands
from tests.helpers.support import spec

SPEC = spec("layout: rcr; dtype: fp16; epilogue: [scale+bias, none]; load: pointer; backward: kernels")
CHAIN = "gemm_fp16_rcr_scale_bias"


BAD = {
    "other K": (lambda x: {**x, "a": x["a"][:, :-1]}, ValueError, "K is 32 in a and 33 in b: they must be equal"),
    "other type": (lambda x: {**x, "b": x["b"].float()}, TypeError, "b must be torch.float16, got torch.float32"),
    "other layout": (lambda x: {**x, "b": x["b"].contiguous()}, ValueError, "b must have stride 1 along dimension 0"),
    "other vector": (lambda x: {**x, "bias": x["bias"][1:]}, ValueError, r"bias must have shape \(24,\), got \(23,\)"),
    "other number": (lambda x: {**x, "scale": x["bias"]}, ValueError, "scale must be a number or a tensor of one"),
    "missing": (lambda x: {"a": x["a"], "b": x["b"], "scale": 1.0}, TypeError, "wrong keyword arguments: missing bias"),
    "other result": (lambda x: {**x, "out": x["out"][:-1]}, ValueError, r"out must have shape .*, got \(19, 24\)"),
}


def tensors(given, change):
    return {x: change(v) if isinstance(v, torch.Tensor) else v for x, v in given.items()}


def recording(given):
    return {x: v.requires_grad_() if x == "bias" else v for x, v in given.items() if x != "out"}


def in_fake_mode(call, given):
    with FakeTensorMode() as mode:
        call(**tensors(given, mode.from_tensor))


def under_a_mode(call, given):
    """One that changes nothing."""
    with Seen(ModuleType("none")):
        call(**given)


def compiled(call, given, *, fullgraph=True):
    torch._dynamo.reset()
    torch.compile(lambda given: call(**given), fullgraph=fullgraph, backend="eager")(given)


#: Each way to call a function, and those of them that are no compiled ones.
MODES = {
    "recording": lambda call, given: call(**recording(given)),
    "fake": in_fake_mode,
    "meta": lambda call, given: call(**tensors(given, lambda x: x.to("meta"))),
    "inference": torch.inference_mode()(lambda call, given: call(**given)),
    "a mode": under_a_mode,
    "a subclass": lambda call, given: call(**tensors(given, lambda x: x.as_subclass(Tagged))),
    "compiled": compiled,
    "compiled, recording": lambda call, given: compiled(call, recording(given)),
    "compiled with breaks": lambda call, given: compiled(call, given, fullgraph=False),
}
EAGER = [mode for mode in MODES if "compiled" not in mode]


@pytest.mark.parametrize("mode", MODES)
def test_wrong_operands_are_refused_as_in_eager_mode(family, launches, mode):
    call = getattr(family, CHAIN)
    for what, (spoilt, kind, told) in BAD.items():
        if "recording" in mode and what == "other result":
            # Results that are given are refused with a gradient, whatever they are.
            continue
        out = torch.full((20, 24), 7.0, dtype=torch.float16)
        given = spoilt({**operands(contracts(family)[CHAIN]), "out": out})
        with pytest.raises(kind, match=f"^{CHAIN}.*{told}") as eager:
            call(**given)
        with pytest.raises(Exception) as caught:
            MODES[mode](call, given)
            pytest.fail(f"{what} is not refused")
        assert str(eager.value) in str(caught.value), what
        assert mode not in EAGER or type(caught.value) is kind, what
        assert bool((out == 7).all()) and not launches, what


def test_a_contract_that_only_gradients_need_is_not_advised_what_its_family_has(family):
    a, b = torch.ones(20, 33, dtype=torch.float16, requires_grad=True), torch.ones(33, 24, dtype=torch.float16)
    told = r"^gemm_fp16_rrr_none: a requires a gradient, .*: list it in the spec"
    with pytest.raises(RuntimeError, match=told) as found:
        family.gemm_fp16_rrr_none(a, b)
    assert "torch.no_grad()" in str(found.value) and "backward" not in str(found.value)


def test_errors_under_autocast_name_the_contract_that_was_called(render):
    family = render("refusingcasts", SPEC.replace("dtype: fp16", "dtype: [fp32, bf16]"))
    name = CHAIN.replace("fp16", "fp32")
    given = operands(contracts(family)[name])
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ValueError, match=f"^{name}: bias must have shape"):
        getattr(family, name)(**{**given, "bias": given["bias"][1:]})


def test_a_result_in_the_memory_of_an_operand_is_refused(family, launches):
    """Whether its like was called before or not; what only lies between the rows of an operand is other memory."""
    call, size = family.gemm_fp16_rcr_none, (32, 32)
    both = torch.randn(64, 32).half()
    a, b = both[:32], torch.randn(size).half()
    expected = call(a, b.T).clone()
    assert torch.equal(call(a, b.T, out=both[32:]), expected)
    apart = torch.zeros(size).half()
    for out, name in ((a, "a"), (both[16:48], "a"), (b, "b"), (b.T.contiguous().set_(b), "b")):
        launches.clear()
        kept = out.clone()
        call(a, b.T, out=apart)
        assert launches.pop() and not launches
        for mode in (lambda call, given: call(**given), *map(MODES.get, ("inference", "a mode", "a subclass"))):
            with pytest.raises(ValueError, match=f"^gemm_fp16_rcr_none: out shares memory with {name}, which is read"):
                mode(call, {"a": a, "b": b.T, "out": out})
        assert torch.equal(out, kept) and not launches
    # Columns of one matrix, and no elements.
    wide = torch.randn(32, 64).half()
    a, out = wide[:, :32], wide[:, 32:]
    expected = call(a.clone(), b.T)
    assert torch.equal(call(a, b.T, out=out), expected) and torch.equal(out, expected)
    assert call(a[:0], b.T, out=a[:0]).shape == (0, 32)


def test_a_result_in_the_memory_of_what_the_chain_reads_is_refused(render, launches):
    """A program reads of it what others have stored, but where both have the same elements at the same places."""
    spec = 'summary: Chains.\nlayout: rcr\ndtype: fp32\nepilogue: [bias, add, "bias+row_amax"]\nload: pointer\n'
    family = render("beside", spec)
    a, b, rows = torch.randn(32, 16), torch.randn(32, 16).T, torch.randn(64, 32)
    out, vector = rows[16:48], torch.randn(32)
    kernel = importlib.import_module(f"{family.__name__}.gemm_fp32_rcr_add__tiled_pointer_auto_grouped").gemm
    # Whether its like was called before or not.
    for _ in range(2):
        for call in (family.gemm_fp32_rcr_add, kernel):
            launches.clear()
            with pytest.raises(ValueError, match="out shares memory with add, which is read while out is written"):
                call(a, b, add=rows[:32], out=out)
            assert not launches
            add = rows[:32].clone()
            expected = a @ b + add
            torch.testing.assert_close(call(a, b, add=add, out=add), expected)
            call(a, b, add=rows[:16].repeat(2, 1), out=out)
        with pytest.raises(ValueError, match=r"^gemm_fp32_rcr_bias: out shares memory with bias, which is read"):
            family.gemm_fp32_rcr_bias(a, b, bias=rows[20], out=out)
        family.gemm_fp32_rcr_bias(a, b, bias=rows[0], out=out)
        with pytest.raises(ValueError, match="row_amax shares memory with bias, which is read while row_amax is writ"):
            family.gemm_fp32_rcr_bias_rowamax(a, b, bias=vector, row_amax=vector)


FIRST = spec(
    "layout: rcr; dtype: [fp16, {{a: fp16, b: int4, scales: {{b: [32, 1]}}}}]; epilogue: [none, bias, scale_m]; "
    "tile: [{{m: 16, n: 16, k: 32, warps: 1}}]; package: {package}"
)
NAME = "gemm_fp16_rcr_none"
HALF = torch.float16
A, B = torch.randn(8, 32, dtype=HALF), torch.randn(16, 32, dtype=HALF).T
BIAS, ROWS = torch.randn(16, dtype=HALF), torch.randn(8, dtype=HALF)

#: Contract without its head, operands, and the end of the message.
WRONG = {
    "no bias": ("bias", (A, B), {}, TypeError, "missing bias"),
    "one more": ("none", (A, B), {"more": 1}, TypeError, "unexpected more"),
    "a positional bias": ("bias", (A, B, BIAS), {}, TypeError, "without a keyword, all others with one: bias=, out="),
    "three dimensions": ("none", (A[None], B), {}, ValueError, ": a must have two dimensions, got shape (1, 8, 32)"),
    "a wider type": ("none", (A.float(), B.float()), {}, TypeError, ": a must be torch.float16, got torch.float32"),
    "integers": ("none", (A.int(), B), {}, TypeError, ": a must be torch.float16, got torch.int32"),
    "stepped columns": ("none", (torch.randn(8, 64).half()[:, ::2], B), {}, ValueError, "got strides (64, 2)"),
    "a stepped bias": ("bias", (A, B), {"bias": torch.randn(32)[::2]}, ValueError, "got strides (2,)"),
    "an array": ("none", (A.numpy(), B), {}, TypeError, "a must be a torch.Tensor, got ndarray"),
    "a column of scales": ("scalem", (A, B), {"scale_m": ROWS[:, None]}, ValueError, "shape (8,), got (8, 1)"),
    "other rows": ("scalem", (A, B), {"scale_m": BIAS}, ValueError, "must have shape (8,), got (16,)"),
}


@pytest.fixture(scope="module", params=["torch", "plain"])
def first(request, render):
    return render(f"first_{request.param}", FIRST.format(package=request.param))


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("grad", [True, False])
def test_a_message_says_what_to_do(first, what, grad):
    chain, given, keywords, kind, told = WRONG[what]
    with torch.set_grad_enabled(grad), pytest.raises(kind) as caught:
        getattr(first, f"gemm_fp16_rcr_{chain}")(*given, **keywords)
    assert str(caught.value).startswith(f"gemm_fp16_rcr_{chain}") and str(caught.value).endswith(told)


def test_a_dense_weight_is_not_taken_for_a_stored_one(first):
    name = "gemm_fp16xint4_fp32_fp16_b32x1_rcr_none"
    with pytest.raises(TypeError, match=f"^{name}: b must be torch.uint8 as `_pack` makes it, got torch.float16$"):
        getattr(first, name)(A, B, b_scale=torch.ones(1, 16))


def test_what_is_no_function_is_not_taken_for_one(first):
    module = f"{NAME}__tiled_pointer_auto_grouped"
    exec(f"from {first.__name__} import {module}")
    assert importlib.import_module(f"{first.__name__}.{module}").CALL
    with pytest.raises(ImportError, match="cannot import name 'nothing' from"):
        exec(f"from {first.__name__} import nothing")


def test_a_layer_names_its_own_tensors(render):
    family = render("first_layer", FIRST.format(package="torch"))
    layer = importlib.import_module(f"{family.__name__}.nn").Linear(32, 16, dtype=HALF)
    with pytest.raises(TypeError, match=r"input must be torch.float16 as weight is, got torch.float32; pass input.to"):
        layer(A.float())
    with pytest.raises(RuntimeError, match=r"^gemm_fp16_rcr_bias: b, bias require a gradient, and this contract rec"):
        layer(A)
    layer.requires_grad_(False)
    with pytest.raises(RuntimeError, match=r"^gemm_fp16_rcr_bias: a requires a gradient, and this contract records"):
        layer(A.clone().requires_grad_())
    with torch.autocast("cpu", HALF):
        assert layer(A.float()).dtype == HALF
