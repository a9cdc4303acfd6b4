"""The choice of a kernel for gates and quantised results: by what was measured with them, or is as fast."""

import json

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from generator.commands.command_line import main
from generator.cost import tuned
from generator.emit.loading import load_family, load_kernel
from generator.emit.manifest_reader import read as read_family
from generator.language.spec import read
from generator.plan.configurations import configurations
from generator.plan.devices import DEVICES
from generator.plan.expand import expand
from generator.plan.resources import serialised
from generator.verify import machine_code
from generator.verify.ahead_of_time import standing_in_for
from generator.verify.launches import launches
from generator.verify.specialise import specialise
from tests.helpers import shipped
from tests.helpers.support import GENERATED, ROOT, family_of, forget
from tests.helpers.tuned_file import measured

H200 = DEVICES["nvidia_h200"]
TILED, WALKING = "tiled_descriptor_auto_grouped_storepointer", "persistent_descriptor_auto_grouped_storepointer"
POINTER = "tiled_pointer_auto_grouped"
#: Of the plain product, and what stands for it with a gate.
WIDE = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8, "num_warps": 4, "num_stages": 3}
HALF = WIDE | {"BLOCK_N": 64}
SLOW, FAST = (1, 2e-6, 1e-6, 1e-6, 4e12, 2e-6, 0, 0.1), (1, 4e-7, 3e-7, 1e-6, 4e12, 2e-6, 0, 0.1)
PLAIN, GATE = "gemm_fp16_rcr_none", "gemm_fp16_rcr_swiglu"
AXES = "summary: x\nlayout: rcr\nselect: table\ntuned: found.json\ntargets: [sm90]\nstore: [as_load, pointer]\n"
KERNELS = "schedule: [tiled, persistent]\nload: [pointer, descriptor]\ntile: [{m: 128, n: 64, k: 64, warps: 4}]\n"


def found(*entries, sizes=8):
    """A file with rates of these contracts' kernels, and with winners of as many sizes of each contract."""
    rated = [
        ({"contract": name, "kernel": f"{name}__{how}", "config": row}, rates) for name, how, row, rates in entries
    ]
    won = [entry | {"m": 64 * m, "n": 256, "k": 64} for entry, _ in rated for m in range(1, sizes + 1)]
    file = measured() | {"winners": won, "rates": [entry | {"rates": r} for entry, r in rated]}
    return json.dumps(file)


def rates_of(axes, file):
    """Contract -> kernel -> the rates of its only configuration."""
    held = tuned.bake(family_of(f"{AXES}{KERNELS}{axes}", beside={"found.json": file}))
    return {contract: {how: rows[0][1] for how, rows in rates} for _, contract, rates in held.rates}


PLAIN_RATES = [(PLAIN, how, WIDE, FAST) for how in (TILED, WALKING, POINTER)]


def test_a_plain_product_says_nothing_of_a_persistent_kernel_with_two_accumulators():
    file = found(*PLAIN_RATES)
    assert set(rates_of("dtype: fp16\nepilogue: swiglu\n", file)[GATE]) == {TILED, POINTER}
    # Of alternating columns there is one accumulator.
    one = rates_of("dtype: fp16\nepilogue: [[{swiglu: {order: interleaved}}]]\n", file)
    assert set(one["gemm_fp16_rcr_swiglu_interleaved"]) == {TILED, WALKING, POINTER}
    # Nor does what won as one.
    text = f"{AXES}{KERNELS}dtype: fp16\nepilogue: swiglu\n"
    held = tuned.bake(family_of(text, beside={"found.json": found(PLAIN_RATES[1])}))
    assert (held.won, held.rates) == ((), ())


