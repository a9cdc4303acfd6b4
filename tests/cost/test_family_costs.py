"""`select: fastest` on GPUs without measurements: the analytic cost model compares the kernels of a contract."""

import itertools
import json

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from generator.cost import analytic
from generator.emit.loading import load_family
from generator.plan import legality
from generator.plan.configurations import configurations
from generator.plan.devices import DEVICES, Device
from generator.verify.ahead_of_time import standing_in_for
from tests.helpers.support import BASE, family_of, forget, render_spec
from tests.helpers.tuned_file import measured

A100, H200 = DEVICES["nvidia_a100_sxm4_80gb"], DEVICES["nvidia_h200"]
B200 = Device("NVIDIA B200", "sm100", 148, 233472)
SMALL = Device("A small GPU", "sm86", 20, 102400)
CUDA = torch.device("cuda", 0)

FASTEST = f"{BASE}select: fastest\n"
EVERYTHING = (
    "summary: Kernels of many costs.\nlayout: rcr\ndtype: [fp16, fp8e4m3, tf32]\nbatch: [none, strided]\n"
    "epilogue: [none, bias, swiglu]\nselect: fastest\ntargets: [sm86, sm90, sm100]\n"
)
SCHEDULES = (
    "summary: Every schedule.\nlayout: rcr\ndtype: fp32\nmasking: [auto, none]\nselect: fastest\n"
    "targets: [sm80, sm100]\nschedule: [elementwise, naive, tiled, persistent, split_k, split_k_atomic, stream_k]\n"
)
SIZES = [
    *itertools.product((1, 16, 100, 1024), (64, 1000, 4096), (32, 4096)),
    *((8192, 8192, 512), (128, 128, 8192), (4000, 256, 16384)),
]


@pytest.fixture
def render(tmp_path):
    """Renders a spec as the family `predicted`; its functions find the GPU that stands in."""

    def package(text):
        return load_family(render_spec(tmp_path, "predicted", text))

    yield package
    forget("predicted")


def chosen(package, contract, sizes, only=bool):
    """The kernel and the configuration that the model chooses among the kernels of a contract that `only` allows."""
    kernels = tuple(package._kernel(name) for name in package._KERNELS[contract] if only(name))
    ranking = package._contract(contract).choice
    kernel, row = ranking.analytic.choose(contract, kernels, ranking.typical(sizes) or (sizes,), CUDA, ranking.score)
    return kernel.__name__.partition(".")[2], row


