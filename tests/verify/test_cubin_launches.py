"""A package of cubins launches what a call from Python does: the same images, grids, arguments and tensor maps."""

import gc
import struct
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from triton.backends.nvidia import driver as nvidia

from generator.emit.loading import load_family
from generator.emit.manifest_reader import read
from generator.plan.devices import DEVICES
from generator.runtime import prepare
from generator.verify.ahead_of_time import ProductSizes, standing_in_for
from generator.verify.cubin_launches import Unpackable, image_of
from generator.verify.cubin_package import compiled_package, dtype_of
from tests.helpers.emit.cubins import Built, fake_driver, hashed, of_kind
from tests.helpers.support import forget
from tests.helpers.verify.rendered import rendered

H200 = DEVICES["nvidia_h200"]
_DEVICE = torch.device("cuda", 0)
N, K, COUNT, STREAM = 96, 64, 2, 0x5EAF

TILE = "tile: [{m: 32, n: 32, k: 32, warps: 4, stages: 2}]\n"
#: What is launched -> the spec, without its summary.
SPECS = {
    "pointer": f"layout: rcr\ndtype: fp16\nload: pointer\n{TILE}",
    "chain": f"layout: rcr\ndtype: bf16\nepilogue: bias+gelu_tanh\nload: [descriptor, pointer]\n{TILE}",
    "batch": f"layout: rrr\ndtype: fp16\nbatch: strided\nepilogue: bias+add\nload: [descriptor, pointer]\n{TILE}",
    "persistent": f"layout: rcr\ndtype: fp16\nschedule: persistent\nload: [descriptor, pointer]\n{TILE}",
    "split": "layout: rcr\ndtype: fp16\nepilogue: bias\nschedule: split_k\nload: [descriptor, pointer]\n"
    + TILE.replace("}]", ", split: 2}]"),
    "added": "layout: rcr\ndtype: {a: fp16, b: fp16, acc: fp32, out: fp32}\nschedule: split_k_atomic\nload: pointer\n"
    + TILE.replace("}]", ", split: 2}]"),
    "shared": f"layout: rcr\ndtype: fp16\nschedule: stream_k\nload: pointer\n{TILE}",
    "strided": f"layout: srs\ndtype: fp16\nepilogue: scale\nload: pointer\n{TILE}",
    "column": f"layout: ccc\ndtype: fp16\nload: [descriptor, pointer]\n{TILE}",
    "wide": f"layout: rcr\ndtype: tf32\nload: [descriptor, pointer]\n{TILE}",
    "stored": "layout: rcr\ndtype: {a: bf16, b: int4, scales: {b: [32, 1]}}\n"
    "product: exchanged\nload: [descriptor, pointer]\n" + TILE.replace("n: 32", "n: 64"),
    "groups": f"layout: rrr\ndtype: fp16\nbatch: grouped\nload: pointer\n{TILE}",
}
ROWS = (1, 32, 33)
#: Triton's function that encodes a descriptor; the second name is that of 3.6.
ENCODERS = ("fill_tma_descriptor_tiled", "fill_tma_descriptor")


@dataclass
class Case:
    """A family, its only contract, and its package."""

    module: ModuleType
    contract: str
    built: Built

    @property
    def kernels(self):
        return [self.module._kernel(name) for name in self.module._KERNELS[self.contract]]


