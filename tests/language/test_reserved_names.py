"""Names: their grammar, the examples of the language, that no two kernels share one, and what no operand may have."""

import ast
import itertools
import re
from dataclasses import replace

import pytest

from generator.commands.command_line import main
from generator.emit import manifest_reader
from generator.emit.kernel_names import ROLES, by_role
from generator.epilogue.auxiliary_outputs import AUXILIARY, named
from generator.epilogue.chain import Epilogue
from generator.epilogue.gradient_operation import gradient_name, gradient_of, why_no_gradient
from generator.epilogue.operations import EpilogueOperation
from generator.epilogue.quantisation import DEFAULT_BLOCK, FP32, QUANTIZE, SCALES
from generator.language.built_in import BUILT_IN, OPERATIONS, chain_of
from generator.language.dtypes import ACCUMULATORS, PRECISIONS, RESULTS
from generator.language.elements import FORMATS
from generator.language.model import Dtype, Layout, Variant
from generator.language.quantised_results import BLOCKS, RESULT_TYPES
from generator.language.reserved_names import is_taken
from generator.language.vocabulary import IMPLEMENTATION_AXES, WORDS
from tests.helpers import shipped
from tests.helpers.support import ROOT, ops, python, read_text

GRAMMAR = re.compile(
    r"(gemm|bmm|gmmk?)_[a-z0-9_]+_[rcs]{3}_[a-z0-9_]+__[a-z0-9]+_[a-z0-9]+_[a-z0-9]+_[a-z0-9]+(_store[a-z]+)?(_product[a-z]+)?(_math[a-z]+)?"
)


def every_dtype():
    """Every combination of types that a mapping could ever mean, built or not."""
    found = []
    for a, b in itertools.product(ACCUMULATORS, ACCUMULATORS):
        for acc in dict.fromkeys((*ACCUMULATORS[a], *ACCUMULATORS[b])):
            for out, precision in itertools.product(RESULTS, PRECISIONS.get(a, (None,))):
                found.append(Dtype(a, b, acc, out, precision))
    return found


#: Numbers whose spellings could be taken for one another.
NUMBERS = [0, 1, -1, 10, 0.1, -0.1, 1e5, 1e-5, 1.5, 15, 1e-15, -1e-15, 1e20, 1e-20, 6, 6.25, 2.0**53, 3.4e38, 1e16]


def settled_chains():
    """Chains whose operations have parameters, alone and beside others, ops named to be mistaken among them."""
    own = EpilogueOperation("x + a1 * e5 * p", {}, {"a1": 1, "e5": 1, "p": 1})
    named_alike = dict.fromkeys(("clamp1", "clamp_1_min", "max"), EpilogueOperation("x"))
    table = {**OPERATIONS, **named_alike, "own": own}
    single = []
    for name, operation in table.items():
        for keys in itertools.chain.from_iterable(itertools.combinations(operation.scalars, n) for n in range(4)):
            few = itertools.product(NUMBERS if len(keys) < 3 else NUMBERS[:4], repeat=len(keys))
            single += [(name, operation, tuple(zip(keys, values))) for values in few]
        if operation.gated:
            single.append((name, operation, (("order", "interleaved"),)))
    single += [
        (gradient_name(name), gradient_of(operation), settings)
        for name, operation, settings in single
        if why_no_gradient(operation) is None
    ]
    # Outputs whose names could be taken for operations, and for each other.
    for word, writer in AUXILIARY.items():
        single += [(word, named(writer, name), ()) for name in (writer.output, "max", "max1", "gelu", "own")]
    others = [(name, table[name], ()) for name in ("max", "clamp1", "relu", "own")]
    chains = [[one] for one in single] + [[one, other] for one in single for other in others]
    return [Epilogue.chain(chain) for chain in chains]


def quantised_chains():
    """Chains with every type, block and way to find a scale, behind nothing and behind an operation."""
    for to, block, scale in itertools.product(RESULT_TYPES, BLOCKS, SCALES):
        if to not in FORMATS or (block, scale) == (DEFAULT_BLOCK, FP32):
            entry = {"operation": QUANTIZE, "to": to, "block": block, "scale": scale}
            yield from (chain_of([entry]), chain_of(["bias", entry]))


