"""A family as a Python package: which kernels implement a contract, and the order in which they are tried."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from generator.epilogue.chain import Step
from generator.epilogue.operations import COLUMNS, HALVES
from generator.language.built_in import OPERATIONS
from generator.language.dtypes import QUANTISED
from generator.language.elements import ELEMENTS
from generator.language.model import Dtype, Variant
from generator.language.vocabulary import DEFAULTS, WORDS
from generator.lowering import docstrings
from generator.lowering.call_table import parameters, returned
from generator.lowering.lines import INDENT, WIDTH, bracketed, collected, paragraph, tuple_of
from generator.plan.contract_call import call
from generator.plan.gradients import adds
from generator.plan.kernels import Family, Kernel
from generator.plan.resources import through_registers

#: The axes by which the kernels of a contract are ordered, the most important first.
_RANKED = ("product", "schedule", "load", "masking", "swizzle")

#: The element types that autocast casts to.
AUTOCAST = ("fp16", "bf16")


#: The modules of the library, after `pack_`, that convert weights of other formats, each with the types that it makes.
CONVERTERS = {
    "integers": ("int4", "uint4", "int8"),
    "fp8": ("fp8e4m3", "fp8e5m2"),
    "mx": ("mxfp8e4m3", "mxfp8e5m2", "mxfp4", "nvfp4"),
    "sparse": ("fp16", "bf16"),
}
#: The functions of each.
CONVERTING = {
    "integers": ("from_awq", "from_compressed_tensors", "from_gptq", "from_torchao"),
    "fp8": ("from_block_fp8",),
    "mx": ("from_mx",),
    "sparse": ("from_semi_structured",),
}


@dataclass(frozen=True)
class PackagedContract:
    """One function of a family's package: its name, its formula, and its kernels.

    A call runs the first kernel that accepts the operands.
    """

    name: str
    formula: str
    kernels: tuple[str, ...]


def _rank(kernel: Kernel) -> tuple[int, ...]:
    ranks = (WORDS[axis][kernel.variant.word(axis)].rank for axis in _RANKED)
    return (*ranks, 0 if kernel.variant.store == "as_load" else 1)


def _variants(family: Family) -> dict[str, Variant]:
    """One variant of each contract; all variants of a contract compute the same."""
    return {name: kernels[0].variant for name, kernels in family.contracts.items()}


def _transposed(variant: Variant) -> dict[str, Variant]:
    """`variant` with one operand contiguous along K that is not, by the operand's name."""
    layout, variants = variant.layout, dict[str, Variant]()
    if variant.products.divided:
        # Each element of B is in few products.
        return variants
    if layout.a == "column":
        variants["a"] = replace(variant, layout=replace(layout, a="row"))
    if layout.b == "row":
        variants["b"] = replace(variant, layout=replace(layout, b="column"))
    return variants


def twins(family: Family) -> dict[str, str]:
    """For each contract the family's contracts that differ only in that `a` or `b` is contiguous along K.

    They are written as an entry of a dictionary, each by the operand: `"a": "gemm_fp16_rcr_none"`. There are none in a
    family with `invariant: rows`: which operand is copied, or read as a vector, depends on M.
    """
    return _by_operand(family, _transposed)


def _by_operand(family: Family, others: Callable[[Variant], Mapping[str, Variant]]) -> dict[str, str]:
    """For each contract the family's contracts among `others` of its variant, as an entry; none if rows are alike."""
    names = {} if family.spec.rows_alike else _variants(family)
    entries_of: dict[str, str] = {}
    for name, variant in names.items():
        pairs = others(variant).items()
        entries = [f'"{operand}": "{other.contract}"' for operand, other in pairs if other.contract in names]
        if entries:
            entries_of[name] = _entry(name, entries)
    return entries_of