@pytest.mark.parametrize(
    ("axes", "contract"),
    [
        ("dtype: fp16\nepilogue: swiglu\nbatch: strided\n", "bmm_fp16_rcr_swiglu"),
        ("dtype: fp16\nepilogue: bias+swiglu\n", "gemm_fp16_rcr_bias_swiglu"),
        ("dtype: fp16\nepilogue: geglu\n", "gemm_fp16_rcr_geglu"),
        ("dtype: bf16\nepilogue: swiglu\n", "gemm_bf16_rcr_swiglu"),
    ],
)
def test_what_was_measured_with_the_gate_comes_first(axes, contract):
    """Its columns are not halved; the plain product counts for the kernels that were not measured with a gate."""
    file = found(*PLAIN_RATES, (GATE, TILED, HALF, SLOW), (GATE, WALKING, HALF, SLOW))
    rates = rates_of(axes, file)[contract]
    slow, fast = ("(1, 2e-06, 1e-06,", "(1, 4e-07, 3e-07,")
    assert {how: value[: len(slow)] for how, value in rates.items()} == {TILED: slow, WALKING: slow, POINTER: fast}


def test_what_was_measured_with_a_second_matrix_comes_first():
    file = found((PLAIN, TILED, HALF, FAST), ("gemm_fp16_rcr_save_gelu", TILED, HALF, SLOW))
    rates = rates_of("dtype: fp16\nepilogue: [relu, save+silu]\n", file)
    assert rates["gemm_fp16_rcr_relu"][TILED].startswith("(1, 4e-07")
    assert rates["gemm_fp16_rcr_save_silu"][TILED].startswith("(1, 2e-06")


@pytest.fixture(scope="module")
def grouped():
    yield load_family(GENERATED / "grouped")
    forget("grouped")


def which(package, sizes, layout="rcr"):
    """The kernel, less its contract, and the tile, warps and stages of a call with aligned operands."""
    groups, m, n, k = sizes
    shape = (groups, 2 * n, k) if layout == "rcr" else (groups, k, 2 * n)
    with standing_in_for(H200), FakeTensorMode(allow_non_fake_inputs=True):
        a, b = (torch.empty(*each, dtype=torch.bfloat16, device="cuda") for each in ((m, k), shape))
        offsets = torch.empty(groups, dtype=torch.int32, device="cuda")
        name, row = getattr(package, f"gmm_bf16_{layout}_swiglu").which(a, b.mT if layout == "rcr" else b, offsets)
    tile = tuple(row[key] for key in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages"))
    return name.rpartition("__")[2], tile


@pytest.mark.parametrize("layout", ["rcr", "rrr"])
def test_no_gate_of_a_mixture_runs_products_that_wait(grouped, layout):
    kernels = expand(read(ROOT / "specs" / "grouped.yaml")).contracts[f"gmm_bf16_{layout}_swiglu"]
    waits = {kernel.how: serialised(kernel.variant) for kernel in kernels}
    assert set(waits.values()) == {True, False}
    for groups, n, k in ((8, 14336, 4096), (128, 768, 2048), (256, 2048, 7168), (128, 2880, 2880)):
        for rows in (64, 512, 4096, 32768):
            how, _ = which(grouped, (groups, rows, n, k), layout)
            assert not waits[how], (groups, rows, n, k)


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("gated", "gemm_bf16_rcr_bias_swiglu__persistent_descriptor_auto_grouped"),
        ("gated", "gemm_bf16_rcr_bias_geglutanh_interleaved__persistent_descriptor_auto_grouped"),
        ("gated", "gemm_bf16_rcr_bias_swiglu__splitk_descriptor_auto_grouped"),
        ("grouped", f"gmm_bf16_rcr_swiglu__{WALKING}"),
        ("grouped", f"gmm_bf16_rcr_swiglu__{TILED}"),
        ("grouped", f"gmm_bf16_rcr_scalem__{WALKING}"),
    ],
)
def test_products_wait_where_a_program_walks_tiles_with_two_accumulators(family, name, monkeypatch, tmp_path):
    """The assembler says so of the first configuration, and spills nothing."""
    # Nothing is assembled of what is cached. A knob that is set would keep its value when the patch is undone.
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    logs = []
    figures = machine_code._nvidia_registers
    monkeypatch.setattr(machine_code, "_nvidia_registers", lambda log: (logs.append(log), figures(log))[1])
    kernel = read_family(shipped.folder(family)).by_name[name]
    launch = next(each for each in launches(kernel, "sm90") if "aligned" in each.name)
    module = load_kernel(shipped.folder(family) / f"{name}.py")
    code = machine_code.compile_to_machine_code(specialise(module, kernel, launch, "sm90")[0], "sm90")
    assert code.instructions["wgmma"] and code.spilled == 0
    assert ("wgmma.mma_async instructions are serialized" in "".join(logs)) == serialised(kernel.variant)


