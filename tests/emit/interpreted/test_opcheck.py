"""Contracts as operators of torch: `opcheck` of a few kinds, on demand of all shipped ones, and of stored operands."""

import importlib
import shutil
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from generator.emit.loading import load_family
from generator.emit.manifest_reader import read
from generator.emit.render import RUNTIME
from generator.language.model import Dtype
from generator.problem import stored_values
from generator.problem.stored_values import product
from generator.verify import interpreter
from generator.verify.coverage import Coverage, choose
from tests.helpers import shipped
from tests.helpers.emit.calls import contracts, drawn, operands
from tests.helpers.emit.opchecks import checked
from tests.helpers.support import spec

CHECKED = spec(
    "layout: rcr; dtype: fp16; batch: [none, strided]; epilogue: [none, bias, scale, swiglu, save, row_sum, {last}]; "
    "load: pointer; backward: {backward}"
)
KINDS = {"plain": "none", "vector": "bias", "number": "scale", "gated": "swiglu", "output": "save", "sum": "rowsum"}

#: Multiples of what a descriptor needs, also of what is divided into groups.
WHOLE = {"B": 2, "G": 4, "T": 64, "R": 64, "M": 16, "N": 16, "K": 32}


@pytest.fixture(scope="module")
def derived(render):
    return render("checked", CHECKED.format(last="bias+gelu+scale+row_sum", backward="kernels"))


@pytest.fixture(scope="module")
def plain(render):
    return render("checkedplain", CHECKED.format(last="accumulate", backward="none"))


def kinds():
    """Each kind, alternately of one product and of a batch; the other of the two on demand."""
    for place, kind in enumerate(KINDS):
        one, other = ("gemm", "bmm") if place % 2 == 0 else ("bmm", "gemm")
        yield pytest.param(kind, one)
        yield pytest.param(kind, other, marks=pytest.mark.operators)


@pytest.mark.parametrize(("kind", "batch"), [*kinds()])
def test_a_contract_of_each_kind(derived, plain, kind, batch):
    name = f"{batch}_fp16_rcr_{KINDS[kind]}"
    assert checked(plain, name) == [name]
    assert checked(plain, name, filled=True) == [f"{name}_out"]
    if kind == "number":
        assert checked(plain, name, number=True) == [name]
    names = checked(derived, name)
    assert name in names or any("whole" in each for each in names)
    assert len(names) > 2


def test_a_contract_that_adds_to_its_result(plain):
    assert checked(plain, "gemm_fp16_rcr_accumulate") == ["gemm_fp16_rcr_accumulate_out"]
    assert checked(plain, "gemm_fp16_rcr_accumulate", number=True) == ["gemm_fp16_rcr_accumulate_out"]


def test_a_chain_and_its_gradient(derived):
    for batch in ("gemm", "bmm"):
        whole = f"{batch}_fp16_rcr_save_1whole_bias_gelu_scale_rowsum"
        names = checked(derived, f"{batch}_fp16_rcr_bias_gelu_scale_rowsum")
        assert names == [whole, f"{whole}__gradient", f"{batch}_fp16_rrr_none", f"{batch}_fp16_crr_none"]


# Families with `package: plain` have no operators.
SHIPPED = [
    (folder.name, name)
    for folder in shipped.folders()
    if (folder / RUNTIME / "operators.py").exists()
    for name in dict.fromkeys(kernel.variant.contract for kernel in read(folder).kernels)
]


@pytest.fixture(scope="module")
def committed(tmp_path_factory):
    """A shipped family, imported once in a process."""
    loaded = {}
    interpreter.install()

    def family(name):
        if name not in loaded:
            copy = tmp_path_factory.mktemp("committed") / f"committed_{name}"
            shutil.copytree(shipped.folder(name), copy)
            loaded[name] = load_family(copy)
        return loaded[name]

    return family


@pytest.mark.operators
@pytest.mark.parametrize(("family", "name"), SHIPPED, ids=lambda each: str(each))
def test_every_committed_contract(committed, family, name):
    package = committed(family)
    if any(package._kernel(kernel).CALL.tunes for kernel in package._KERNELS[name]):
        pytest.skip("the autotuner needs a driver, and the interpreter has none")
    own = {name, f"{name}_out"}
    assert own & {*checked(package, name, WHOLE)} or "saving" in package._GRADIENTS[name]


