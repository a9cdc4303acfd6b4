"""Names that libraries and people give types, operations and keys, each with what this language has for it.

A similar word may mean something else: `swish` is no `hardswish`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from generator.language.dtypes import WEIGHTS
from generator.language.elements import ELEMENTS, FORMATS
from generator.language.errors import nearest
from generator.language.keys import DTYPE_KEYS, KEYS, OPERATION_KEYS, TILE_KEYS, Key


def spelled(text: str) -> str:
    """A name without what spellings differ in: capitals, underscores, and the module in front of it."""
    return text.strip().rpartition(".")[2].lower().replace("_", "").replace("-", "")


def _by_name(table: Mapping[str, str]) -> dict[str, str]:
    """Each word of a table by the names that stand behind it."""
    return {spelled(name): word for word, names in table.items() for name in names.split()}


#: What is written often, and is no library's name of exactly this type, by the project's word.
_OFTEN = {
    "fp16": "half f16",
    "bf16": "bfloat brain",
    "fp32": "float single f32 ieee",
    "tf32": "tfloat32 tensorfloat32",
    "fp8e4m3": "e4m3 e4m3fn fp8e4m3fn float8e4m3 fp8 float8",
    "fp8e5m2": "e5m2 float8e5m2",
    "int8": "i8 s8 char",
    "uint8": "u8",
    "int4": "i4 s4",
    "uint4": "u4",
    "int32": "i32 s32 int",
    "mxfp8e4m3": "mxfp8",
    "nvfp4": "nvf4",
}
_WORDS = _by_name(_OFTEN)
# Several types have the name of what contains them, which the first of them is.
_NAMED = {
    name.lower().replace("_", ""): word
    for word, element in reversed(list(ELEMENTS.items()))
    for name in (element.triton, element.torch)
}
#: The names of types that others have, which are no misspelt names of this language's.
_FOREIGN = re.compile(
    r"(u?int|[uisf]|fp|float|bf|bfloat)([1-8]|16|32|64|128)(x\d+)?(e\d.*|b\d.*|fn.*|nv.*|x\d+)?|e\d+m\d.*|nf\d|(mx|nv)(fp|int)?\d.*"
    r"|i?q\d.*|complex\d*|[cz]?double|long|u?short|byte|uchar|bool|ternary"
)


def type_of(text: str) -> str | None:
    """The word for a type of another name, such as `float16`, `torch.half` or `E4M3`; None if it is no type's."""
    word = spelled(text)
    own = word if word in (*ELEMENTS, *FORMATS, "tf32", "tf32x3") else None
    return _WORDS.get(word) or own or _NAMED.get(word)


def nearest_type(word: str, legal: Iterable[str]) -> str:
    """The end of a message about a type that is not legal: the same one by this language's name, or one misspelt.

    A known type gets no suggestion of another, which holds other numbers.
    """
    words, meant = list(legal), type_of(word)
    if meant in words or not (meant or _FOREIGN.fullmatch(spelled(word))):
        return nearest(word, words, meant)
    hint = "that type is not available here"
    if meant in ("tf32", "tf32x3") and "fp32" in words:
        hint = f"write fp32, and 'precision: {meant}'"
    return f"{hint}; legal: {', '.join(words)}"


def mapping_of(word: str) -> str | None:
    """The mapping of `dtype` that has an operand of a type, for one that is no shorthand; None for other types."""
    if word in FORMATS:
        return f"{{a: {word}, b: {word}}}"
    if word in WEIGHTS:
        return f"{{a: bf16, b: {word}, scales: {{b: [128, 1]}}}}"
    return None


