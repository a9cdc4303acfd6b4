"""Each built-in operation on every value of fp16 and bf16, against its formula and against torch's own function."""

import pytest

from generator.language.built_in import OPERATIONS
from tests.helpers.verify.operation_values import WITNESSES, WRITTEN, every_value

DTYPES = {"fp16": "{a: fp16, out: fp32}", "bf16": "{a: bf16, out: fp32}"}


SPEC = (
    "summary: Every operation.\nlayout: rrr\nmasking: mnk\nselect: fixed\n"
    f"dtype: [{', '.join(DTYPES.values())}]\nepilogue: [{', '.join(WRITTEN.values())}]\n"
    "tile: [{m: 64, n: 64, k: 64, warps: 4}]\n"
)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("word", WITNESSES)
def test_every_value(word, dtype, family, interpreted):
    (kernel,) = (k for k in family.kernels if k.variant.epilogue.word == word and k.variant.dtype.a == dtype)
    assert interpreted(every_value, family.folder, kernel.name) == []


def test_every_operation_has_a_witness():
    assert {word.partition("(")[0] for word in WITNESSES} == set(OPERATIONS)
