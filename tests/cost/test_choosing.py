"""What a family chooses by what was measured of it."""

import importlib
import itertools
import json
from types import SimpleNamespace

import pytest
import torch

from generator.runtime import fitted
from tests.helpers.support import forget, render_spec
from tests.helpers.tuned_file import AUTO, DEVICE, GOOD, LARGE, NONE, RATES, SMALL, SPEC, measured, one_seconds

PROCESSORS = 4
NOT = (False, False)


@pytest.fixture
def rendered(tmp_path, monkeypatch):
    """Renders a spec named `measured` with the file beside it, and imports the family on a device of that file."""

    def render(text, found):
        (tmp_path / "found.json").write_text(found)
        render_spec(tmp_path, "measured", text)
        return importlib.import_module("measured")

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: DEVICE)
    shared = dict.fromkeys(("shared_memory_per_block", "shared_memory_per_block_optin"), 2**18)
    properties = SimpleNamespace(multi_processor_count=PROCESSORS, major=9, minor=0, gcnArchName="gfx942", **shared)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    yield render
    forget("measured")


@pytest.fixture
def family(rendered):
    return rendered(f"{SPEC}epilogue: [none, bias]\n", GOOD)


def chosen(package, sizes, only="", contract="gemm_fp16_rcr_none", crossing=NOT):
    """The kernel, less its contract, and the row that are chosen among the kernels of a contract."""
    kernels = [package._kernel(name) for name in package._KERNELS[contract] if only in name]
    choose = importlib.import_module("measured._tuned").choose
    found = choose(contract, kernels, [sizes], 2, torch.device("cuda", 0), crossing)
    if found is None:
        return None
    kernel, row = found
    return kernel.__name__.rpartition("__")[2], kernel.CONFIGS.index(row)


def modelled(sizes, only="", crossing=NOT, rates=RATES):
    """The kernel and row that the model holds for the best, of those that take the sizes."""
    cost = {
        (how, row): one_seconds((SMALL, LARGE)[row], values, sizes, PROCESSORS, 2, crossing)
        for (how, row), values in rates.items()
        if only in how and (how == AUTO or not (sizes[0] % 128 or sizes[1] % 128 or sizes[2] % 64))
    }
    return min(cost, key=cost.__getitem__)


@pytest.mark.parametrize("contract", ["gemm_fp16_rcr_none", "gemm_fp16_rcr_bias"])
def test_a_size_that_was_measured_runs_what_won(family, contract):
    assert chosen(family, (4096, 4096, 64), contract=contract) == (AUTO, 0) != modelled((4096, 4096, 64))
    assert chosen(family, (128, 256, 512), contract=contract) == (NONE, 1)


def test_another_size_runs_the_best_by_the_model(family):
    """Only the configurations are compared that may be as fast as the one last chosen for a similar M."""
    sizes = [(m, n, k) for m in (1, 64, 100, 1024, 4000) for n in (64, 1024, 4096) for k in (64, 4096)]
    found = {size: chosen(family, size) for size in sizes}
    assert found == {size: modelled(size) for size in sizes} and set(found.values()) == set(RATES)
    near = [(m, n, k) for n, k in ((192, 64), (1024, 4096)) for m in (*range(1, 300, 7), *range(900, 2200, 128), 256)]
    for size, crossing in itertools.product(near, (NOT, (True, True))):
        assert chosen(family, size, crossing=crossing) == modelled(size, crossing=crossing), size


def test_row_pitches_slow_a_step_down_that_does_not_wait_for_something_else():
    # A tile of 128 by 128 loads 256 lines for 128 bytes along K: 512 cycles of 1.5 GHz, and 819 where they cross.
    row, sizes = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}, (8192, 8192, 8192)
    for cycles, slower in {512: 1.6, 256: 1.6, 700: 819.2 / 700, 900: 1}.items():
        step = cycles / 1.5e9
        rates = (1.0, step / 9, step, 0.0, 1e15, 0.0, 0.0, 0.0)
        usual, crossing = (one_seconds(row, rates, sizes, PROCESSORS, 2, each) for each in (NOT, (True, True)))
        assert crossing / usual == pytest.approx(slower)


def test_stored_weights_and_partial_sums_move_their_own_bytes():
    """Where a product takes as long as its traffic: B of half the bytes, and sums of four elements of A each."""
    row, rates = {"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 64}, (1, 1e-12, 1e-12, 1e-12, 1e12, 1e-12, 0.0, 0.0)

    def traffic(sizes, *moved, split=1):
        rated = fitted.rated(row | {"SPLIT": split}, (*rates, *moved))
        return fitted.seconds([rated], sizes, 132, 2)[0]

    weights, result = (1, 8192, 8192), (8192, 8192, 64)
    assert traffic(weights, 1, 4) == traffic(weights)
    assert traffic(weights, 0.5, 4) == pytest.approx(traffic(weights) / 2, rel=1e-3)
    assert traffic(result, 1, 4, split=2) == pytest.approx(traffic(result) * (1 + 8), rel=0.02)


@pytest.mark.parametrize("crossing", [(True, False), (False, True), (True, True)])
def test_lines_across_those_of_the_l2_are_left_to_the_model(family, crossing):
    sizes = (4096, 4096, 64)
    assert chosen(family, sizes, crossing=crossing) == modelled(sizes, crossing=crossing) != chosen(family, sizes)


def test_a_tile_that_multiplies_less_than_it_loads_is_slowed_down_by_such_lines():
    def slower(m, n, crossing):
        row = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 64}
        # Steps alone: no bytes, and nothing for a tile or a launch.
        plain, crossed = (
            one_seconds(row, (1, 1e-6, 1e-12, 0, 1e30, 0, 0, 0), (8192,) * 3, 132, 2, x) for x in (NOT, crossing)
        )
        return crossed / plain

    assert slower(128, 256, (True, True)) == pytest.approx(1.2)
    assert slower(64, 128, (True, True)) == pytest.approx(1.6)
    assert [slower(64, 128, x) for x in ((True, False), (False, True))] == pytest.approx([1.2, 1.4])
    assert slower(256, 256, (True, True)) == 1


