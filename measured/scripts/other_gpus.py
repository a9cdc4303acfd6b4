"""For which architectures Triton compiles a rendered kernel, targets or not; needs no GPU.

    python measured/scripts/other_gpus.py

Writes `measured/other_gpus.json`. Each architecture has a process of its own: a compiler that cannot end its work ends
the process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

FAMILY = ROOT / "generated" / "ladder"
KERNEL = "gemm_fp16_rcr_none__tiled_pointer_mnk_grouped"


def compile_for(architecture: str) -> None:
    """Compile the aligned call of the kernel's smallest configuration, with the arguments of a target like it."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from generator.emit import manifest_reader
    from generator.emit.loading import load_kernel
    from generator.verify.launches import launches
    from generator.verify.specialise import specialise

    amd = architecture.startswith("gfx")
    like = ("gfx942" if architecture.startswith("gfx9") else "gfx1100") if amd else "sm80"
    module = load_kernel(FAMILY / f"{KERNEL}.py")
    kernel = manifest_reader.read(FAMILY).by_name[KERNEL]
    launch = [each for each in launches(kernel, like) if each.case.name == "aligned"][-1]
    for wanted in specialise(module, kernel, launch, like):
        source = ASTSource(wanted.function, wanted.signature, wanted.constants, wanted.known)
        lanes = 64 if architecture.startswith("gfx9") else 32
        target = GPUTarget("hip", architecture, lanes) if amd else GPUTarget("cuda", int(architecture[2:]), 32)
        triton.compile(source, target=target, options=wanted.options)


def main() -> None:
    """Write the file."""
    import triton

    from generator.language.gpus import ARCHITECTURES

    refused = {}
    for architecture in ARCHITECTURES:
        done = subprocess.run([sys.executable, __file__, architecture], capture_output=True, text=True, cwd=ROOT)
        said = [line for line in done.stderr.splitlines() if "ERROR" in line or "Error" in line]
        refused[architecture] = "" if done.returncode == 0 else (said or [f"status {done.returncode}"])[-1]
        print(architecture, refused[architecture] or "compiles")
    text = json.dumps({"triton": triton.__version__, "kernel": KERNEL, "refused": refused}, indent=1)
    (ROOT / "measured" / "other_gpus.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    compile_for(sys.argv[1]) if sys.argv[1:] else main()
