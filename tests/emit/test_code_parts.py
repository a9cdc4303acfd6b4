"""The parts of a kernel's file and digests by meaning: what changes which, and that words change none."""

import ast
import dataclasses
import sys

import pytest

from generator.emit.code_parts import Parts, parts
from generator.emit.syntax_digest import digest_of, written

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
        ("# Which tile.", "# The tile.\n\n    # Of all."),
        ('"""What it computes."""', '"""Other words."""'),
        ('(a, "descriptors need more", least=(9, 0))', '(\n            a, "need less", least=(9, 0)\n        )'),
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
        pytest.param("(cdiv(M, BLOCK_M),)", "(cdiv(M, 64),)", id="the grid"),
        pytest.param("Launch(gemm_tile_sum,", "Launch(gemm_tile,", id="which kernel is launched second"),
        pytest.param("configured=False", "configured=True", id="whether the second has the configuration"),
        pytest.param('"a", "M K"', '"a", "K M"', id="a shape"),
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
        pytest.param("least=(9, 0)", "least=(8, 0)", id="which devices"),
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


def digest(text):
    return digest_of([written(ast.parse(text))])


#: Every type of node that is known.
EVERYTHING = '''\
"""Words."""
from __future__ import annotations
import a.b as c, d
from .e import f as g, h
i: int = 1
(j): "k"
l = m, *n = [1, 2.5, 1e400, 3j, -0.0, 0xFFFFFFFFFFFFFFFFFFFF, True, None, ..., "\\u00e4\\ud800\\n'", b"\\x00\\xff"]
i += 1; i -= 1; i *= 1; i @= 1; i /= 1; i //= 1; i %= 1; i **= 1; i <<= 1; i >>= 1; i |= 1; i ^= 1; i &= 1
del l, m[0]
assert not i, ~i + +i
@d.x
class O(h, metaclass=c):
    """Words."""
    p = {"q": 1, **d, None: {2, 3}}
    async def r(self, s, t=1, /, u: int = 2, *v, w, x=None, **y) -> int:
        """Words."""
        global z
        async for aa, ab in s: await ab
        else: continue_ = yield
        async with s as ac, t: return [ad async for ad in u if ad if not ad]
def ae():
    af = 1
    def ag():
        nonlocal af
        yield from {ah: ai for ah, ai in af}
    for aj in {ak for ak in (al for al in af)}:
        if aj < 1 <= 2 == 3 != 4 > 5 >= 6 is 7 is not 8 in 9 not in 10: break
        elif aj and 1 or 2: continue
        else: pass
    while (am := af[1:2, ::3, ...]): raise ValueError(f"{am}{{}}{am!r:>{af}.2f}" "an" f"{am=}") from None
    else:
        with af: return
    try: print(*af, an=1, **af)
    except (TypeError, ValueError) as ao: lambda ap, *, aq=1: ap if aq else -ap
    except KeyError: ...
    else: pass
    finally: pass
    match af:
        case 1 | "2" | None | True: pass
        case [ar, *at] if ar: pass
        case {"au": av, **aw}: pass
        case O(1, ax=ay.az) as ba: pass
        case _: pass
'''