@pytest.fixture(autouse=True)
def without_collection():
    """Python 3.11 fails in `ast.parse`, by which Triton reads a kernel, if garbage is collected at a bad moment."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    return fake_driver(tmp_path_factory.mktemp("fake"))


@pytest.fixture
def case(request, tmp_path, driver):
    """The package of a spec of SPECS; a test gives the name."""
    text = f"summary: Launched without Python.\ntargets: [sm90]\n{SPECS[request.param]}"
    family = rendered(tmp_path, f"packed_{request.param}", text)
    count = COUNT if "batch:" in text else 1
    package = compiled_package(family, "packed", H200, [ProductSizes(N, K, ROWS)], only="*", count=count)
    (contract,) = package.contracts
    yield Case(load_family(family.folder), contract.name, Built(tmp_path / "made", package, driver))
    forget(family.folder.name)


@dataclass
class Given:
    """The operands of a call: without memory for Python, and the fields of the call in C."""

    tensors: dict[str, Any]
    fields: dict[str, Any]
    addresses: dict[str, int]

    #: Whether every address and stride is a multiple of 16, but for strides that no kernel is compiled for.
    aligned: bool = True


def given(case, m, pad, offset):
    """Operands whose lines are `pad` elements longer, `offset` elements behind an aligned address."""
    (contract,) = case.built.package.contracts
    numbers = {"M": m, "N": N, "K": K, "B": COUNT, "G": COUNT, "T": m, "R": m, "S": m}
    found = Given({}, {"m": m, "n": N, "k": K}, {})
    if contract.counted:
        found.fields[contract.counted] = COUNT
    table = case.kernels[0].CALL
    for place, x in enumerate((*table.operands, *table.results), 1):
        if x.absent is not None or not x.shape:
            found.tensors[x.name] = None if x.absent is not None else 1.5
            found.fields |= {} if x.absent is not None else {x.name: 1.5}
            continue
        operand = next(each for each in contract.operands if each.name == x.name)
        shape = x.sized(numbers)
        unit = len(shape) - 1 if x.unit is None else x.unit
        strides = [1] * len(shape)
        if len(shape) > 1:
            # A stride of 1 is a constant for Triton, of which the package makes no kernels of their own.
            strides[2 * len(shape) - 3 - unit] = max(shape[unit] + pad, 2)
        if len(shape) > 2:
            strides[0] = max(shape[unit] + pad, 2) * shape[2 * len(shape) - 3 - unit] + pad % 2
        if operand.loose or (x.unit is None and pad % 2):
            # Only then is a stride of 1 no constant for Triton.
            strides = [3 * shape[-1] + 2, 3 if x.unit is None else 1]
        dtype = dtype_of(x, table)
        address = (place << 40) + offset * dtype.itemsize
        found.tensors[x.name] = prepare.memoryless_tensor(dtype, _DEVICE, shape, strides, offset)
        found.addresses[x.name] = found.fields[x.name] = address
        found.fields |= {f"{x.name}_{end}": strides[dimension] for dimension, end in operand.strides}
        steps = [strides[dimension] for dimension, _ in operand.strides if dimension != unit and not operand.loose]
        found.aligned &= not any(number % 16 for number in (address, *steps))
    return found


def expected(case, call):
    """What the family launches: the plan of the first kernel that takes the operands, and its compiled kernels."""
    state = case.kernels[0].CALL.state(call.tensors)
    kernel = next(each for each in case.kernels if each.CALL.reason(state) is None)
    plan = kernel.CALL.plan(None, **call.tensors)
    return plan, [each.kernel.warmup(grid=each.grid, **each.arguments) for each in plan.launches]


def packed(kind, value):
    """An argument as the kernel reads it."""
    return struct.pack({"i32": "<i", "i64": "<q", "fp32": "<f"}[kind], value).hex()


def arguments_of(launch, compiled, addresses):
    """The bytes of all arguments, and the words of each tensor map, as Triton's own launcher makes them."""
    found, maps = [], []
    metas = iter(compiled.metadata.tensordesc_meta or ())
    for name, kind in compiled.src.signature.items():
        value = launch.arguments.get(name)
        if kind == "constexpr":
            continue
        if kind.startswith("tensordesc"):
            made, *numbers = nvidia.make_tensordesc_arg(value, next(metas))
            _, swizzle, size, element, box, shape, strides, nan = made
            words = [element, len(shape), f"{addresses[id(value.base)]:x}", *reversed(shape)]
            words += [stride * size for stride in reversed(strides[:-1])]
            words += [*reversed(box), *[1] * len(box), 0, swizzle, 2, nan]
            maps.append([str(word) for word in words])
            found += ["map", *(packed("i32", x) for x in numbers[: len(shape)])]
            found += [packed("i64", x) for x in numbers[len(shape) :]]
        elif isinstance(value, torch.Tensor):
            found.append(packed("i64", addresses[id(getattr(value, "base", value))]))
        else:
            found.append(packed(kind, value))
    # The scratch memory of the kernel and of a profiler.
    return [*found, packed("i64", 0), packed("i64", 0)], maps


