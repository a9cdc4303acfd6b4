"""What the proof has no meaning for is not proved, and says why: never passed over."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from generator import runtime
from generator.bounds import NotUnderstood, prove
from tests.helpers.bounds.kernels import AUTO, planted, proof_of
from tests.helpers.support import ROOT


def test_another_library_is_not_understood(tmp_path: Path) -> None:
    library = tmp_path / "_runtime"
    shutil.copytree(Path(runtime.__file__).parent, library)
    module = library / "call.py"
    module.write_text("# Rendered.\n" + module.read_text())
    assert proof_of(tmp_path, planted(AUTO)).order.state == "proved"
    module.write_text(f"{module.read_text()}\nMOST = 2**40\n")
    proof = proof_of(tmp_path, planted(AUTO))
    assert proof.order.state == "not proved" and {access.state for access in proof.accesses} == {"not proved"}
    told = "the family's _runtime is another one (call.py differs from this package's): render it again"
    assert proof.order.detail.startswith("not understood: line ") and proof.order.detail.endswith(told)
    module.unlink()
    assert proof_of(tmp_path, planted(AUTO)).order.detail.endswith(told)


def test_a_file_without_a_kernel_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.py"
    path.write_text('"""Nothing."""\n\nimport triton.language as tl\n')
    with pytest.raises(NotUnderstood, match="no function gemm_kernel"):
        prove(path)


def test_neither_torch_nor_triton_is_imported() -> None:
    code = "import sys, generator.bounds; sys.exit(any(name in sys.modules for name in ('torch', 'triton', 'numpy')))"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
