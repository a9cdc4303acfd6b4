"""Rendering a large product of axes parses no kernel."""

import ast
from unittest.mock import Mock

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


def product(**axes):
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