SPEC = spec(
    "layout: rcr; dtype: [{a: bf16, b: int4, scales: {b: [32, 1]}}, {a: fp16, b: uint4, scales: {b: [32, 2]}, "
    "zeros: {b: true}}, {a: bf16, b: int4, scales: {b: [32, 1]}, packing: {b: fragments}}, "
    "{a: fp8e4m3, scales: {a: [1, 32], b: [32, 32]}}, {a: int8, b: int4, scales: {a: [1, 0], b: [32, 1]}}, "
    "{a: int8, b: uint4, scales: {b: [32, 1]}, zeros: {b: true}}, {a: fp8e4m3, b: int4, scales: {b: [32, 1]}}, "
    "{a: mxfp8e4m3, b: mxfp4}, {a: mxfp4}, "
    '{a: fp16, sparsity: {b: "2:4"}}]; batch: [none, strided]; epilogue: [none, bias+save+row_amax]; select: fastest; '
    "with: prepare; load: pointer; schedule: [tiled, split_k]; tile: [{m: 16, n: 64, k: 32, warps: 4}]; targets: [sm90]"
)
SPARSE = "gemm_fp16_sparse24_rcr_none"
INT4 = "gemm_bf16xint4_fp32_bf16_b32x1_rcr_none"


def pairs(family):
    """Contracts that have every storage in a batch and without, with a bias and without, and every pair of these."""
    found = contracts(family)
    chosen = choose([variant.words for variant in found.values()], Coverage("pairs")).indices
    return {name: variant for place, (name, variant) in enumerate(found.items()) if place in chosen}


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.operators)], ids=["pairs", "all"])
def test_every_contract_is_an_operator(family, whole):
    variants = contracts(family) if whole else pairs(family)
    assert len(variants) == (40 if whole else 20)
    for place, name in enumerate(variants):
        assert checked(family, name) == [name]
        if whole or place % 2 == 0:
            assert checked(family, name, filled=True) == [f"{name}_out"]


TOGETHER = "{} is {}: {} stores {} of its elements together: it must be a multiple of {}"
#: What a call has instead; an operand that is None is left out.
WRONG = [
    (INT4, lambda x: {"b_scale": None}, TypeError, "missing b_scale"),
    (INT4, lambda x: {"b_zero": x["b_scale"]}, TypeError, "unexpected b_zero"),
    (INT4, lambda x: {"a": x["a"][:, 1:]}, ValueError, TOGETHER.format("K", 33, "b", 2, 2)),
    (SPARSE, lambda x: {"b_index": None}, TypeError, "missing b_index"),
    (SPARSE, lambda x: {"a": x["a"][:, :36], "b": x["b"][:18]}, ValueError, TOGETHER.format("K", 36, "b_index", 8, 8)),
]


@pytest.mark.parametrize(("name", "change", "error", "told"), WRONG)
def test_wrong_operands_are_refused_with_memory_and_without(family, name, change, error, told):
    given, function = operands(contracts(family)[name]), getattr(family, name)
    wrong = {x: value for x, value in {**given, **change(given)}.items() if value is not None}
    with pytest.raises(error, match=told):
        function(**wrong)
    with FakeTensorMode() as mode:
        fake = [{x: mode.from_tensor(value) for x, value in each.items()} for each in (given, wrong)]
        assert function(**fake[0]).shape == (given["a"].shape[0], given["b"].shape[1])
        with pytest.raises(error, match=told):
            function(**fake[1])


def test_a_gradient_is_refused(family):
    given = operands(contracts(family)[INT4])
    for name in ("a", "b_scale"):
        with pytest.raises(RuntimeError, match=r"no gradients of such a product are computed") as found:
            getattr(family, INT4)(**{**given, name: given[name].detach().requires_grad_()})
        assert "backward: kernels" not in str(found.value), "which is refused for it"


