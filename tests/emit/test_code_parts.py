"""The parts of a kernel's file and digests by meaning: what changes which, and that words change none."""

import ast
import dataclasses
import sys

import pytest

from generator.emit.code_parts import Parts, parts
from generator.emit.syntax_digest import digest_of, written
from tests.helpers.support import GENERATED

NAME = "gemm_fp16_rcr_bias_silu__splitk_descriptor_auto_grouped"
SHIPPED = (GENERATED / "split_k" / f"{NAME}.py").read_text(encoding="utf-8")
#: A kernel with what this one lacks: a docstring, a constant, rows and sizes that do not fit, an option of the launch.
KERNEL = (
    SHIPPED.replace("CONFIGS = [", 'TOO_LARGE = {"sm80": (0,)}\nHALF = 0.5\nCONFIGS = [')
    .replace("        y = 1 / x", "        y = 1 / x / HALF")
    .replace("    # Which tile: bands", '    """What it computes."""\n    # Which tile: bands')
    .replace('"N": N,', '"N": N, "enable_fp_fusion": False,', 1)
    .replace(
        "    needs=",
        "    too_large=TOO_LARGE,\n    fits=lambda M, BLOCK_M, **_: first(multiple(M, BLOCK_M)),\n    needs=",
    )
)
#: The parts that change, and the text that another one takes the place of.
CHANGES = [
    # Words, and the choice of a configuration.
    ("", "# sha256 of the text below: ", "# sha256 of the text below: 1"),
    ("", "# Which tile:", "# The tile.\n\n    # Of all."),
    ("", '"""What it computes."""', '"""Other words."""'),
    ("", '(a, "descriptors need an NVIDIA GPU from sm90 on", least=(9, 0))', '(\n a, "need less", least=(9, 0)\n )'),
    ("", "from ._runtime.call import Call", "from ._runtime.calls import Call"),
    ("", "parts * M * N * 512", "parts * N * N * 512"),
    ("", "    choose=cheapest(cost),\n", ""),
    # Kernels, functions and constants that they reach, and what a call launches.
    ("device timed", "first = part * share", "first = part"),
    ("device timed", "1 / x / HALF", "1 / x * HALF"),
    ("device timed", "HALF = 0.5", "HALF = 0.25"),
    ("device timed", "@triton.jit\ndef gemm_", "@triton.heuristics({})\n@triton.jit\ndef gemm_"),
    ("device timed", "import triton.language as tl", "import triton.language.core as tl"),
    ("device timed", "acc += tl.load(", "acc -= tl.load("),
    ("device timed", '"enable_fp_fusion": False', '"enable_fp_fusion": True'),
    ("device timed", '"sums_ptr": sums', '"sums_ptr": a'),
    ("device timed", "(cdiv(M, 16) *", "(cdiv(M, 64) *"),
    ("device timed", f"            {NAME}_sum,", f"            {NAME},"),
    ("device timed", "configured=False", "configured=True"),
    ("device timed", '"a", "M K"', '"a", "K M"'),
    ("device timed", '"sums", "SPLIT M N"', '"sums", "M N SPLIT"'),
    # Tables, which leave the times of a row.
    ("device", '"SPLIT": 2, "num_warps": 4', '"SPLIT": 2, "num_warps": 8'),
    ("device", "CONFIGS = [\n", 'CONFIGS = [\n    {"BLOCK_M": 128, "num_warps": 8},\n'),
    ("device", '{"sm80": (0,)}', '{"sm80": (0, 1)}'),
    # Which configurations are legal, on which devices, and what a call does besides.
    ("host", "first(multiple(M, BLOCK_M))", "None"),
    ("host", "least=(9, 0)", "least=(8, 0)"),
    ("host", "out=out)", "out=None)"),
    ("host", "return CALL", "a.zero_()\n    return CALL"),
    ("host", "b: Tensor, *, bias", "b: Tensor, c=None, *, bias"),
    ("host", "def cost(", "def unused():\n    pass\n\n\ndef cost("),
]


@pytest.mark.parametrize(("changed", "old", "new"), CHANGES)
def test_what_changes_which_part(changed, old, new):
    assert KERNEL.count(old) >= 1
    before, after = parts(KERNEL), parts(KERNEL.replace(old, new, 1))
    names = [field.name for field in dataclasses.fields(Parts)]
    assert [name for name in names if getattr(before, name) != getattr(after, name)] == changed.split()


def test_a_file_without_a_call_has_its_statements_in_a_part():
    plain = "def f(x):\n    return 1\n"
    assert parts(plain).device == parts("").device
    assert parts(plain).host != parts(plain.replace("1", "2")).host


def test_the_names_of_kernels_do_not_count():
    """Records are of files whose kernels were named by what they do."""
    assert parts(KERNEL.replace(NAME, f"{NAME}_other")) == parts(KERNEL)


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
        ("@x\n@y\ndef f(): pass", "@y\n@x\ndef f(): pass"),
        ("def f(): return 1", "async def f(): return 1"),
        # A string that is no docstring.
        ("def f():\n    x\n    'a'", "def f():\n    x"),
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
        ("def f(a,): pass", "def f(a): pass"),
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