def test_no_two_variants_share_a_name():
    # All words of every axis, those still to come included; chains that could be read in two ways among the epilogues.
    words = [name for name, operation in BUILT_IN.items() if not operation.bounds and name != QUANTIZE]
    chains = [(), *((name,) for name in words), *itertools.product(words, repeat=2)]
    chains += [("bias", "bias_m", "bias"), ("bias", "bias", "bias_m"), ("gelu", "tanh"), ("gelu_tanh",)]
    plain = [chain_of(chain) for chain in chains]
    every = (*plain, *settled_chains(), *quantised_chains())
    epilogues = list({epilogue.word: epilogue for epilogue in every}.values())
    layouts = [Layout.of("".join(letters)) for letters in itertools.product("rcs", repeat=3)]
    how = list(itertools.product(*(WORDS[axis] for axis in IMPLEMENTATION_AXES)))
    first = dict(zip(IMPLEMENTATION_AXES, how[0]))
    fp16 = Dtype.of("fp16")
    base = (Layout.of("rcr"), fp16, "none", Epilogue())
    # A name is `contract__how`: that each half is injective and `__` is nowhere else makes the whole injective. Of the
    # contract's words, each only joined to the next, every two axes are gone through with the others held.
    axes = [*((layout, dtype, "none", Epilogue()) for layout in layouts for dtype in every_dtype())]
    axes += [(layouts[0], dtype, "none", epilogue) for dtype in every_dtype() for epilogue in epilogues[:12]]
    axes += [(layout, fp16, "none", epilogue) for layout in layouts for epilogue in plain]
    axes += [(layout, fp16, "none", epilogue) for layout in layouts[:2] for epilogue in epilogues]
    axes += [(layout, dtype, "strided", Epilogue()) for layout in layouts[:2] for dtype in every_dtype()]
    axes += [(layout, fp16, "strided", epilogue) for layout in layouts for epilogue in epilogues[:12]]
    contracts = [Variant(*found, **first) for found in axes]
    contracts += [replace(v, rounding="torch") for v in contracts if v.layout == layouts[0]]
    contracts = list(dict.fromkeys(contracts))
    implementations = [Variant(*base, **dict(zip(IMPLEMENTATION_AXES, words))) for words in how]
    assert len({dtype.word for dtype in every_dtype()}) == len(every_dtype()) > 500
    assert len({v.contract for v in contracts}) == len(contracts) > 70_000
    assert len({v.name for v in implementations}) == len(implementations) > 1_000
    assert all(v.name.count("__") == 1 for v in implementations)
    assert not any("__" in v.contract for v in contracts)
    assert all(GRAMMAR.fullmatch(v.name) for v in (*contracts[::97], *implementations))


def names_of(source, *wanted):
    """The names that functions of a file use, less the launcher's keywords, which no operand may have."""
    tree = ast.parse(source)
    by_role(tree)
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name in ("gemm", *wanted)]
    nodes = [node for function in functions for node in ast.walk(function)]
    used = {x.id if isinstance(x, ast.Name) else x.arg for x in nodes if isinstance(x, (ast.Name, ast.arg))}
    (launcher,) = (function for function in functions if function.name == "gemm")
    keywords = {argument.arg for argument in launcher.args.kwonlyargs} - {"out", "config"}
    free = used - keywords - {f"{name.upper()}_ON_DEVICE" for name in keywords}
    # No operand's name is in capitals or begins with an underscore.
    return {name for name in free if not is_taken(name) and name.islower() and not name.startswith("_")}


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.product)], ids=["few", "all"])
def test_every_name_of_every_kernel_and_launcher_is_one_that_no_operand_may_have(whole):
    """Of kernels that have every value of every axis, and on demand of all."""
    seen = set()
    for folder in shipped.folders():
        family = manifest_reader.read(folder)
        for name, kernel in family.by_name.items():
            words = {*kernel.variant.words.items()}
            if whole or not words <= seen:
                seen |= words
                source = family.file(name).read_text()
                assert names_of(source, "gemm_kernel", "sum_kernel", "plan", "refusal") == set(), name


def test_names_that_an_operand_may_have():
    for name in ("s", "scale", "gamma", "weight", "cap", "slope", "zero_point", "residual", "amax"):
        assert not is_taken(name)
        assert read_text(ops(f"f: {{formula: x + {name}, operands: {{{name}: [N]}}}}", "f"))


def test_operands_that_are_called_as_names_of_those_files(cli, tmp_path):
    """Rendered, and passed by the family's function, whose own files have these names."""
    operands = "{copy: [], found: [M], inside: [N], zero: [1]}"
    text = ops(f"f: {{formula: x * copy + found + inside - zero, operands: {operands}}}", "f")
    (tmp_path / "family.yaml").write_text(f"{text}tile: [{{m: 16, n: 16, k: 16, warps: 1}}]\n")
    said = cli("family.yaml", "--out", tmp_path)
    assert said.status == 0, said.err
    code = (
        "import torch, family\n"
        "x, v = torch.eye(16, dtype=torch.float16), torch.arange(16.0)\n"
        "c = family.gemm_fp16_rcr_f(x, x.T, copy=2.0, found=v, inside=3 * v, zero=v[1:2])\n"
        "print(torch.equal(c, 2 * x + (v[:, None] + 3 * v - 1).half()))\n"
    )
    ran = python("-c", code, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path), "TRITON_INTERPRET": "1"})
    assert ran.stdout == "True\n", ran.stderr


@pytest.mark.parametrize("spec", ["autotune", "fast", "mx", "outputs", "paired", "split_k", "stored", "stream_k"])
def test_names_of_a_file_that_stands_alone_are_taken(spec, tmp_path):
    assert main([str(ROOT / "specs" / f"{spec}.yaml"), "--package", "files", "--out", str(tmp_path)]) == 0
    for path in (tmp_path / spec).glob("*.py"):
        own = {path.stem, *(f"{path.stem}{end}" for end in ROLES.values())}
        assert names_of(path.read_text()) - own == set(), path.name