@pytest.mark.parametrize(
    "word",
    ["int8xint4_int32_bf16_a1xall_b32x1", "int8xuint4_int32_bf16_b32x1_zeros", "fp8e4m3xint4_fp32_bf16_b32x1"],
)
def test_every_number_of_four_bits_is_one_of_eight(family, word):
    name = f"gemm_{word}_rcr_none"
    octets = torch.arange(256, dtype=torch.uint8).reshape(16, 16)
    codes = torch.stack((octets & 15, octets >> 4), 1).flatten(0, 1).float()
    drawn = operands(contracts(family)[name], {"M": 32, "N": 16, "K": 32})
    given = {keyword: torch.ones_like(x) for keyword, x in drawn.items()}
    given |= {"a": torch.eye(32).to(drawn["a"].dtype), "b": octets.mT.contiguous().mT}
    expected = codes - 1 if "uint4" in word else (codes + 8) % 16 - 8
    assert torch.equal(getattr(family, name)(**given).float(), expected)


def test_a_map_over_products_is_a_batch(family):
    single, batch = getattr(family, INT4), getattr(family, INT4.replace("gemm", "bmm"))
    given = operands(contracts(family)[INT4.replace("gemm", "bmm")])
    mapped = torch.vmap(lambda a, b, b_scale: single(a, b, b_scale=b_scale))(*given.values())
    torch.testing.assert_close(mapped, batch(**given))


WEIGHTS = spec(
    "layout: [rcr, rrr]; batch: [none, strided]; dtype: [{a: bf16, b: int4, scales: {b: [32, 1]}}, {a: fp16, b: int4}, "
    "{a: fp16, b: uint4, scales: {b: [32, 1]}, zeros: {b: true}}, {a: fp16, b: int8, scales: {b: [0, 1]}}, "
    "{a: bf16, b: int8, scales: {b: [64, 1]}, zeros: {b: true}}, {a: bf16, b: fp8e4m3, scales: {b: [64, 16]}}, "
    "{a: fp8e4m3, b: fp8e4m3, scales: {a: [1, 32], b: [32, 32]}}, {a: bf16, b: mxfp4}, {a: bf16, b: mxfp8e4m3}, "
    '{a: mxfp8e4m3, b: mxfp8e5m2}, {a: fp16, b: nvfp4}, {a: fp16, sparsity: {b: "2:4"}}]; '
    "tile: [{m: 16, n: 16, k: 32, warps: 1}, {m: 16, n: 16, k: 16, warps: 1}]"
)
#: The last block of each kind is short.
M, N, K = 17, 19, 72