def contiguous_k(family: Family, names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The contracts of `names` whose matrix unit needs operands contiguous along K: on Hopper, all but 16-bit elements.

    Each contract comes with the letters of the operands that its kernels can read without K contiguous, through
    registers. If neither operand is contiguous, this includes the operand that can be read so once the other has been
    transposed.
    """
    variants = _variants(family)
    readable: dict[str, set[str]] = {}
    for kernel in family.kernels:
        readable.setdefault(kernel.variant.contract, set()).update(through_registers(kernel.variant) or "")
    pairs = []
    for name in names:
        variant = variants[name]
        if variant.dtype.precision in ("tf32", "tf32x3") or variant.dtype.stored_a.multiplied_bits == 8:
            others = (x.contract for x in _transposed(variant).values())
            pairs.append((name, "".join(sorted(readable[name].union(*(readable.get(other, ()) for other in others))))))
    return tuple(pairs)


def across_k(family: Family) -> dict[str, str]:
    """The contracts of fp32 without the matrix unit with K contiguous in `a` and `b`, each with those of a copy.

    Scalar units read the right operand of a product faster if its K is not contiguous: `b`, or `a` if the product is
    exchanged. They are written as those of `twins`, each by the operand that is copied.
    """
    exchanged = {kernel.variant.contract for kernel in family.kernels if kernel.variant.product == "exchanged"}

    def others(variant: Variant) -> dict[str, Variant]:
        layout = variant.layout
        if variant.dtype.precision != "ieee" or (layout.a, layout.b) != ("row", "column") or variant.products.several:
            return {}
        transposed = {"b": replace(variant, layout=replace(layout, b="row"))}
        a = replace(variant, layout=replace(layout, a="column"))
        return {"a": a, **transposed} if a.contract in exchanged else transposed

    return _by_operand(family, others)


def casts(family: Family) -> tuple[str, ...]:
    """The contracts of an A of a floating type of 16 or more bits, each with those that autocast calls, as entries.

    Each is found by torch's name of the type: `"bfloat16": "gemm_bf16_rcr_none"`. A B that is not stored as it is
    multiplied is not cast, so that its contract is the only one.
    """
    variants, lines = _variants(family), []
    for name, variant in variants.items():
        element = variant.dtype.stored_a.element
        if not element.floating or element.bits < 16 or not variant.dtype.stored_a.plain:
            continue
        entries = []
        for word in AUTOCAST:
            own = word == variant.dtype.a or not variant.dtype.plain
            other = name if own else replace(variant, dtype=Dtype.of(word)).contract
            if other in variants and (word == variants[other].dtype.a or not own):
                entries.append(f'"{ELEMENTS[word].torch}": "{other}"')
        lines.append(_entry(name, entries))
    return tuple(lines)


@dataclass(frozen=True)
class LinearContract:
    """A contract of a linear layer, whose weight is a column-major B: the type of both factors, and its operand."""

    contract: str
    dtype: str
    bias: bool
    #: What follows, which contracts of other types may have, too; empty if a layer does no more than add the bias.
    more: str


def _floating(v: Variant) -> bool:
    """Whether factors and result are of one floating type."""
    return v.dtype.plain and v.dtype.stored_a.element.floating and v.dtype.a == v.dtype.b == v.dtype.out


def linear(contracts: Mapping[str, Sequence[Kernel]]) -> tuple[LinearContract, ...]:
    """The contracts of linear layers: of one product in the layout `rcr`, whose chain reads a bias or nothing."""
    layers = []
    for name, kernels in contracts.items():
        v = kernels[0].variant
        read = [(operand.name, operand.shape) for operand in v.epilogue.operands]
        alone = not v.epilogue.outputs and not v.epilogue.reads_out and not v.products.several and not v.symmetric
        alone = alone and v.quantised is None
        if v.layout.word == "rcr" and alone and _floating(v) and read in ([], [("bias", COLUMNS)], [("bias", HALVES)]):
            plain = v.epilogue.word in ("none", "bias") and v.rounding == DEFAULTS["rounding"]
            more = "" if plain else v.epilogue.word + ("" if v.rounding == DEFAULTS["rounding"] else f" {v.rounding}")
            layers.append(LinearContract(name, ELEMENTS[v.dtype.a].torch, bool(read), more))
    return tuple(layers)


def accumulating(contracts: Mapping[str, Sequence[Kernel]]) -> tuple[str, ...]:
    """The contracts that add the gradient of a layer's weight to a tensor, by their types, as entries."""
    adding = [(name, kernels[0].variant.dtype) for name, kernels in contracts.items() if adds(kernels[0].variant)]
    torchs = [(name, ELEMENTS[dtype.a].torch, ELEMENTS[dtype.out].torch) for name, dtype in adding]
    return tuple(f'(torch.{a}, torch.{out}): "{name}"' for name, a, out in torchs)


#: The chains of one gated linear unit whose rows of the gate come first, which `nn.Experts` has (`experts.GATES`).
GATES = ("swiglu", "geglu", "geglu_tanh", "reglu")


def experts(contracts: Mapping[str, Sequence[Kernel]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The contracts of stacked experts: those of gated products by type and gate, and plain ones by type, as entries.

    There are none of a type without both.
    """
    gated: dict[tuple[str, str], str] = {}
    down: dict[str, str] = {}
    for name, kernels in contracts.items():
        v = kernels[0].variant
        fits = v.batch == "grouped" and v.layout.word == "rcr" and _floating(v) and ELEMENTS[v.dtype.a].bits >= 16
        if not fits or v.rounding != DEFAULTS["rounding"]:
            continue
        torch_type = ELEMENTS[v.dtype.a].torch
        if v.epilogue.word == "none":
            down.setdefault(torch_type, name)
        elif v.epilogue.word in GATES and v.epilogue.steps[0].built_in:
            gated.setdefault((torch_type, v.epilogue.word), name)
    gated = {key: name for key, name in gated.items() if key[0] in down}
    down = {dtype: name for dtype, name in down.items() if any(dtype == each for each, _ in gated)}
    return (
        tuple(f'(torch.{dtype}, "{gate}"): "{name}"' for (dtype, gate), name in gated.items()),
        tuple(f'torch.{dtype}: "{name}"' for dtype, name in down.items()),
    )


def products(family: Family) -> tuple[str, ...]:
    """The contracts that compute what products of torch do, with chains of built-in operations, as entries."""
    lines = []
    for name, v in _variants(family).items():
        dtype, chain = v.dtype, v.epilogue
        integers = (dtype.a, dtype.sum, dtype.out) == ("int8", "int32", "int32")
        floats = dtype.sum == "fp32" and dtype.out not in QUANTISED
        if not dtype.plain or dtype.a != dtype.b or not (floats or integers):
            continue
        exact = integers or (ELEMENTS[dtype.a].bits >= 16 and dtype.precision in (None, "ieee", "tf32"))
        alone = not chain.outputs and not chain.reads_out and v.words.get("result", "full") == "full"
        if not (exact and alone and all(step.meaning == OPERATIONS.get(step.operation) for step in chain.steps)):
            continue
        types = [f"torch.{ELEMENTS[each].torch}" for each in (dtype.a, dtype.b, dtype.out)]
        parts = [f'"{v.batch}"', f'"{v.layout.word}"', *types]
        parts += [f'precision="{dtype.precision}"'] if dtype.a == "fp32" else []
        parts += [tuple_of([_applied(step) for step in chain.steps], 2 * INDENT, "chain=")] if chain.steps else []
        parts += [f'rounding="{v.rounding}"'] if chain.rounded(dtype.sum, dtype.out) != chain else []
        lines.append(bracketed(f'"{name}": TorchProduct(', parts, "),", INDENT))
    return tuple(lines)


def _applied(step: Step) -> str:
    """An operation of a chain, as the library describes it."""
    named, keywords = f'"{step.operation}"', [f'"{operand.name}"' for _, operand in step.operands]
    settings = [f"{name}=" + (f'"{x}"' if isinstance(x, str) else repr(x)) for name, x in step.settings]
    return f"applied({', '.join([named, *keywords, *settings])})"


def weights(family: Family) -> tuple[str, ...]:
    """The contracts with operands that are not stored as they are multiplied, each with how B is stored, as entries."""
    lines = []
    for name, variant in _variants(family).items():
        if not variant.dtype.plain:
            b = variant.dtype.stored_b
            # A strided B may have either layout.
            parts = [f'"{b.word}"', '"row"' if variant.layout.b == "row" else '"column"']
            parts += [f"({b.block.along}, {b.block.across})"] if b.block is not None else []
            parts += ["zeros=True"] * b.zeros + ["batched=True"] * variant.products.several
            parts += ["fragments=True"] * b.fragments
            lines.append(bracketed(f'"{name}": Stored(', parts, "),", 2 * INDENT))
    return tuple(lines)


def converters(family: Family) -> tuple[str, ...]:
    """The keys of CONVERTERS whose modules make what a contract of the family stores."""
    operands = [variant.dtype.stored_b for variant in _variants(family).values()]
    words = {b.word for b in operands if not b.plain and (b.block is not None or b.sparse)}
    return tuple(part for part, words_of_part in CONVERTERS.items() if words.intersection(words_of_part))


def gradients(family: Family) -> tuple[str, ...]:
    """The contracts that have gradients, each with what computes them, as entries; `_gradients` explains the words."""
    lines = []
    callers = {gradient.saving: gradient.contract for gradient in family.gradients if gradient.saving}
    for gradient in family.gradients:
        products = {"a": gradient.a, "b": gradient.b}
        entries = [f'"{x}": ("{product.contract}", {product.turned})' for x, product in products.items()]
        words = {"chain": gradient.chain and gradient.file, "sum": gradient.sum}
        words["called"] = callers.get(gradient.contract)
        entries += [f'"{word}": "{name}"' for word, name in words.items() if name is not None]
        constant = "".join(f'"{name}", ' for name in gradient.constant)
        entries += [f'"constant": ({constant.strip()})'] * bool(constant)
        entries += ['"symmetric": True'] * gradient.symmetric
        lines.append(_entry(gradient.contract, [f'"saving": "{gradient.saving}"'] if gradient.saving else entries))
    return tuple(lines)


def _entry(name: str, entries: Sequence[str]) -> str:
    return collected(f'"{name}": {{', entries, "}", INDENT)


def batched(family: Family) -> tuple[tuple[str, str], ...]:
    """The contracts of one product for which the family has the contract of a batch, and that contract."""
    variants = _variants(family)
    alone = {name: variant for name, variant in variants.items() if not variant.products.several}
    pairs = ((name, replace(variant, batch="strided").contract) for name, variant in alone.items())
    return tuple((name, other) for name, other in pairs if other != name and other in variants)


def additive(family: Family) -> str:
    """The set of the contracts in which nothing follows the product, so that parts of K may be added up after it."""
    names = [f'"{name}"' for name, variant in _variants(family).items() if not variant.epilogue.steps]
    return collected("_ADDITIVE = {", names, "}") if names else ""


def combines(family: Family) -> bool:
    """Whether the family has `combine`: contracts whose rows are in groups."""
    return any(variant.products.divided == "M" for variant in _variants(family).values())


def stubs(family: Family) -> Iterator[tuple[str, str, str, str]]:
    """The types of each contract's function: the declaration of its name, the heads of its methods, and its formula."""
    for number, (name, variant) in enumerate(_variants(family).items(), 1):
        one = f"{name}: _Function{number}"
        declaration = one if len(one) <= WIDTH else f"{name}: (\n    _Function{number}\n)"
        called = call(variant)
        listed = ["self", *parameters(called, read=True)]
        head = bracketed("def __call__(", [*listed, "config: Config = None"], f") -> {returned(called)}:", INDENT)
        which = bracketed("def which(", listed, ") -> tuple[str, Row]:", INDENT)
        yield declaration, head, which, paragraph(docstrings.formula(variant), 2 * INDENT)


def contracts(family: Family) -> tuple[PackagedContract, ...]:
    """The contracts of a family in the order of its kernels, each with its kernels in the order they are tried."""
    return tuple(
        PackagedContract(
            name, paragraph(docstrings.formula(kernels[0].variant)), tuple(k.name for k in sorted(kernels, key=_rank))
        )
        for name, kernels in family.contracts.items()
    )
