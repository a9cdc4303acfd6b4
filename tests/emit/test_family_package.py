"""The family as a package, and read back from its manifest: what was expanded, and imported when it is used."""

import json
import shutil

import pytest

from generator.emit.family_package import contracts
from generator.emit.manifest_reader import read
from generator.emit.package_files import package_names
from generator.language import spec
from generator.plan.expand import expand
from tests.helpers import shipped
from tests.helpers.support import BASE, GENERATED, SPECS, family_of, python


def test_the_contracts_of_a_family():
    family = family_of(BASE + "epilogue: [none, bias]\nmasking: [none, auto]\nload: [pointer, descriptor]\n")
    found = {contract.name: contract for contract in contracts(family)}
    assert list(found) == ["gemm_fp16_rcr_none", "gemm_fp16_rcr_bias"]
    assert found["gemm_fp16_rcr_bias"].formula == "C = A @ B + bias"
    # The fast one that refuses most comes first, the one that takes every size before the one that does not.
    assert [name.partition("__")[2] for name in found["gemm_fp16_rcr_none"].kernels] == [
        "tiled_descriptor_auto_grouped",
        "tiled_pointer_auto_grouped",
        "tiled_pointer_none_grouped",
    ]


def test_the_order_in_which_schedules_are_tried():
    family = family_of(BASE + "schedule: [elementwise, naive, stream_k, split_k, persistent, tiled]\nproduct: direct\n")
    (contract,) = contracts(family)
    assert [name.partition("__")[2].partition("_")[0] for name in contract.kernels] == [
        *("tiled", "persistent", "splitk", "streamk", "naive", "elementwise")
    ]


def test_the_package_is_lazy(tmp_path):
    shutil.copytree(GENERATED / "fp16_rcr", tmp_path / "vendored", ignore=shutil.ignore_patterns("__pycache__"))
    code = (
        "import sys, json, vendored\n"
        "listed = dir(vendored)\n"
        "print(json.dumps([vendored.__all__, [n for n in vendored.__all__ if n not in listed],\n"
        "    sorted({n.partition('.')[0] for n in sys.modules} & {'torch', 'triton', 'numpy'}),\n"
        "    [n for n in sys.modules if n.startswith('vendored.')]]))\n"
        "try: vendored.gemm_fp16_rcr_nothing\n"
        "except AttributeError as error: print(error)\n"
    )
    ran = python("-c", code, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert ran.returncode == 0, ran.stderr
    first, second = ran.stdout.splitlines()
    offered, not_in_dir, stack, kernels = json.loads(first)
    found = contracts(expand(spec.read(GENERATED.parent / "specs/fp16_rcr.yaml")))
    assert offered == [*(contract.name for contract in found), "register_operators"]
    assert (not_in_dir, stack, kernels) == ([], [], [])
    assert second == "module 'vendored' has no attribute 'gemm_fp16_rcr_nothing'"


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_the_manifest_tells_what_the_spec_expands_to(path):
    family = expand(spec.read(path))
    found = read(shipped.folder(family.spec.name))
    assert found.kernels == family.kernels
    assert found.left_out == family.left_out
    assert found.name == family.spec.name
    modules = sorted(name for name in package_names(family) if name.endswith(".py"))
    assert found.own_modules == modules