@pytest.mark.parametrize("case", SPECS, indirect=True)
def test_what_is_launched(case, monkeypatch):
    # Contiguous; longer lines, of which a descriptor can address those of whole 16 bytes; odd ones, at odd addresses.
    placings = [(0, 0), (16, 0), (8, 0), (3, 1)]
    (contract,) = case.built.package.contracts
    with standing_in_for(H200), prepare.memoryless(), triton.knobs.compilation.scope():
        triton.knobs.compilation.disable_line_info = True
        encoder = SimpleNamespace(**dict.fromkeys(ENCODERS, lambda *words: words))
        monkeypatch.setattr(triton.runtime.driver.active, "utils", encoder, raising=False)
        calls = [given(case, m, *placing) for placing in placings for m in ROWS]
        wanted = [expected(case, call) for call in calls]
        made = [
            [arguments_of(x, each, addresses_of(case, call, plan)) for x, each in zip(plan.launches, compiled)]
            for call, (plan, compiled) in zip(calls, wanted)
        ]
    for call in calls:
        if contract.needs_memory:
            call.fields |= {"workspace": WORKSPACE, "workspace_size": 2**30}
    answers, (loading, *lines, unloading) = case.built.called(*[(contract.name, STREAM, call.fields) for call in calls])
    assert answers == [[0, None]] * len(calls)
    hashes = {words[0]: words[1] for words in of_kind(loading, "cuModuleLoadData")}
    names = dict(of_kind(loading, "cuModuleGetFunction"))
    assert [hashes[str(i)] for i in range(len(hashes))] == [hashed(x.data) for x in case.built.package.images]
    assert len(of_kind(unloading, "cuModuleUnload")) == len(hashes)
    for call, (plan, compiled), arguments, own in zip(calls, wanted, made, lines):
        launches = of_kind(own, "cuLaunchKernel")
        encoded = of_kind(own, "cuTensorMapEncodeTiled")
        assert len(launches) == len(plan.launches)
        for launch, each, image, (bytes_, maps) in zip(plan.launches, compiled, launches, arguments):
            assert names[image[0]] == each.metadata.name
            grid = [*launch.grid, 1, 1][:3]
            assert image[1:7] == [*map(str, grid), str(32 * each.metadata.num_warps), "1", "1"]
            assert image[8] == f"{STREAM:x}"
            if call.aligned:
                # It is the very kernel that a call from Python runs.
                assert hashes[image[0]] == hashed(each.asm["cubin"]) and image[7] == str(each.metadata.shared)
            passed = image[9:]
            here, encoded = encoded[: len(maps)], encoded[len(maps) :]
            assert [words[1:] for words in here] == maps
            serial = iter(here)
            assert len(passed) == len(bytes_)
            for one, other in zip(passed, bytes_):
                if other == "map":
                    # Bit 21 of the second word is cleared for a small matrix.
                    other = f"{struct.pack('<QQ', int(next(serial)[0]), 2**64 - 1 - 2**21).hex()}{'ff' * 112}"
                assert one == other
        assert not encoded
        cleared_ones(case, call, own)


#: The address of the workspace.
WORKSPACE = 1 << 50


def addresses_of(case, call, plan):
    """The addresses of operands, and of the parts of the workspace one behind the other, by the tensors."""
    found, at = {id(plan.known[name]): address for name, address in call.addresses.items()}, WORKSPACE
    for x in (plan.known[x.name] for x in case.kernels[0].CALL.memory):
        found[id(x)] = at
        reach = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride()))
        at += -(-reach * x.element_size() // 256) * 256
    return found


def cleared_ones(case, call, lines):
    """What a kernel adds to, and counters, are zero before it."""
    table = case.kernels[0].CALL
    counters = [x for x in table.memory if getattr(x, "cleared", False)]
    whole, by_lines = of_kind(lines, "cuMemsetD8Async"), of_kind(lines, "cuMemsetD2D8Async")
    assert len(whole) + len(by_lines) == len(counters) + len(table.cleared)
    m, ld = call.fields["m"], call.fields.get("out_ld")
    if table.cleared and m > 1 and ld > N:
        assert by_lines == [[f"{call.addresses['out']:x}", str(4 * ld), "0", str(4 * N), str(m), f"{STREAM:x}"]]
    elif table.cleared:
        assert whole == [[f"{call.addresses['out']:x}", "0", str(4 * N * m), f"{STREAM:x}"]]


@pytest.mark.parametrize(("name", "value"), [("num_ctas", 2), ("launch_pdl", True), ("global_scratch_size", 64)])
def test_what_a_plain_launch_does_not_have_is_refused(name, value):
    with pytest.raises(Unpackable, match=f"{name} {value}"):
        image_of(SimpleNamespace(metadata=SimpleNamespace(**{name: value})))


def test_a_tuned_family_takes_the_kernels_that_its_function_takes(tmp_path, driver):
    folder = Path(__file__).resolve().parents[2] / "generated" / "fp16_rcr"
    name, rows = "gemm_fp16_rcr_bias", (1, 64, 1000, 4096)
    package = compiled_package(read(folder), "tuned", H200, [ProductSizes(4096, 4096, rows)], only=name, count=1)
    (contract,) = package.contracts
    with standing_in_for(H200), prepare.memoryless():
        family = load_family(folder)
        b = prepare.memoryless_tensor(torch.float16, _DEVICE, (4096, 4096), (1, 4096))
        bias = prepare.memoryless_tensor(torch.float16, _DEVICE, (4096,), (1,))
        wanted = [getattr(family, name).which(_rows(m), b, bias=bias) for m in rows]
    rows = {f"&entry_table[{index}]": text for index, text in enumerate(package.tables.rows["entry"])}
    assert [rows[run.entries[0]].partition(" */")[0] for run in contract.runs if run.entries[0] in rows] == [
        f"/* {', '.join([kernel, *(f'{key} {value}' for key, value in row.items())])}" for kernel, row in wanted
    ]


def _rows(m):
    return prepare.memoryless_tensor(torch.float16, _DEVICE, (m, 4096), (4096, 1))