#: What computes the same as a built-in operation, or as one with parameters, by what a chain has for it.
_SAME = {
    "none": "linear identity",
    "bias": "add_bias bias_add",
    "scale_n": "scale_col scale_cols",
    "scale_m": "scale_row scale_rows",
    "add": "residual plus add_residual residual_add",
    "mul": "multiply",
    "relu2": "square_relu squared_relu relu_squared",
    "leaky_relu": "lrelu",
    "gelu": "gelu_erf gelu_exact exact_gelu gelu_python gelu_none",
    "gelu_tanh": "fast_gelu gelu_fast gelu_new gelu_approx gelu_accurate gelu_pytorch_tanh gelu_taylor tanh_gelu",
    "quick_gelu": "gelu_quick gelu_sigmoid sigmoid_gelu",
    "silu": "swish",
    "sigmoid": "logistic",
    "hardswish": "hard_silu",
    "swiglu": "silu_and_mul silu_mul",
    "geglu": "gelu_and_mul",
    "geglu_tanh": "gelu_tanh_and_mul",
    "reglu": "relu_and_mul",
    "{clamp: {min: 0, max: 6}}": "relu6",
    "{clamp: {min: -1, max: 1}}": "hard_tanh",
    "clamp": "clip",
    "save": "aux",
    "grad(relu)": "drelu",
    "quantize": "quantise quant",
}
#: What is no built-in operation, with the entry of `ops` that computes it. They are those of torch and of `jax.nn`.
_DEFINED = {
    "elu": '{formula: "where(x > 0, x, alpha * (exp(min(x, 0)) - 1))", scalars: {alpha: 1}}',
    "celu": '{formula: "where(x > 0, x, alpha * (exp(min(x, 0) / alpha) - 1))", scalars: {alpha: 1}}',
    "selu": '{formula: "1.0507009873554805 * where(x > 0, x, 1.6732632423543772 * (exp(min(x, 0)) - 1))"}',
    "prelu": '{formula: "where(x > 0, x, slope * x)", operands: {slope: [N]}}',
    "mish": '{formula: "x * tanh(softplus(x))"}',
    "hard_sigmoid": '{formula: "min(max(x + 3, 0), 6) / 6"}',
    "log_sigmoid": '{formula: "-softplus(-x)"}',
    "softcap": '{formula: "cap * tanh(x / cap)", scalars: {cap: 30}}',
    "softsign": '{formula: "x / (1 + abs(x))"}',
    "soft_shrink": '{formula: "x - min(max(x, -cut), cut)", scalars: {cut: 0.5}}',
    "hard_shrink": '{formula: "where(abs(x) > cut, x, 0)", scalars: {cut: 0.5}}',
    "tanh_shrink": '{formula: "x - tanh(x)"}',
    "threshold": '{formula: "where(x > limit, x, value)", scalars: {limit: 0, value: 0}}',
    "squareplus": '{formula: "(x + sqrt(x * x + b)) / 2", scalars: {b: 4}}',
    "glu": '{formula: "gate * sigmoid(x)"}',
    "exp": '{formula: "exp(x)"}',
    "log": '{formula: "log(x)"}',
    "abs": '{formula: "abs(x)"}',
    "sqrt": '{formula: "sqrt(x)"}',
    "square": '{formula: "x * x"}',
    "neg": '{formula: "-x"}',
    "sub": '{formula: "x - sub", operands: {sub: [M, N]}}',
    "div": '{formula: "x / div", operands: {div: [M, N]}}',
}
_MORE = {"logit_cap": "softcap", "logits_soft_cap": "softcap", "tanh_softcap": "softcap", "subtract": "sub"}
#: Outputs that older versions had.
_REMOVED = {spelled(name) for name in ("a_sum", "b_sum")}
#: What needs a whole row before it computes an element.
_OF_ROWS = "softmax log_softmax softmin layer_norm rms_norm group_norm batch_norm normalize"

_WRITTEN = _by_name(_SAME)
_ENTRIES = {spelled(name): _DEFINED[of] for name, of in ({x: x for x in _DEFINED} | _MORE).items()}
_ROWS = set(map(spelled, _OF_ROWS.split()))


def nearest_operation(written: str, operations: Iterable[str]) -> str:
    """The end of a message about an unknown operation: what computes it, by its meaning, and the legal words."""
    words, key = ["none", *operations], spelled(written)
    own = _WRITTEN.get(key) or next((word for word in words if spelled(word) == key), None)
    legal = f"legal: {', '.join(words)}, or define it under ops"
    if own is not None:
        return f"did you mean {own!r}? {legal}" if own in words else f"write [[{own}]]; {legal}"
    if key in _ENTRIES:
        name = written.strip().rpartition(".")[2].lower().replace("-", "_")
        return f"define it under ops, as in ops: {{{name}: {_ENTRIES[key]}}}; legal: {', '.join(words)}"
    if key in _REMOVED:
        return f"sums along K are torch's, beside the product, where they are faster; legal: {', '.join(words)}"
    if key in _ROWS:
        return f"it needs whole rows, and a chain computes each element from its own; legal: {', '.join(words)}"
    return f"{nearest(written, words)}, or define it under ops"


#: Keys that others have, by this language's word.
_KEYS = _by_name(
    {
        **{x: f"block_{x} block_size_{x} tile_{x}" for x in "mnk"},
        "group": "group_m group_size_m",
        "split": "split_k",
        "warps": "num_warps",
        "stages": "num_stages",
        "ctas": "num_ctas",
        "chiplets": "num_chiplets num_xcds",
        "scales": "group_size block_size",
        "zeros": "zero_point zero_points",
        "acc": "accumulator acc_dtype accumulator_dtype",
        "out": "out_dtype output_dtype c_dtype",
        "epilogue": "activation act bias quantize",
        "tile": "configs",
    }
)
_MAPPINGS: Mapping[str, tuple[Mapping[str, Key], str]] = {
    "the spec": (KEYS, "{}"),
    "dtype": (DTYPE_KEYS, "dtype: {{a: …, {}}}"),
    "an entry of tile": (TILE_KEYS, "tile: [{{m: …, {}}}]"),
    "an entry of ops": (OPERATION_KEYS, "ops: {{name: {{{}}}}}"),
}


def nearest_key(given: str, legal: Iterable[str]) -> str:
    """The end of a message about an unknown key: what it is called here, or to which mapping it belongs."""
    words = list(legal)
    word = given if given in words else _KEYS.get(spelled(given), given)
    section = next((section for section, (keys, _) in _MAPPINGS.items() if word in keys), None)
    if word in words or section is None:
        return nearest(given, words, word)
    keys, form = _MAPPINGS[section]
    shown = ", ".join(f"{word}: {json.dumps(example)}" for example in keys[word].examples[:1]) or f"{word}: …"
    hint = "" if word == given else f"did you mean {word!r}? "
    return f"{hint}it is a key of {section}, as in {form.format(shown)}; legal: {', '.join(words)}"