def ran(package, contract, m, n, k, **operands):
    """The kernel and the configuration that a call on the GPU runs."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        a, b = (torch.empty(size, dtype=torch.half, device=CUDA) for size in ((m, k), (n, k)))
        found = getattr(package, contract).which(a, b.T, **operands)
    return found


def offered(kernel, device, sizes):
    """The configurations that the device can hold and that take the sizes."""
    refused = dict(kernel.not_offered).get(device.target, ())
    rows = [row for index, row in enumerate(configurations(kernel)) if index not in refused]
    m, n, k = sizes[-3:]
    if kernel.variant.masking == "none" and kernel.variant.load == "pointer":
        rows = [row for row in rows if not (m % row["BLOCK_M"] or n % row["BLOCK_N"] or k % row["BLOCK_K"])]
    if not kernel.variant.traits.looped:
        rows = [row for row in rows if k <= row["BLOCK_K"]]
    return rows


def runs(kernel, device):
    return legality.why_not_on(kernel.variant, device.target) is None


def predictions(family, contract, sizes, device):
    """Kernel and configuration -> the seconds that the model predicts, of the kernels that the device can run."""
    return {
        (kernel.name, str(row)): analytic.seconds(kernel.variant, row, sizes, device)
        for kernel in family.kernels
        if kernel.variant.contract == contract and kernel.variant.traits.tiled and runs(kernel, device)
        for row in offered(kernel, device, sizes)
    }


#: Each device with one of the two families; with the other on demand.
CHOICES = [
    pytest.param(text, device, id=f"{name}-{device.name}", marks=[pytest.mark.product] * (place % 2 != other))
    for place, device in enumerate((A100, B200, SMALL, H200))
    for other, (name, text) in enumerate({"contracts": EVERYTHING, "schedules": SCHEDULES}.items())
]


@pytest.mark.parametrize(("text", "device"), CHOICES)
def test_the_choice_has_the_least_predicted_seconds(render, text, device):
    package, family = render(text), family_of(text)
    known = {kernel.name for kernel in family.kernels if runs(kernel, device)}
    kernels = set()
    with standing_in_for(device):
        for contract, sizes in itertools.product({name.partition("__")[0] for name in known}, SIZES):
            whole = (8, *sizes) if contract.startswith("bmm") else sizes
            name, row = chosen(package, contract, whole, only=known.__contains__)
            found = predictions(family, contract, whole, device)
            assert found[name, str(row)] == pytest.approx(min(found.values()), rel=1e-9)
            kernels.add((name.partition("__")[2], str(row)))
    assert len(kernels) > 2


def test_kernels_without_tiles_are_not_chosen(render):
    package = render(f"{FASTEST}schedule: elementwise\n")
    with standing_in_for(A100):
        (name,) = package._KERNELS["gemm_fp16_rcr_none"]
        choose = package._contract("gemm_fp16_rcr_none").choice.analytic.choose
        assert choose("gemm_fp16_rcr_none", (package._kernel(name),), ((64, 64, 64),), CUDA) is None
        assert ran(package, "gemm_fp16_rcr_none", 64, 64, 64)[0] == name


def test_a_gated_linear_unit_is_compared_by_the_columns_of_its_result(render):
    package, contract = render(f"{FASTEST}epilogue: swiglu\ntargets: [sm100]\n"), "gemm_fp16_rcr_swiglu"
    sizes = [(m, n, 4096) for m in (64, 256, 512) for n in (512, 1024, 2048, 4096)]
    with standing_in_for(B200):
        found = [ran(package, contract, m, 2 * n, k) for m, n, k in sizes]
        assert found == [chosen(package, contract, each) for each in sizes]
        assert found != [chosen(package, contract, (m, 2 * n, k)) for m, n, k in sizes]


@pytest.mark.parametrize(("n", "k"), [(4099, 4096), (4096, 4097), (4099, 4097)])
def test_ragged_operands_are_compared_too(render, n, k):
    """A descriptor stores no odd N and reads no odd K; of the other kernels one with a plain store is as good."""
    package = render(f"{FASTEST}targets: [sm80, sm100]\n")
    with standing_in_for(B200):
        name, row = ran(package, "gemm_fp16_rcr_none", 4, n, k)
        takes = "_pointer_" if k % 8 else "pointer"
        assert (name, row) == chosen(package, "gemm_fp16_rcr_none", (4, n, k), only=lambda name: takes in name)
        assert "exchanged" in name


@pytest.mark.parametrize("device", [A100, SMALL], ids=lambda device: device.name)
def test_a_kernel_that_is_illegal_for_the_device_is_not_run(render, device):
    """An exchanged product is for matrix instructions of 64 rows, and accepts the operands on any device."""
    package = render(f"{FASTEST}targets: [sm80, sm100]\n")
    contract = "gemm_fp16_rcr_none"
    with standing_in_for(device):
        for m in (1, 4, 16, 64):
            name, _ = ran(package, contract, m, 4096, 4096)
            assert name == f"{contract}__tiled_pointer_auto_grouped"


def test_measurements_come_first(render, tmp_path):
    found = measured() | {"device": A100.name, "rates": []}
    (tmp_path / "found.json").write_text(json.dumps(found))
    tiles = "tile:\n  - {m: 64, n: 64, k: 64, warps: 4}\n  - {m: 128, n: 128, k: 64, warps: 8}\n"
    package = render(f"{FASTEST}targets: [sm80]\ntuned: found.json\nload: pointer\nmasking: [auto, none]\n{tiles}")
    winner = found["winners"][0]
    sizes = winner["m"], winner["n"], winner["k"]
    with standing_in_for(A100):
        assert ran(package, "gemm_fp16_rcr_none", *sizes) == (winner["kernel"], winner["config"])
        assert chosen(package, "gemm_fp16_rcr_none", sizes) != (winner["kernel"], winner["config"])
        other = 512, 4096, 4096
        assert ran(package, "gemm_fp16_rcr_none", *other) == chosen(package, "gemm_fp16_rcr_none", other)


def mean_slowdown(family, n, k, device):
    """Kernel and configuration -> the sum over typical M of its predicted time relative to the least for that M."""
    found = [predictions(family, "gemm_fp16_rcr_none", (m, n, k), device) for m in analytic.TYPICAL_M]
    return {key: sum(each[key] / min(each.values()) for each in found) for key in found[0]}


@pytest.mark.parametrize("device", [A100, B200], ids=lambda device: device.name)
def test_rows_alike_have_the_choice_that_loses_least_over_all_m(render, device):
    text = f"{FASTEST}targets: [{device.target}]\nbatch: [none, strided]\ninvariant: rows\n"
    package, family = render(text), family_of(text)
    with standing_in_for(device):
        for n, k in ((4096, 4096), (64, 8192), (11008, 512)):
            found = mean_slowdown(family, n, k, device)
            (name, row), *others = (ran(package, "gemm_fp16_rcr_none", m, n, k) for m in (1, 3, 64, 4096, 8192))
            assert others == [(name, row)] * 4
            assert found[name, str(row)] == pytest.approx(min(found.values()), rel=1e-9)
            batched = {
                (name.partition("__")[2], str(row))
                for sizes in ((1, 16, n, k), (2, 16, n, k), (64, 4096, n, k))
                for name, row in [chosen(package, "bmm_fp16_rcr_none", sizes)]
            }
            assert len(batched) == 1