def factor(variant, weight):
    """A, and its scales where the contract has them."""
    batch = weight.shape[:-2]
    a = drawn((*batch, M, K), torch.float32).to(getattr(torch, variant.dtype.stored_a.element.torch))
    blocks = variant.dtype.stored_a.block
    scale = {} if blocks is None else {"a_scale": torch.rand(*batch, M, -(-K // blocks.along)) + 0.5}
    if variant.dtype.stored_a.bytewise:
        scale["a_scale"] = scale["a_scale"].to(torch.float8_e8m0fnu)
    return {"a": a, **scale}


def test_a_product_is_that_with_the_dequantised_weight(render):
    """With the keywords that a family's `_pack.py` makes of a weight."""
    family = render("stored_weights", WEIGHTS)
    pack = importlib.import_module(f"{family.__name__}._pack")
    assert pack.CONTRACTS.keys() == contracts(family).keys()
    for seed, (name, variant) in enumerate(contracts(family).items()):
        weight = drawn((3, K, N) if variant.batch == "strided" else (K, N), torch.float32, seed=seed).clamp(-7, 7)
        given, packed = factor(variant, weight), pack.quantize(weight, name)
        found = getattr(family, name)(**given, **packed).double()
        a = given["a"].double()
        if "a_scale" in given:
            a = a * given["a_scale"].double().repeat_interleave(variant.dtype.stored_a.block.along, -1)[..., :K]
        expected = a @ pack.dequantize(name, **packed).double()
        scales = {keyword: x for keyword, x in {**given, **packed}.items() if keyword not in ("a", "b")}
        bound = stored_values.product(variant.dtype, given["a"], packed["b"], scales, hardware=False).error
        rounding = torch.finfo(getattr(torch, {"bf16": "bfloat16", "fp16": "float16"}[variant.dtype.out])).eps
        # `dequantize` rounds a value in fp32.
        rounded = a.abs() @ pack.dequantize(name, **packed).double().abs() * 2.0**-23
        assert ((found - expected).abs() <= bound + rounded + rounding * expected.abs()).all(), name


SCALED = spec(
    "layout: rcr; dtype: [{a: mxfp8e4m3}, {a: nvfp4}]; product: [direct, exchanged, scaled]; select: fixed; "
    "targets: [sm90, sm100]; "
    "tile: [{m: 128, n: 64, k: 128, warps: 4}, {m: 64, n: 64, k: 32, warps: 4}, {m: 64, n: 64, k: 16, warps: 4}]"
)
MXFP8, NVFP4 = "gemm_mxfp8e4m3_fp32_bf16_rcr_none", "gemm_nvfp4_fp32_bf16_rcr_none"
UNIT = "__tiled_pointer_auto_grouped_productscaled"


@pytest.fixture(scope="module")
def scaled(render):
    return render("scaled_products", SCALED)


def mxfp8(rows=3, columns=5, depth=160):
    """Operands whose scales have every byte in turn; those of A and B cancel, but for the last."""
    random = torch.Generator().manual_seed(0)
    a, b = (torch.randn(lines, depth, generator=random).to(torch.float8_e4m3fn) for lines in (rows, columns))
    scales = torch.arange(rows * depth // 32).reshape(rows, -1).to(torch.uint8)
    return {"a": a, "b": b.T, "a_scale": scales, "b_scale": torch.full((depth // 32, columns), 254, dtype=torch.uint8)}


def test_bytes_of_powers_of_two(scaled):
    given = mxfp8()
    assert given["a_scale"][0, 0] == 0
    dtype = Dtype("mxfp8e4m3", "mxfp8e4m3", "fp32", "bf16", "full")
    expected = product(dtype, given["a"], given["b"], given, hardware=False)
    exact, error = expected.value, expected.error
    found = getattr(scaled, MXFP8)(**given).double()
    assert bool(((found - exact).abs() <= error + exact.abs() * 2**-8).all())
    # The first block alone, whose scale is 2**-127.
    alone = {**given, "a": given["a"][:1, :32], "b": given["b"][:32], "a_scale": given["a_scale"][:1, :1]}
    smallest = getattr(scaled, MXFP8)(**{**alone, "b_scale": given["b_scale"][:1]})
    assert torch.equal(smallest, (alone["a"].double() @ alone["b"].double()).bfloat16()) and bool(smallest.any())


def test_byte_255_is_nan(scaled):
    given = mxfp8()
    given["a_scale"][1, -1] = 255
    found = getattr(scaled, MXFP8)(**given)
    assert bool(found[1].isnan().all()) and not bool(found[[0, 2]].isnan().any())


def test_scales_of_nvfp4_have_no_sign(scaled):
    """The matrix unit reads none: what a conversion would multiply by is no number in a scaled product."""
    a = torch.full((2, 16), 0x22, dtype=torch.uint8)
    scales = torch.tensor([[1.0, 2.0], [1.0, -2.0]]).to(torch.float8_e4m3fn)
    given = {"a": a, "b": a[:1].T, "a_scale": scales, "b_scale": scales[:1].T}
    assert getattr(scaled, NVFP4).which(**given)[0] == NVFP4 + UNIT
    found = getattr(scaled, NVFP4)(**given)
    assert float(found[0, 0]) == 16 * (1 + 4) and bool(found[1].isnan().all())
    given["a_scale"] = torch.tensor([[1.0, 0.0], [1.0, -0.0]]).to(torch.float8_e4m3fn)
    assert getattr(scaled, NVFP4)(**given)[:, 0].tolist() == [16.0, 16.0]


@pytest.mark.parametrize(
    ("capability", "able"), [((8, 0), False), ((9, 0), False), ((10, 0), True), ((10, 3), True), ((12, 0), True)]
)
def test_devices_without_such_a_matrix_unit_are_refused(scaled, monkeypatch, capability, able):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "this GPU")
    properties = SimpleNamespace(major=capability[0], minor=capability[1], shared_memory_per_block_optin=232448)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    call = __import__(f"{scaled.__name__}.{MXFP8}{UNIT}", fromlist=["CALL"]).CALL
    with FakeTensorMode() as mode:
        state = call.state({name: mode.from_tensor(x).to("cuda:0") for name, x in mxfp8().items()})
    assert call.reason(state) == (None if able else "a scaled product needs sm100 or sm120, and this is this GPU")
