"""Names: their grammar, the examples of the language, and that no two kernels share one."""

from __future__ import annotations

import itertools
import re

import pytest
from support import BASE, SPECS, family_of

from generator.epilogue import OPERATIONS, PLANNED, Epilogue
from generator.expand import expand
from generator.model import Dtype, Layout, Variant
from generator.spec import read
from generator.vocabulary import ACCUMULATORS, DTYPE_SHORTHANDS, ELEMENTS, IMPLEMENTATION_AXES, PRECISIONS, WORDS

GRAMMAR = re.compile(
    r"(gemm|bmm)_[a-z0-9_]+_[rcs]{3}_[a-z0-9_]+__[a-z0-9]+_[a-z0-9]+_[a-z0-9]+_[a-z0-9]+(_store[a-z]+)?(_product[a-z]+)?"
)


def every_dtype() -> list[Dtype]:
    """Every combination of types that a mapping could ever mean, built or not."""
    found = []
    for a, b in itertools.product(ACCUMULATORS, ACCUMULATORS):
        for acc in dict.fromkeys((*ACCUMULATORS[a], *ACCUMULATORS[b])):
            for out, precision in itertools.product(ELEMENTS, PRECISIONS.get(a, (None,))):
                found.append(Dtype(a, b, acc, out, precision))
    return found


def test_a_type_is_written_in_one_way() -> None:
    dtypes = every_dtype()
    assert len(dtypes) > 500 and len({dtype.word for dtype in dtypes}) == len(dtypes)


@pytest.mark.parametrize(
    ("dtype", "word"),
    [
        *((Dtype.of(shorthand), shorthand) for shorthand in DTYPE_SHORTHANDS),
        (Dtype("fp16", "fp16", "fp32", "fp32", None), "fp16_fp32_fp32"),
        (Dtype("fp16", "fp16", "fp16", "fp16", None), "fp16_fp16_fp16"),
        (Dtype("fp16", "bf16", "fp32", "bf16", None), "fp16xbf16_fp32_bf16"),
        (Dtype("fp32", "fp32", "fp32", "fp16", "ieee"), "fp32_fp32_fp16"),
        (Dtype("fp32", "fp32", "fp32", "fp16", "tf32"), "fp32_fp32_fp16_tf32"),
        (Dtype("fp8e4m3", "fp8e4m3", "fp32", "bf16", "fast"), "fp8e4m3_fp32_bf16_fast"),
        (Dtype("fp8e4m3", "fp8e5m2", "fp32", "fp16", "full"), "fp8e4m3xfp8e5m2_fp32_fp16"),
    ],
)
def test_dtype_word(dtype: Dtype, word: str) -> None:
    assert dtype.word == word


def test_no_two_variants_share_a_name() -> None:
    # All words of every axis, those still to come included; chains that could be read in two ways among the epilogues.
    chains = [(), *((name,) for name in OPERATIONS), *itertools.product(OPERATIONS, repeat=2)]
    chains += [("bias", "bias_m", "bias"), ("bias", "bias", "bias_m"), ("gelu", "tanh"), ("gelu_tanh",)]
    epilogues = list({epilogue.word: epilogue for epilogue in map(Epilogue.of, chains)}.values())
    layouts = [Layout.of("".join(letters)) for letters in itertools.product("rcs", repeat=3)]
    how = list(itertools.product(*(WORDS[axis] for axis in IMPLEMENTATION_AXES)))
    base = (Layout.of("rcr"), Dtype.of("fp16"), "none", Epilogue())
    # A name is `contract__how`: that each half is injective and `__` is nowhere else makes the whole injective.
    contracts = [
        Variant(layout, d, b, e, *how[0])
        for layout, d, b in itertools.product(layouts, every_dtype(), WORDS["batch"])
        for e in epilogues[:12]
    ]
    contracts += [Variant(layout, Dtype.of("fp16"), "none", e, *how[0]) for layout in layouts for e in epilogues]
    contracts = list(dict.fromkeys(contracts))
    implementations = [Variant(*base, *words) for words in how]
    assert len({v.contract for v in contracts}) == len(contracts) > 100_000
    assert len({v.name for v in implementations}) == len(implementations) > 1_000
    assert all(v.name.count("__") == 1 for v in implementations)
    assert not any("__" in v.contract for v in contracts)
    assert all(GRAMMAR.fullmatch(v.name) for v in (*contracts[::97], *implementations))


def test_operations_stay_apart_when_their_underscores_fall() -> None:
    written = [name.replace("_", "") for name in (*OPERATIONS, *PLANNED)]
    assert len(set(written)) == len(written)


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (
            "epilogue: bias+gelu_tanh\nmasking: mnk\nswizzle: grouped_n",
            "gemm_fp16_rcr_bias_gelutanh__tiled_pointer_mnk_groupedn",
        ),
        ("epilogue: bias+gelu+tanh", "gemm_fp16_rcr_bias_gelu_tanh__tiled_pointer_auto_grouped"),
        ("load: block_pointer\nmasking: none", "gemm_fp16_rcr_none__tiled_blockpointer_none_grouped"),
        ("load: block_pointer\nstore: pointer", "gemm_fp16_rcr_none__tiled_blockpointer_auto_grouped_storepointer"),
        ("product: exchanged", "gemm_fp16_rcr_none__tiled_pointer_auto_grouped_productexchanged"),
        (
            "load: descriptor\nstore: pointer\nproduct: exchanged\ntargets: [sm90]",
            "gemm_fp16_rcr_none__tiled_descriptor_auto_grouped_storepointer_productexchanged",
        ),
        ("product: direct", "gemm_fp16_rcr_none__tiled_pointer_auto_grouped"),
        ("schedule: elementwise\nswizzle: swizzle2d", "gemm_fp16_rcr_none__elementwise_pointer_auto_swizzle2d"),
        ("epilogue: [[bias_m, relu]]", "gemm_fp16_rcr_biasm_relu__tiled_pointer_auto_grouped"),
        ("batch: strided\nepilogue: bias", "bmm_fp16_rcr_bias__tiled_pointer_auto_grouped"),
    ],
)
def test_examples(spec: str, name: str) -> None:
    assert [kernel.name for kernel in family_of(f"{BASE}{spec}\n").kernels] == [name]


def test_the_example_of_the_language() -> None:
    v = Variant(
        Layout.of("rcr"),
        Dtype.of("fp16"),
        "none",
        Epilogue.of(("bias", "gelu_tanh")),
        "mnk",
        "grouped_n",
        "split_k",
        "pointer",
        "as_load",
    )
    assert v.name + ".py" == "gemm_fp16_rcr_bias_gelutanh__splitk_pointer_mnk_groupedn.py"
    assert v.contract == "gemm_fp16_rcr_bias_gelutanh"


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_shipped_names(path) -> None:
    names = [kernel.name for kernel in expand(read(path)).kernels]
    assert len(set(names)) == len(names)
    assert all(GRAMMAR.fullmatch(name) and len(name) < 200 for name in names)
