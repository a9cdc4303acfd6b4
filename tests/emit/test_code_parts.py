"""The parts of a kernel's file: what changes which, and that words change none."""

import dataclasses

import pytest

from generator.emit.code_parts import Parts, parts

KERNEL = '''\
# sha256 of the text below: 0
"""C = A @ B"""

import triton
import triton.language as tl
from torch import Tensor

from ._runtime.call import Call, Launch, Operand, at_most, capability, cdiv, cheapest, first, index_type, multiple
from ._shared_memory import needs_of

CONFIGS = [
    {"BLOCK_M": 64, "num_warps": 4},
]
# Rows that do not fit into the shared memory of a device, by index.
TOO_LARGE = {"sm80": (0,)}
HALF = 0.5


@triton.heuristics({"EVEN_M": lambda args: args["M"] % 64 == 0})
@triton.jit
def gemm_tile(a_ptr, work_ptr, M, INDEX: "tl.constexpr", BLOCK_M: "tl.constexpr", EVEN_M: "tl.constexpr"):
    """What it computes."""
    # Which tile.
    pid = _twice(0)


@triton.jit
def _twice(x):
    return x / HALF


@triton.jit
def gemm_tile_sum(work_ptr, M, INDEX: "tl.constexpr"):
    at = tl.program_id(0)


def cost(row, M, N, K, multiprocessors, shared):
    return M * row["BLOCK_M"]


CALL = Call(
    CONFIGS,
    operands=(Operand("a", "M K", torch.float16, unit=1),),
    results=(Operand("out", "M N", torch.float16, unit=1),),
    launches=(
        Launch(
            gemm_tile,
            grid=lambda M, BLOCK_M, **_: (cdiv(M, BLOCK_M),),
            arguments=lambda a, sums, M, **_: {
                "a_ptr": a, "lda": a.stride(0), "INDEX": index_type(a), "enable_fp_fusion": False
            },
        ),
        Launch(gemm_tile_sum, lambda M, **_: (M,), lambda sums, **_: {"work_ptr": sums}, configured=False),
    ),
    choose=cheapest(cost),
    refuse=lambda a, M, N, **_: first(
        capability(a, "descriptors need more", least=(9, 0)), at_most(M * N, 2**31 - 1, "a grid has")
    ),
    fits=lambda M, BLOCK_M, **_: first(multiple(M, BLOCK_M, "M has")),
    needs=needs_of(__name__),
    too_large=TOO_LARGE,
    memory=(Memory("sums", "M N", torch.float32),),
)


def gemm(a: Tensor, *, out: Tensor | None = None, config: Config = None) -> Tensor:
    """What it returns."""
    return CALL(config, a=a, out=out)
'''


def changed(old, new):
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
        ('(a, "descriptors need more", least=(9, 0))', '(\n            a, "need less", least=(9, 0)\n        )'),
        ('"a grid has"', '"a grid may have"'),
        ("from ._runtime.call import Call", "from ._runtime.calls import Call"),
        ("M * row", "N * row"),
        ("    choose=cheapest(cost),\n", ""),
    ],
)
def test_words_and_the_choice_change_no_part(old, new):
    assert changed(old, new) == set()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("pid = _twice(0)", "pid = _twice(1)", id="a kernel"),
        pytest.param("x / HALF", "x * HALF", id="a function that it calls"),
        pytest.param("HALF = 0.5", "HALF = 0.25", id="a constant that this reads"),
        pytest.param("% 64 == 0", "% 32 == 0", id="a heuristic"),
        pytest.param("import triton.language as tl", "import triton.language.core as tl", id="an import"),
        pytest.param("at = tl.program_id(0)", "at = tl.program_id(1)", id="the second kernel"),
        pytest.param('"enable_fp_fusion": False', '"enable_fp_fusion": True', id="an option of the launch"),
        pytest.param('"a_ptr": a', '"a_ptr": sums', id="which argument"),
        pytest.param("a.stride(0)", "a.stride(1)", id="which stride"),
        pytest.param("(cdiv(M, BLOCK_M),)", "(cdiv(M, 64),)", id="the grid"),
        pytest.param("Launch(gemm_tile_sum,", "Launch(gemm_tile,", id="which kernel is launched second"),
        pytest.param("configured=False", "configured=True", id="whether the second has the configuration"),
        pytest.param('"a", "M K"', '"a", "K M"', id="a shape"),
        pytest.param("unit=1", "unit=0", id="a layout"),
        pytest.param('"sums", "M N"', '"sums", "N M"', id="the shape of memory"),
    ],
)
def test_kernels_and_what_a_call_launches_are_device_code(old, new):
    assert changed(old, new) == {"device", "timed"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param('{"BLOCK_M": 64, "num_warps": 4},\n', '{"BLOCK_M": 64, "num_warps": 8},\n', id="a row"),
        pytest.param('"num_warps": 4},\n', '"num_warps": 4},\n    {"BLOCK_M": 128, "num_warps": 8},\n', id="one more"),
        pytest.param('{"sm80": (0,)}', '{"sm80": (0, 1)}', id="a row that does not fit"),
    ],
)
def test_tables_are_device_code_and_leave_the_times_of_a_row(old, new):
    assert changed(old, new) == {"device"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param('first(multiple(M, BLOCK_M, "M has"))', "None", id="which configurations are legal"),
        pytest.param("too_large=TOO_LARGE", "too_large={}", id="which configurations a device holds"),
        pytest.param("least=(9, 0)", "least=(8, 0)", id="which devices"),
        pytest.param("2**31 - 1", "2**31", id="a limit"),
        pytest.param("out=out)", "out=None)", id="what is passed on"),
        pytest.param("return CALL", "a.zero_()\n    return CALL", id="what is done before"),
        pytest.param("def gemm(a: Tensor, *", "def gemm(a: Tensor, b=None, *", id="a parameter"),
        pytest.param("def cost(", "def unused():\n    pass\n\n\ndef cost(", id="a function"),
    ],
)
def test_all_else_is_host_code(old, new):
    assert changed(old, new) == {"host"}


def test_a_file_without_a_call_has_its_statements_in_a_part():
    plain = "def f(x):\n    return 1\n"
    assert parts(plain).device == parts("").device
    assert parts(plain).host != parts(plain.replace("1", "2")).host


def test_the_names_of_kernels_do_not_count():
    """Records are of files whose kernels were named by what they do."""
    other = KERNEL.replace("gemm_tile", "gemm_other_tile")
    assert other != KERNEL and parts(other) == parts(KERNEL)
    assert parts(KERNEL.replace("            gemm_tile,\n", "            gemm_tile_sum,\n")) != parts(KERNEL)
