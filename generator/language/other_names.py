"""Names that libraries and people give operations and keys, each with what this language has for it.

Those of types are in `type_names`. A similar word may compute something else: `swish` is no `hardswish`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from generator.language.errors import nearest
from generator.language.keys import DTYPE_KEYS, KEYS, OPERATION_KEYS, TILE_KEYS, Key
from generator.language.type_names import spelled

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


_WRITTEN = {spelled(name): word for word, names in _SAME.items() for name in names.split()}
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
_KEYS = {
    spelled(name): word
    for word, names in {
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
    }.items()
    for name in names.split()
}
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
