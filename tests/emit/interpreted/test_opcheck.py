"""`torch.library.opcheck` of the operators of contracts: a few kinds, and on demand every contract in `generated/`."""

import shutil

import pytest

from generator.emit.loading import load_family
from generator.emit.manifest_reader import read
from generator.emit.render import RUNTIME
from generator.verify import interpreter
from tests.helpers import shipped
from tests.helpers.emit.opchecks import checked
from tests.helpers.support import spec

SPEC = spec(
    "layout: rcr; dtype: fp16; batch: [none, strided]; epilogue: [none, bias, scale, swiglu, save, row_sum, {last}]; "
    "load: pointer; backward: {backward}"
)
KINDS = {"plain": "none", "vector": "bias", "number": "scale", "gated": "swiglu", "output": "save", "sum": "rowsum"}

#: Multiples of what a descriptor needs, also of what is divided into groups.
WHOLE = {"B": 2, "G": 4, "T": 64, "R": 64, "M": 16, "N": 16, "K": 32}


@pytest.fixture(scope="module")
def derived(render):
    return render("checked", SPEC.format(last="bias+gelu+scale+row_sum", backward="kernels"))


@pytest.fixture(scope="module")
def plain(render):
    return render("checkedplain", SPEC.format(last="accumulate", backward="none"))


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
