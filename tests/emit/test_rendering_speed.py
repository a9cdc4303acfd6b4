"""What rendering costs beside the writing of the same files, and that it parses no kernel."""

import ast
import re
import subprocess
import sys
from unittest.mock import Mock

import pytest

from generator.emit.file_digests import Digests
from generator.emit.render import kernel_source
from tests.helpers.support import family_of

#: A product of axes, of which a test takes some.
AXES = {
    "layout": "rcr, rrr, crr, ccr, rcc, rrc, crc, ccc",
    "dtype": "fp16, bf16",
    "epilogue": "none, bias, relu, bias+relu, gelu, silu, bias+gelu, bias+silu, add, scale, sigmoid, bias+add",
    "masking": "none, k, mn, auto",
    "swizzle": "linear, grouped, grouped_n, chiplet",
    "schedule": "tiled, persistent, stream_k, naive",
}


def product(**axes: str) -> str:
    listed = "".join(f"{axis}: [{words}]\n" for axis, words in (AXES | axes).items())
    return f"summary: A product of many axes.\npackage: plain\n{listed}load: [pointer]\ntargets: [sm90]\n"


def test_a_larger_product_parses_no_kernel(monkeypatch):
    """What is parsed are statements that no kernel had before, so fewer than kernels, and never a file."""
    some = {"layout": "rcr, rrr, crr", "epilogue": "none, bias, relu, bias+relu", "schedule": "tiled, persistent"}
    for orders, most in (("linear, grouped", 1.0), (AXES["swizzle"], 0.1)):
        made = family_of(product(**some, swizzle=orders))
        with monkeypatch.context() as patch:
            parse = Mock(wraps=ast.parse)
            patch.setattr(ast, "parse", parse)
            digests = Digests()
            for kernel in made.kernels:
                digests.add(f"{kernel.name}.py", kernel_source(made.spec, kernel), Digests())
        assert len(digests.unformatted) == len(made.kernels)
        assert parse.call_count <= most * len(made.kernels)
        assert all(len(call.args[0]) < 2500 for call in parse.call_args_list)


#: Renders a spec, then writes its files again, and prints the CPU seconds of both and the most memory of a process.
MEASURED = """
import resource, sys
from pathlib import Path

def seconds():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)

import generator
from generator.files.writing import write

(folder,) = generator.render(sys.argv[1], sys.argv[2]).families
rendered = seconds()
# The figure of RUSAGE_SELF counts what this process was before it ran Python: a copy of the one that runs the test.
own = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
memory = max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) // 1024
texts = {path.name: path.read_text() for path in folder.folder.iterdir() if path.is_file()}
started, other = seconds(), Path(sys.argv[2], "written")
other.mkdir()
for name, text in texts.items():
    write(other / name, text)
written = seconds() - started
print(f"{len(folder.kernels)} kernels: {rendered:.1f} s of CPU, {written:.2f} s for the writing alone,")
print(f"{rendered / written:.1f} times as long; {memory} MB")
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="other systems tell the memory of a process in other ways")
def test_what_rendering_costs_beside_writing(tmp_path):
    """12,288 kernels, from the start of the process. `-s` prints the figures."""
    spec = tmp_path / "product.yaml"
    spec.write_text(product())
    call = [sys.executable, "-c", MEASURED, str(spec), str(tmp_path / "out")]
    said = subprocess.run(call, check=True, capture_output=True, encoding="utf-8").stdout
    print(said)
    figures = re.fullmatch(r"12288 kernels: .*\n([\d.]+) times as long; (\d+) MB\n", said)
    assert figures is not None, said
    assert float(figures[1]) < 30 and int(figures[2]) < 300, said
