"""GPUs that a spec did not name: what is chosen fits on the device at hand, or a sentence says that nothing does."""

import itertools
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch

from generator.emit.loading import library_module, load_family, load_kernel
from generator.emit.manifest_reader import remembered
from generator.language.targets import TARGETS
from generator.plan import legality, memory_needs
from generator.plan.devices import Device
from generator.plan.portfolio import tile_of
from generator.plan.shared_memory import shared_memory
from generator.runtime.call import kind_of
from generator.verify.ahead_of_time import standing_in_for
from generator.verify.offered_rows import offered_fault
from generator.verify.specialise import claimed_device
from tests.helpers import shipped
from tests.helpers.support import BASE, render_spec

RTX_4090 = Device("NVIDIA GeForce RTX 4090", "sm89", 128, 102400)
#: What a program of it may have.
HELD = 101376
CUDA = torch.device("cuda", 0)
SIZES = list(itertools.product((16, 512, 8192), repeat=3))
PACKAGES = ("torch", "plain", "files")
#: With tiles that a GPU of 64 KiB cannot hold.
LARGE = f"{BASE}tile: [{{m: 128, n: 256, k: 64, warps: 8, stages: 3}}]\n"


@pytest.fixture
def render(tmp_path):
    return lambda text, package: render_spec(tmp_path, "at_hand", text, "--package", package)


@contextmanager
def device_of(target, shared, **others):
    """A GPU of a target with other shared memory; what it yields has an entry for each query of its properties."""
    queries = []
    capability = divmod(TARGETS[target].capability, 10)
    properties = SimpleNamespace(
        **dict(zip(("major", "minor"), capability, strict=True)),
        gcnArchName=target,
        multi_processor_count=40,
        shared_memory_per_multiprocessor=shared + 1024,
        shared_memory_per_block_optin=shared,
        **others,
    )

    def asked(device=None):
        queries.append(1)
        return properties

    with claimed_device(target), patch.object(torch.cuda, "get_device_properties", asked):
        yield queries


def modules(folder, package):
    """The kernels of a folder, each with its module as a caller imports it."""
    found = remembered(folder)
    if package == "files":
        return [(kernel.variant, load_kernel(found.file(name))) for name, kernel in found.by_name.items()]
    family = load_family(folder)
    return [(kernel.variant, family._kernel(name)) for name, kernel in found.by_name.items()]


def offered(module):
    """The configurations that the GPU at hand can run."""
    return module.CALL.offered(CUDA) if hasattr(module, "CALL") else module._device(CUDA)[0]


def test_the_functions_choose_what_fits(render):
    """`which` and `prepare` ask the same function as a call does."""
    family = load_family(render(BASE, "torch"))
    prepare = library_module(family, "prepare")
    (name,) = family._KERNELS
    v = remembered(Path(family.__file__ or "").parent).kernels[0].variant
    with standing_in_for(RTX_4090):
        found = [
            launch
            for m, n, k in SIZES
            for launch in prepare.launches(getattr(family, name), n, k, M=m, B=1, device=CUDA, unaligned=())
        ]
    rows = {launch.row for launch in found if launch.row is not None}
    assert rows and max(shared_memory(v, tile_of(v, dict(row)), "sm89") for row in rows) <= HELD


@pytest.mark.parametrize("package", PACKAGES)
def test_a_device_that_holds_none_is_told(render, package):
    """As a T4 has it: 64 KiB."""
    ((_, module),) = modules(render(LARGE, package), package)
    needed = 3 * (128 + 256) * 64 * 2 - (128 + 256) * 64 * 2
    with device_of("sm80", 65536):
        if package == "files":
            with pytest.raises(ValueError, match=rf"shared memory: of 65536 bytes they need \({needed},\)"):
                offered(module)
            return
        reason = module.CALL.reason(SimpleNamespace(device=CUDA, numbers={"M": 1, "N": 1, "K": 1}, known={}))
    assert "shared memory" in reason and reason.endswith("sm80")


@pytest.mark.parametrize("package", PACKAGES)
def test_a_device_is_asked_once(render, package):
    ((_, module),) = modules(render(BASE, package), package)
    with device_of("sm89", HELD) as queries:
        first = offered(module)
        count = len(queries)
        assert offered(module) is first and len(first) == len(module.CONFIGS) - 1
        assert len(queries) == count


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("target", TARGETS)
def test_what_is_offered_is_what_the_legality_table_allows(render, package, target):
    folder = render(BASE, package)
    (kernel,) = remembered(folder).kernels
    ((_, module),) = modules(folder, package)
    assert offered_fault(module, kernel, target) is None


@pytest.mark.parametrize(
    ("capability", "kind"),
    [((7, 5), "sm80"), ((8, 7), "sm80"), ((10, 3), "sm100"), ((11, 0), "sm100"), ((12, 1), "sm80")],
)
def test_an_architecture_that_no_spec_can_name(capability, kind):
    properties = SimpleNamespace(**dict(zip(("major", "minor"), capability, strict=True)))
    with patch.object(torch.cuda, "get_device_properties", lambda device=None: properties):
        assert kind_of(CUDA) == kind


@pytest.mark.parametrize("family", ["fp16_rcr", "fp8_blocks", "mx_scaled", "int4_rcr", "outputs", "fp32"])
def test_targets_with_the_same_instructions_need_the_same(family):
    for kernel in remembered(shipped.folder(family)).kernels:
        needs = memory_needs.needs_of(kernel)
        for name, target in TARGETS.items():
            if kernel.variant.traits.tiled and legality.why_not_on(kernel.variant, name) is None:
                own = tuple(legality.shared_memory_needed(kernel.variant, tile, name) for tile in kernel.tiles)
                assert needs[target.kind] == own


def test_verify_finds_a_launcher_that_takes_more(render):
    folder = render(BASE, "torch")
    (kernel,) = remembered(folder).kernels
    file = folder / "_shared_memory.py"
    file.write_text(file.read_text().replace("147456", "7456"))
    module = load_kernel(folder / f"{kernel.name}.py")
    fault = offered_fault(module, kernel, "sm89")
    assert fault is not None and fault.startswith("on sm89 the launcher takes 7 of 7 configurations, expected ")
