"""The parts of a kernel's file: what changes which, and that words change none."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from generator.emit.code_parts import Parts, of_file, parts
from generator.emit.manifest_reader import read
from tests.helpers.support import GENERATED

KERNEL = '''\
# Generated.
# sha256 of the text below: 0
"""C = A @ B

CONFIGS = [
"""

import functools
from types import SimpleNamespace

import torch
import triton
import triton.language as tl

CONFIGS = [
    {"BLOCK_M": 64, "num_warps": 4},
]
# Rows that do not fit into the shared memory of a device, by index.
TOO_LARGE = {"sm80": (0,)}
HALF = 0.5
LIMIT = 2**31


@triton.heuristics({"EVEN_M": lambda args: args["M"] % 64 == 0})
@triton.jit
def gemm_kernel(a_ptr, work_ptr, M, INDEX: "tl.constexpr", BLOCK_M: "tl.constexpr", EVEN_M: "tl.constexpr"):
    """What it computes."""
    # Which tile.
    pid = _twice(0)


@triton.jit
def _twice(x):
    return x / HALF


@triton.jit
def sum_kernel(work_ptr, M, INDEX: "tl.constexpr", STRIP: "tl.constexpr"):
    at = tl.program_id(0) * STRIP


@functools.lru_cache(maxsize=4096)
def _select(M):
    return CONFIGS[0]


def gemm(a):
    """What it returns."""
    launch = plan(a)
    with torch.cuda.device_of(a):
        launch.kernel[launch.grid](**launch.arguments)
        launch.then.kernel[launch.then.grid](**launch.then.arguments)
    return launch.results["out"]


def plan(a):
    M = _sizes(a)
    _check("a", a)
    row = _select(M)
    index = tl.int64 if _extent(a) > 2**31 else tl.int32
    desc = _describe(a, (row["BLOCK_M"], 1))
    work, counts = _workspace(M)
    sums = torch.empty(M, dtype=torch.int32)
    strip = 16
    out = None
    return SimpleNamespace(
        kernel=gemm_kernel,
        grid=(triton.cdiv(M, row["BLOCK_M"]),),
        arguments={"a_ptr": desc, "work_ptr": work, "M": M, "INDEX": index, "enable_fp_fusion": False, **row},
        slots={"a_ptr": "a"},
        then=SimpleNamespace(
            kernel=sum_kernel,
            grid=(triton.cdiv(M, 16),),
            arguments={"work_ptr": sums, "M": M, "INDEX": index, "STRIP": strip},
            slots={"work_ptr": "sums"},
        ),
        results={"out": out},
    )


def _sizes(a):
    if a.shape[0] > LIMIT:
        raise ValueError("too large")
    return a.shape[0]


def _check(name, a):
    if a.dtype != torch.float16:
        raise TypeError(f"{name} is {a.dtype}")


def _describe(a, block):
    return list(block)


def _workspace(M):
    return torch.empty(M, dtype=torch.float32), M


def _extent(a):
    return a.numel()
'''


def changed(old: str, new: str) -> set[str]:
    """The parts of the kernel that differ where its text says `new` for `old`."""
    assert KERNEL.count(old) >= 1
    before, after = parts(KERNEL), parts(KERNEL.replace(old, new, 1))
    names = [field.name for field in dataclasses.fields(Parts)]
    return {name for name in names if getattr(before, name) != getattr(after, name)}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# sha256 of the text below: 0", "# sha256 of the text below: 1"),
        ("C = A @ B", "C = B @ A"),
        ("# Which tile.", "# The tile.\n\n    # Of all."),
        ('"""What it computes."""', '"""Other words."""'),
        ('"""What it returns."""', "'''Other words.'''"),
        ("    # Which tile.\n", ""),
        ('("too large")', "(\n            'too large'\n        )"),
    ],
)
def test_words_change_no_part(old: str, new: str) -> None:
    assert changed(old, new) == set()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("pid = _twice(0)", "pid = _twice(1)", id="a kernel"),
        pytest.param("x / HALF", "x * HALF", id="a function that it calls"),
        pytest.param("HALF = 0.5", "HALF = 0.25", id="a constant that this reads"),
        pytest.param("% 64 == 0", "% 32 == 0", id="a heuristic"),
        pytest.param("import triton.language as tl", "import triton.language.core as tl", id="an import"),
        pytest.param('"enable_fp_fusion": False', '"enable_fp_fusion": True', id="an option of the launch"),
        pytest.param('"a_ptr": desc, "work_ptr": work', '"a_ptr": work, "work_ptr": desc', id="which argument"),
        pytest.param("kernel=gemm_kernel", "kernel=gemm_kernel.fn", id="which kernel is launched"),
        pytest.param("tl.int64 if", "tl.int32 if", id="a constant that a name stands for"),
        pytest.param('(row["BLOCK_M"], 1)', '(row["BLOCK_M"], 2)', id="what a descriptor is made of"),
        pytest.param("list(block)", "list(block[::-1])", id="how a descriptor is made"),
        pytest.param("dtype=torch.float32", "dtype=torch.float16", id="the type of a workspace"),
        pytest.param("a.numel()", "a.numel() - 1", id="what decides on a constant"),
        pytest.param("tl.program_id(0) * STRIP", "tl.program_id(0) + STRIP", id="the second kernel"),
        pytest.param("kernel=sum_kernel", "kernel=gemm_kernel", id="which kernel is launched second"),
        pytest.param('"work_ptr": sums', '"work_ptr": work', id="which argument of the second"),
        pytest.param("dtype=torch.int32", "dtype=torch.int64", id="the type of what the second reads"),
        pytest.param("strip = 16", "strip = 32", id="a constant of the second"),
    ],
)
def test_what_the_compiler_sees_is_device_code(old: str, new: str) -> None:
    found = changed(old, new)
    assert {"device", "timed"} <= found
    # What a launcher's own statement says belongs to both.
    assert found <= {"device", "host", "timed"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param('{"BLOCK_M": 64, "num_warps": 4},\n', '{"BLOCK_M": 64, "num_warps": 8},\n', id="a row"),
        pytest.param('"num_warps": 4},\n', '"num_warps": 4},\n    {"BLOCK_M": 128, "num_warps": 8},\n', id="one more"),
        pytest.param('{"sm80": (0,)}', '{"sm80": (0, 1)}', id="a row that does not fit"),
    ],
)
def test_tables_are_device_code_and_leave_the_times_of_a_row(old: str, new: str) -> None:
    assert changed(old, new) == {"device"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("return CONFIGS[0]", "return CONFIGS[-1]", id="the choice"),
        pytest.param("maxsize=4096", "maxsize=64", id="how many choices are remembered"),
    ],
)
def test_the_choice_is_host_code_and_leaves_the_times_of_a_row(old: str, new: str) -> None:
    assert changed(old, new) == {"host"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("a.dtype != torch.float16", "a.dtype != torch.bfloat16", id="a check"),
        pytest.param('_check("a", a)', '_check("b", a)', id="a call of a check"),
        pytest.param("> LIMIT", ">= LIMIT", id="a limit of sizes"),
        pytest.param("LIMIT = 2**31", "LIMIT = 2**30", id="a constant of the host"),
        pytest.param('"too large"', '"too long"', id="a message"),
        pytest.param("triton.cdiv(M, row", "triton.cdiv(M + 1, row", id="the grid"),
        pytest.param("out = None", "out = a", id="the result"),
        pytest.param('"a_ptr": "a"', '"a_ptr": "out"', id="which operand an argument is of"),
        pytest.param("results={", "parts={}, results={", id="what is made besides"),
        pytest.param("triton.cdiv(M, 16)", "triton.cdiv(M, 8)", id="the grid of the second"),
        pytest.param('"work_ptr": "sums"', '"work_ptr": "a"', id="which operand an argument of the second is of"),
        pytest.param("launch.then.grid]", "launch.grid]", id="how the second is launched"),
        pytest.param("launch = plan(a)\n", "launch = plan(a)\n    a.zero_()\n", id="what is done before the launch"),
        pytest.param("def gemm(a)", "def gemm(a, b=None)", id="a parameter"),
        pytest.param("import functools\n", "import functools\nimport math\n", id="an import"),
        pytest.param("def _check(name, a)", "def unused():\n    pass\n\n\ndef _check(name, a)", id="a function"),
    ],
)
def test_all_else_is_host_code(old: str, new: str) -> None:
    assert changed(old, new) == {"host", "timed"}


def test_every_statement_belongs_to_a_part() -> None:
    """A kernel whose launcher lies in no function, and one without a launch, have their code in the parts as well."""
    alone = "import triton\n\n@triton.jit\ndef f(x):\n    pass\n\nf[(1,)](2)\n"
    assert parts(alone).device != parts(alone.replace("(2)", "(3)")).device
    assert parts(alone).host != parts(alone.replace("(1,)", "(2,)")).host
    direct = "import triton\n\n@triton.jit\ndef f(x):\n    pass\n\ndef gemm(x):\n    y = 2 * x\n    f[(1,)](y)\n"
    assert parts(direct).device != parts(direct.replace("2 * x", "3 * x")).device
    plain = "def f(x):\n    return 1\n"
    assert parts(plain).device == parts("").device
    assert parts(plain).host != parts(plain.replace("1", "2")).host


def test_a_file_that_is_no_python_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    with pytest.raises(OSError):
        of_file(file)
    file.write_text("def gemm(:\n")
    with pytest.raises(SyntaxError):
        of_file(file)


def test_rendered_kernels_have_device_and_host_code_of_their_own() -> None:
    family = read(GENERATED / "ladder")
    found = {name: of_file(family.file(name)) for name in family.by_name}
    assert len(found) == 4 and parts("").device not in {each.device for each in found.values()}
    assert len({each.device for each in found.values()}) == 4
