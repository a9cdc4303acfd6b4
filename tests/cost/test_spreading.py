"""The choice for groups, of which only the device knows the sizes: no way to spread rows over them may make it slow."""

import importlib
import itertools
import math

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from generator.cost import analytic
from generator.emit.loading import load_family
from generator.plan.configurations import configurations
from generator.plan.devices import DEVICES, Device
from generator.plan.expand import expand
from generator.runtime import fitted, spreading
from generator.verify.ahead_of_time import standing_in_for
from tests.helpers.support import forget, read_text, render_spec

H200, B200 = DEVICES["nvidia_h200"], Device("NVIDIA B200", "sm100", 148, 233472)
CUDA = torch.device("cuda", 0)
#: The experts of a mixture, with weights stored as (experts, N, K).
EXPERTS = (
    "summary: Experts.\nlayout: rcr\ndtype: bf16\nbatch: grouped\nepilogue: [none, swiglu, scale_m]\n"
    "select: fastest\nbackward: kernels\ntargets: [sm90, sm100]\n"
)
NONE, ROWS, WEIGHTS = "gmm_bf16_rcr_none", "gmm_bf16_rrr_none", "gmmk_bf16_crc_none"
SIZES = [
    (256, 512, 7168, 2048),
    (128, 1024, 1536, 2048),
    (8, 64, 28672, 4096),
    (8, 9000, 4096, 14336),
    (1, 64, 512, 64),
]
#: None of these was measured.
OF_WEIGHTS = [(128, 2048, 1536, 4096), (128, 2048, 1536, 65536), (8, 4096, 28672, 16384), (256, 512, 512, 64)]


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """By the device, with measurements or without: a family keeps what it found out about one."""
    found = {device.name: f"routed{number}" for number, device in enumerate((H200, B200))}
    folders = {device: render_spec(tmp_path_factory.mktemp(name), name, EXPERTS) for device, name in found.items()}
    yield {device: load_family(folder) for device, folder in folders.items()}
    for name in found.values():
        forget(name)


@pytest.fixture
def experts(packages):
    return packages[H200.name]


@pytest.fixture(scope="module")
def family():
    return expand(read_text(EXPERTS))


def empty(*shape, column=False):
    *front, rows, columns = shape
    found = torch.empty(*front, *((columns, rows) if column else (rows, columns)), dtype=torch.bfloat16, device="cuda")
    return found.mT if column else found


def which(package, contract, sizes):
    """The kernel, less its contract, and the configuration of a call with aligned operands."""
    g, m, n, k = sizes
    if contract.startswith("gmmk_"):
        a, b = empty(m, k, column=True), empty(k, n)
    else:
        a, b = empty(m, k), empty(g, k, n, column=contract[9:12] == "rcr")
    name, row = getattr(package, contract).which(a, b, torch.empty(g, dtype=torch.int32, device="cuda"))
    return name.rpartition("__")[2], row


def spread(contract, sizes):
    """What the choice weighs, by the words of the documentation: all groups, the square root of so many, and one."""
    g, m, n, k = sizes
    if contract.startswith("gmmk_"):
        return [(count, m, n, math.ceil(k / count)) for count in dict.fromkeys((g, math.isqrt(g), 1))]
    busy = min(g, m)
    return [(count, math.ceil(m / count), n, k) for count in dict.fromkeys((busy, math.isqrt(busy), 1))]


def times(package, family, contract, sizes, device):
    """Kernel and configuration -> the seconds that the model of the device predicts for each way to spread rows."""
    found = {}
    tuned = importlib.import_module(f"{package.__name__}._tuned")
    for kernel in family.contracts[contract]:
        rated = tuned.MEASUREMENTS.rates_of(CUDA, contract)[0].get(kernel.how, {})
        for index, row in enumerate(configurations(kernel)):
            ways = spread(contract, sizes)
            if device is B200 and device.target in kernel.targets:
                seconds = [analytic.seconds(kernel.variant, row, each, device) for each in ways]
            elif device is H200 and index in rated:
                one = [fitted.rated(row, rated[index])]
                seconds = [fitted.seconds(one, each, device.multiprocessors, 2)[0] for each in ways]
            else:
                continue
            found[kernel.how, str(row)] = seconds
    return found


def cautious(found):
    """The weighted geometric mean of the ratio for equal groups and the worst ratio."""
    least = [min(each) for each in zip(*found.values())]
    ratios = {key: [cost / best for cost, best in zip(each, least)] for key, each in found.items()}
    return {key: own[0] ** (1 - spreading.CAUTION) * max(own) ** spreading.CAUTION for key, own in ratios.items()}


@pytest.mark.parametrize(
    ("contract", "sizes"),
    [*itertools.product((NONE, ROWS), SIZES), *((WEIGHTS, sizes) for sizes in OF_WEIGHTS)],
    ids=str,
)
@pytest.mark.parametrize("device", [H200, B200], ids=lambda device: device.name)
def test_products_and_their_gradients_run_what_the_model_calls_for(packages, family, device, contract, sizes):
    """By the model that is fitted to measurements, and on a device without any by the analytic one."""
    package = packages[device.name]
    with standing_in_for(device), FakeTensorMode(allow_non_fake_inputs=True):
        how, row = which(package, contract, sizes)
        found = cautious(times(package, family, contract, sizes, device))
    assert found[how, str(row)] == pytest.approx(min(found.values()), rel=1e-9)


def test_rows_that_are_named_count_in_place_of_those_of_a(experts):

    with standing_in_for(H200), FakeTensorMode(allow_non_fake_inputs=True):
        tokens, weights = empty(64, 2048), empty(128, 2048, 1536, column=True)
        rows, offsets = (torch.empty(count, dtype=torch.int32, device="cuda") for count in (32768, 128))
        _, row = getattr(experts, NONE).which(tokens, weights, offsets, rows=rows)
        assert row["BLOCK_M"] == 128 > getattr(experts, NONE).which(tokens, weights, offsets)[1]["BLOCK_M"]


def test_the_choice_is_the_same_in_any_order(experts):
    calls = [(NONE, sizes) for sizes in SIZES] + [(WEIGHTS, sizes) for sizes in OF_WEIGHTS]
    with standing_in_for(H200), FakeTensorMode(allow_non_fake_inputs=True):
        there = [which(experts, *call) for call in calls]
        assert [which(experts, *call) for call in reversed(calls)] == there[::-1]


def test_a_worst_way_weighs_less_than_equal_groups():
    evenly, careful = [1.0, 1.05], [4.0, 1.0]
    assert min(spreading.scores([evenly, careful])) == spreading.scores([evenly, careful])[1]
    assert spreading.scores([[1.0, 1.3], careful])[0] == min(spreading.scores([[1.0, 1.3], careful]))
    assert spreading.scores([evenly]) == evenly
    assert spreading.scores([[3.0, 2.0], [3.0, 2.0]]) == [3.0, 2.0]


def test_no_groups_are_as_one_group(experts):
    spread = importlib.import_module(f"{experts.__name__}._runtime.spreading").of_groups
    assert spread({"G": 0, "T": 64, "N": 64, "K": 0}) == [(1, 64, 64, 0)]
    assert spread({"G": 0, "T": 64, "M": 32, "N": 48}) == [(1, 32, 48, 64)]