def test_a_kernel_that_refuses_the_operands_is_not_chosen(family):
    assert chosen(family, (128, 256, 512), only="auto") == modelled((128, 256, 512), only="auto")
    assert chosen(family, (1024, 1024, 1024)) == (NONE, 1)
    assert chosen(family, (1024, 1024, 1024), only="auto") == (AUTO, 1)


@pytest.fixture
def on_an_h20(rendered, monkeypatch):
    """Stands in for a GPU of the H200's capability, with four times its clock and an eighth of its bandwidth."""
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H20")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    properties = torch.cuda.get_device_properties(0)
    properties.clock_rate, properties.memory_clock_rate, properties.memory_bus_width = 7_920_000, 1_600_260, 1536


#: The rates for that GPU.
SCALED = {
    each: (resident, latency / 4, step / 4, tile / 4, bandwidth / 8, *others)
    for each, (resident, latency, step, tile, bandwidth, *others) in RATES.items()
}
SOME_SIZES = [(m, n, k) for m in (1, 64, 1024, 4000) for n in (64, 1024, 4096) for k in (64, 512, 4096)]


@pytest.mark.usefixtures("on_an_h20")
def test_a_device_of_the_same_capability_uses_the_rates_by_its_own_figures(rendered, monkeypatch):
    package = rendered(f"{SPEC}epilogue: [none, bias]\n", json.dumps(measured() | {"device": "NVIDIA H200"}))
    by_figures = {size: modelled(size, rates=SCALED) for size in SOME_SIZES}
    assert {size: chosen(package, size) for size in SOME_SIZES} == by_figures
    assert by_figures != {size: modelled(size) for size in SOME_SIZES}
    # What won on the other device is not taken.
    assert chosen(package, (4096, 4096, 64)) == modelled((4096, 4096, 64), rates=SCALED) != (AUTO, 0)


@pytest.mark.usefixtures("on_an_h20")
def test_a_device_of_another_vendor_does_not(rendered, monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "7.0")
    package = rendered(SPEC, json.dumps(measured() | {"device": "NVIDIA H200"}))
    assert {chosen(package, size) for size in SOME_SIZES} == {None}


@pytest.mark.usefixtures("on_an_h20")
def test_some_winners_of_a_device_leave_the_other_sizes_to_the_rates_of_another(rendered, tmp_path):
    few = measured("gemm_fp16_rcr_bias") | {"device": "NVIDIA H20", "rates": []}
    (tmp_path / "few.json").write_text(json.dumps(few))
    spec = SPEC.replace("found.json", "[found.json, few.json]")
    package = rendered(f"{spec}epilogue: [none, bias]\n", json.dumps(measured() | {"device": "NVIDIA H200"}))
    for contract in ("gemm_fp16_rcr_none", "gemm_fp16_rcr_bias"):
        found = {size: chosen(package, size, contract=contract) for size in SOME_SIZES}
        assert found == {size: modelled(size, rates=SCALED) for size in SOME_SIZES}
    assert modelled((4096, 4096, 64), rates=SCALED) != (AUTO, 0)
    assert chosen(package, (4096, 4096, 64), contract="gemm_fp16_rcr_bias") == (AUTO, 0)


def test_a_configuration_that_the_device_lacks_is_not_chosen(family, monkeypatch):
    for name in family._KERNELS["gemm_fp16_rcr_none"]:
        kernel = family._kernel(name)
        monkeypatch.setitem(vars(kernel.CALL), "offered", lambda device, kernel=kernel: kernel.CONFIGS[:1])
    assert {found and found[1] for found in (chosen(family, size) for size in SOME_SIZES)} == {0}


def test_a_row_is_the_one_measured_where_tables_differ(rendered):
    """With six stages a result has room in the place of the operands alone, which it has where there is an epilogue."""
    row = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "GROUP_M": 8, "num_warps": 4, "num_stages": 3}
    tiles = "".join(f"  - {{m: 128, n: 128, k: 32, warps: 4, stages: {stages}}}\n" for stages in (6, 3))
    contract, how = "gemm_tf32_rcr_none", "tiled_descriptor_auto_grouped"
    found = measured(contract) | {"winners": [], "rates": []}
    found["winners"] = [{"contract": contract, "m": 8, "n": 8, "k": 8, "kernel": f"{contract}__{how}", "config": row}]
    found["rates"] = [
        {key: found["winners"][0][key] for key in ("contract", "kernel", "config")} | {"rates": [1] * 6 + [0, 0]}
    ]
    text = SPEC.partition("masking")[0].replace("fp16", "tf32") + "load: descriptor\ntargets: [sm90]\n"
    text += f"epilogue: [none, bias]\nselect: table\ntuned: found.json\ntile:\n{tiles}"
    package = rendered(text, json.dumps(found))
    choose = importlib.import_module("measured._tuned").choose
    tables = []
    for name, (own,) in package._KERNELS.items():
        kernel = package._kernel(own)
        tables.append(kernel.CONFIGS)
        for sizes in ((8, 8, 8), (16, 16, 16)):
            assert choose(name, [kernel], [sizes], 4, torch.device("cuda", 0)) == (kernel, row)
    assert [len(table) for table in tables] == [1, 2]


def test_on_another_device_nothing_is_chosen(family, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Another GPU")
    assert chosen(family, (4096, 4096, 64)) is None and chosen(family, (1024, 1024, 1024)) is None