BLOCK_FP8 = "layout: rcr\ndtype: {a: fp8e4m3, scales: {a: [1, 128], b: [128, 128]}}\ntargets: [sm90]\n"


@pytest.mark.parametrize(
    ("keys", "last"),
    [
        (BLOCK_FP8, "[swiglu, {quantize: {to: fp8e4m3}}]"),
        (BLOCK_FP8, "[{quantize: {to: fp8e4m3}}]"),
        (BLOCK_FP8, "[swiglu, {quantize: {to: fp8e4m3, block: 256}}]"),
        (BLOCK_FP8, "[geglu, {quantize: {to: int8, block: 64}}]"),
        ("layout: rcr\ndtype: bf16\ntargets: [sm90]\n", "[bias, swiglu, {quantize: {to: fp8e4m3}}]"),
        ("layout: rcr\ndtype: bf16\ntargets: [sm90]\n", "[{quantize: {to: fp8e4m3, block: 256}}]"),
        ("layout: rcr\ndtype: fp8e4m3\ntargets: [sm90]\n", "[swiglu, {quantize: {to: fp8e4m3}}]"),
    ],
)
def test_the_fastest_kernels_have_tiles_of_whole_blocks(keys, last):
    family = family_of(f"summary: x\n{keys}select: fastest\nepilogue: [{last}]\n")
    block = family.kernels[0].variant.quantised.block
    copied = [kernel for kernel in family.kernels if kernel.variant.loading.descriptors]
    assert {"tiled"} <= {kernel.variant.schedule for kernel in copied}
    assert all(tile.n % block == 0 for kernel in family.kernels for tile in kernel.tiles)
    # No measured kernel is left out because its columns are too few.
    assert [left for left in family.left_out if "must be a multiple" in left.reason] == []


def test_a_tile_of_more_columns_has_no_rates_of_the_one_that_was_measured():
    family = family_of(f"summary: x\n{BLOCK_FP8}select: fastest\nepilogue: [[{{quantize: {{to: fp8e4m3}}}}]]\n")
    plain = family_of(f"summary: x\n{BLOCK_FP8}select: fastest\n")
    (measured,), (found,) = (
        [rates for device, _, rates in tuned.bake(each).rates if device == "NVIDIA H200"] for each in (plain, family)
    )
    rows = {how: configurations(kernel) for kernel in plain.kernels for how in [kernel.how]}
    known = {text: rows[how][index] for how, entries in measured for index, text in entries}
    own = {kernel.how: configurations(kernel) for kernel in family.kernels}
    compared = [(own[how][index], known[text]) for how, entries in found for index, text in entries]
    assert compared
    for one, other in compared:
        assert one["BLOCK_M"] * one["BLOCK_N"] == other["BLOCK_M"] * other["BLOCK_N"]


@pytest.mark.parametrize("select", ["fastest", "heuristic"])
@pytest.mark.parametrize("last", ["[swiglu, {quantize: {to: fp8e4m3}}]", "swiglu", "[geglu, {quantize: {to: int8}}]"])
def test_a_gate_of_block_fp8_runs_tiles_that_the_hardware_copies(select, last, tmp_path, capsys):
    words = (
        "" if select == "fastest" else "schedule: [tiled, persistent]\nload: [pointer, descriptor]\nstore: pointer\n"
    )
    spec = tmp_path / "layer.yaml"
    spec.write_text(f"summary: x\n{BLOCK_FP8}{words}select: {select}\nepilogue: [{last}]\n")
    assert main(["explain", str(spec), "--sizes", "4096,14336,4096", "--device", "nvidia_h200"]) == 0
    said = capsys.readouterr().out
    # On an H100 tiles of 128 rows take up to 17 % longer.
    columns = 128 if "quantize" in last else 64
    chosen = f"configuration: BLOCK_M 64, BLOCK_N {columns}, BLOCK_K 128, GROUP_M 8"
    assert f"__tiled_descriptor_auto_grouped_storepointer\n    {chosen}" in said