@pytest.mark.parametrize(
    "texts",
    [
        ("a + b", "b + a", "a - b", "b - a", "a + b * c", "(a + b) * c", "a is b", "a == b"),
        ("f(1)", "f(1.0)", "f(True)", "f(1j)", "f('1')", "f(a=1)", "f(0.0)", "f(-0.0)", "f(0.1)", "f(0.1000000001)"),
        ("f('a')", "f(b'a')", "f(a)", "f('a ')", "f(a=a)", "f(*a)", "f('None')", "f(None)", "f(...)", "f('...')"),
        ("a", "b", "a.b", "a.c", "[a]", "(a,)", "{None: a}", "{**a}", "x: int", "x: int = None"),
        ("f(a=1, b=2)", "f(b=2, a=1)", "f(a=1, **b)", "f(**b, a=1)", "f(a, b)", "f((a, b))"),
        ("def f(*, a): pass", "def f(*, a=None): pass", "def f(a: int): pass", "def f(a: float): pass"),
        ("def f(a, b): pass", "def f(a, /, b): pass", "def f(a, *, b): pass"),
        ("@x\n@y\ndef f(): pass", "@y\n@x\ndef f(): pass"),
        ("def f(): return 1", "async def f(): return 1"),
        ("def f():\n    global a", "def f():\n    nonlocal a"),
        # A string that is no docstring.
        ("def f():\n    x\n    'a'", "def f():\n    x"),
        ("lambda a: b", "lambda b: b"),
        ("a[1:2]", "a[1, 2]", "a[None:]", "a[:]", "a < b < c", "a < b and b < c"),
        ("a = b = 1", "b = a = 1", "a += 1", "a = a + 1"),
        ("if a: b\nelse: c", "if a: c\nelse: b", "if a: b\nc", "if a:\n    b\n    c"),
        ("for a in b: c", "for a in b: c\nelse: c", "with a as b: c", "with a: c", "raise a", "raise a from b"),
        ("import a as b", "import a", "from . import a", "from .. import a"),
        ("f'{a}'", "f'{a!r}'", "f'{a:>4}'", "f'{a}b'", "f'b{a}'", "f'{{a}}'", "f'{a=}'"),
        ("[a for a in b if c]", "[a for a in b]", "{a for a in b}", "(a for a in b)"),
        ("match a:\n    case [b, *c]: d", "match a:\n    case [b, c]: d"),
        ("match a:\n    case None: d", "match a:\n    case _: d"),
    ],
)
def test_what_differs_in_meaning_differs(texts):
    assert len(set(map(digest, texts))) == len(texts)


@pytest.mark.parametrize(
    "texts",
    [
        ("a = 1", "# Why.\na = 1  # What.\n\n\n", "'''Of a module.'''\na = (1)"),
        ("f('ab')", 'f("ab")', "f('a' 'b')", 'f(\n    """ab""",\n)', r"f('\x61b')", "f(u'ab')", "f(f'ab')"),
        ("a = b + c", "a = ((b) + (c))", "a = b \\\n    + c"),
        ("f(16, 0.5, 1e3)", "f(0x10, .5, 1_000.0)"),
        ("a = 1; b = 2", "a = 1\nb = 2"),
        ("if a: b\nelif c: d", "if a:\n  b\nelse:\n  if c:\n    d"),
        ("def f():\n    '''One.'''\n    a", "def f():\n    '''Other.'''\n    a", "def f(): a"),
        ("async def f():\n    '''One.'''\n    a", "async def f():\n    a"),
        ("class C:\n    '''One.'''\n    a = 1", "class C:\n    a = 1"),
        ("f(f'a{b}' 'c')", "f(f'a{b}c')", "f(f'a{b:}c')"),
        ("f(f'a{b:>{c}}')", 'f(f"a{b:>{c}}")'),
        ("def f(a,): pass", "def f(a): pass"),
        ("a[(1, 2)]", "a[1, 2]"),
    ],
)
def test_what_means_the_same_does_not(texts):
    assert len(set(map(digest, texts))) == 1


def test_a_node_and_a_field_that_are_not_known_are_refused():
    class Return(ast.Return):
        _fields = (*ast.Return._fields, "later")

    empty = Return(value=None)
    empty.later = []
    assert written(empty) == written(ast.Return(value=None))
    empty.later = [ast.Pass()]
    with pytest.raises(ValueError, match=r"does not support the field Return\.later"):
        written(empty)

    class Strange(ast.expr):
        _fields = ("value",)

    with pytest.raises(ValueError, match="does not support nodes of type Strange"):
        written(ast.Expr(Strange(value=ast.Name("a", ast.Load()))))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="before Python 3.12 there is no such syntax to refuse")
def test_syntax_that_the_oldest_python_does_not_know_is_refused():
    with pytest.raises(ValueError, match=r"does not support the field .*type_params"):
        digest("def f[T](a: T): pass")


def test_a_sample_is_written_as_it_was():
    """In every version of Python: records stand as long as their digests do."""
    call = '(Call (Name "f") [ <int 0x1>] [ (keyword "b" <float 0x1.0000000000000p-1>)])'
    assert written(ast.parse("a = f(1, b=.5)")) == f'(Module [ (Assign [ (Name "a")] {call})])'
    assert digest(EVERYTHING) == "c176e366b0ed3625911827b9ee2e7d61"
