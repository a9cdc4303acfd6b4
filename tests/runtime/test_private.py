"""A family without the private names of torch and Triton that it looks up: it computes the same, if slower."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from generator.commands.command_line import main
from tests.helpers.support import ROOT, python, spec

SPEC = spec(
    "layout: rcr; dtype: fp16; with: prepare; select: fastest; epilogue: [none, bias]; "
    "tile: [{m: 16, n: 16, k: 16, warps: 1}]"
)
RUNTIME = ROOT / "generator" / "runtime"

#: The names of torch; those of Triton are imported by `fast` alone, which says for which versions.
NAMES = [
    "torch.utils._python_dispatch:_len_torch_dispatch_stack",
    "torch.utils._python_dispatch:_get_current_dispatch_mode_stack",
    "torch.utils._python_dispatch:TorchDispatchMode",
    "torch.autograd.forward_ad:_current_level",
    "torch:_C._is_tracing",
    "torch:_C._are_functorch_transforms_active",
    "torch:_int_mm",
    "torch:_scaled_mm",
    "torch:Tensor._make_wrapper_subclass",
    "torch:_C._disabled_torch_function_impl",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a plain family, `f0`."""
    made = tmp_path_factory.mktemp("private")
    (made / "f0.yaml").write_text(SPEC)
    assert main([str(made / "f0.yaml"), "--out", str(made)]) == 0
    return made


def test_a_family_does_without_each_name(folder: Path) -> None:
    env = {"PYTHONPATH": str(folder), "TRITON_INTERPRET": "1"}
    ran = python(str(ROOT / "tests" / "helpers" / "without_names.py"), str(folder), *NAMES, cwd=folder, env=env)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines() == NAMES


def test_every_name_that_is_looked_up_is_tested() -> None:
    text = "".join((RUNTIME / f"{name}.py").read_text() for name in ("private", "prepare"))
    found = re.findall(r'named\(\s*(_MODES|"[^"]*"), "([^"]*)"', text)
    modes = "torch.utils._python_dispatch"
    looked_up = {f"{modes if module == '_MODES' else module.strip(chr(34))}:{name}" for module, name in found}
    assert looked_up == {*NAMES} - {"torch.autograd.forward_ad:_current_level"}


#: What is not documented, and modules of Triton that have such names.
PRIVATE = re.compile(r"torch\._|_python_dispatch|triton\.(runtime|backends|tools)\b|Tensor\._|\._dynamo|from torch\._")


def test_no_other_module_has_such_names() -> None:
    # Inductor has no documented interface for its passes' patterns; the modules are imported for it alone.
    own = "private fast launch descriptors interpreted_bf16 chain_search graph_pass whole_rows prepare"
    for path in RUNTIME.glob("*.py"):
        if path.stem not in own.split():
            code = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
            assert not [line for line in code if PRIVATE.search(line) and "_should_skip_dynamo" not in line], path.name


@pytest.mark.parametrize(("value", "known"), [("0", False), ("1", True), (None, True)])
def test_an_environment_variable_turns_cached_launches_off(folder: Path, value: str | None, known: bool) -> None:
    code = "import importlib; print(importlib.import_module('f0._runtime.fast').KNOWN)"
    env = {"PYTHONPATH": str(folder)} | ({} if value is None else {"GEMM_RELAUNCH": value})
    ran = python("-c", code, cwd=folder, env=env)
    assert (ran.returncode, ran.stdout.strip()) == (0, str(known)), ran.stderr
