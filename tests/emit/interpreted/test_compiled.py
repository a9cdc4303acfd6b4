"""Families under torch.compile, torch.export and AOTInductor, and the operations that torch counts."""

import json
import os
from pathlib import Path

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.flop_counter import FlopCounterMode

from tests.helpers.emit.calls import contracts, drawn, operands, results
from tests.helpers.support import ROOT, python, spec

SPEC = spec(
    "layout: rcr; dtype: [fp16, bf16]; batch: [none, strided]; "
    "epilogue: [none, scale+bias, bias+save+gelu+row_sum, bias+swiglu]; load: pointer; backward: kernels; "
    "exclude: [{batch: strided, epilogue: bias+swiglu, because: not needed here}]"
)
PLAIN, CHAIN, OUTPUTS = "gemm_fp16_rcr_none", "gemm_fp16_rcr_scale_bias", "gemm_fp16_rcr_bias_save_gelu_rowsum"


def compiled(function, **options):
    found = torch.compile(function, fullgraph=True, backend="aot_eager", **options)
    return found


def test_every_contract_is_one_operator_in_one_graph(family, launches):
    variants = contracts(family)
    assert len(variants) > 15
    for name, variant in variants.items():
        torch._dynamo.reset()
        given = operands(variant)
        expected = results(getattr(family, name)(**{x: value.clone() for x, value in given.items()}))
        launches.clear()
        found = results(compiled(lambda given, name=name: getattr(family, name)(**given))(given))
        assert launches == ["gemm_kernel"]
        for x, y in zip(found, expected, strict=True):
            assert torch.equal(x, y) and x.stride() == y.stride(), name


def test_the_first_call_of_a_family_may_be_traced(render):
    """With a gradient, and under autocast: both call other contracts of the family, which nothing has imported."""
    text = "summary: x\nlayout: rcr\ndtype: [fp32, bf16]\nepilogue: [none, gelu]\nload: pointer\nbackward: kernels\n"
    name = "gemm_fp32_rcr_gelu"
    trained, cast = (render(each, text) for each in ("firsttrained", "firstcast"))
    given = operands(contracts(trained)[name])
    given["a"].requires_grad_()
    compiled(lambda given: getattr(trained, name)(**given))(given).sum().backward()
    assert given["a"].grad is not None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = compiled(lambda a, b: getattr(cast, name)(a, b))(given["a"].detach(), given["b"])
    assert found.dtype == torch.bfloat16


def test_given_results_are_written(family, launches):
    given = operands(contracts(family)[OUTPUTS])
    expected = getattr(family, OUTPUTS)(**given)
    results = {"out": 0, "preact": 1, "row_sum": 2}
    for chosen in (["out"], ["preact"], ["out", "row_sum"], [*results]):
        fresh = {x: torch.full_like(expected[results[x]], 7.0) for x in chosen}

        def call(given, fresh):
            found = getattr(family, OUTPUTS)(**given, **fresh)
            return found, [x + 0 for x in fresh.values()]

        launches.clear()
        found, after = compiled(call)(given, fresh)
        assert len(launches) == 1 and all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))
        for x, copy in zip(chosen, after, strict=True):
            assert found[results[x]] is fresh[x], chosen
            assert torch.equal(fresh[x], expected[results[x]]) and torch.equal(copy, fresh[x])


def test_a_number_may_change_and_accumulation_adds(render):
    name = "gemm_fp16_rcr_accumulate"
    family = render("adding", "summary: x\nlayout: rcr\ndtype: fp16\nepilogue: accumulate\nload: pointer\n")
    given = operands(contracts(family)[name])
    graphs = CompileCounterWithBackend("aot_eager")
    call = torch.compile(lambda given, out, beta: getattr(family, name)(**given, out=out, beta=beta), backend=graphs)
    product = {x: given[x] for x in "ab"}
    compiled_so_far = []
    for beta in (2.0, 0.5, 2.0, torch.tensor(2.0), torch.tensor(3.0)):
        ours, theirs = given["out"].clone(), given["out"].clone()
        assert call(product, ours, beta) is ours
        getattr(family, name)(**product, out=theirs, beta=beta)
        assert torch.equal(ours, theirs)
        compiled_so_far.append(graphs.frame_count)
    # Dynamo compiles for each number that an operator is given; a tensor's value may change.
    assert compiled_so_far[3] == compiled_so_far[4]


def test_vmap_and_a_gradient_are_compiled(family):
    batch = operands(contracts(family)["bmm_fp16_rcr_none"])
    mapped = torch.vmap(getattr(family, PLAIN))
    assert torch.equal(compiled(mapped)(batch["a"], batch["b"]), mapped(batch["a"], batch["b"]))
    for name in (PLAIN, CHAIN, OUTPUTS, "gemm_fp16_rcr_bias_swiglu"):
        given = {x: value.requires_grad_() for x, value in operands(contracts(family)[name]).items()}

        def loss(given, name=name):
            return sum((x.float() ** 2).sum() for x in results(getattr(family, name)(**given)))

        expected = torch.autograd.grad(loss(given), [*given.values()])
        found = torch.autograd.grad(compiled(loss)(given), [*given.values()])
        assert all(torch.equal(x, y) for x, y in zip(found, expected, strict=True)), name


class Layer(torch.nn.Module):
    """A layer over a contract."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.weight = torch.nn.Parameter(drawn((24, 33), torch.float16), requires_grad=False)

    def forward(self, x, bias):
        return self.function(x, self.weight.mT, scale=0.5, bias=bias) + 1


LOADED = """\
import json, sys
import torch
import {name} as family
if json.loads(sys.argv[2]):
    family.register_operators()
x, bias, expected, gradient = torch.load(sys.argv[1] + "/tensors.pt")
try:
    program = torch.export.load(sys.argv[1] + "/program.pt2").module()
    found = program(x.requires_grad_(), bias)
    found.sum().backward()
    told = [torch.equal(found, expected), torch.equal(x.grad, gradient)]
except Exception as error:
    told = str(error)
print(json.dumps(told))
"""


def test_a_new_process_loads_a_saved_program_after_registering(family, tmp_path):
    layer, bias = Layer(getattr(family, CHAIN)), drawn((24,), torch.float32)
    x = drawn((20, 33), torch.float16).requires_grad_()
    expected = layer(x, bias)
    (gradient,) = torch.autograd.grad(expected.sum(), x)
    program = torch.export.export(layer, (x, bias), dynamic_shapes=({0: torch.export.Dim("rows")}, None))
    torch.export.save(program, tmp_path / "program.pt2")
    torch.save((x.detach(), bias, expected.detach(), gradient), tmp_path / "tensors.pt")
    path = os.pathsep.join([str(Path(family.__path__[0]).parent), str(ROOT)])
    code = LOADED.format(name=family.__name__)
    for registered in (True, False):
        ran = python("-c", code, tmp_path, json.dumps(registered), cwd=tmp_path, env={"PYTHONPATH": path})
        assert ran.returncode == 0, ran.stderr
        told = json.loads(ran.stdout)
        if registered:
            assert told == [True, True]
        else:
            assert isinstance(told, str) and family._GRADIENTS[CHAIN]["saving"] in ran.stderr


def counted(call):
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


@pytest.mark.parametrize("name", [PLAIN, CHAIN, "bmm_fp16_rcr_none", "gemm_fp16_rcr_bias_swiglu"])
def test_a_call_counts_as_its_product(family, name):
    """The first call as every other one, which returns new results or fills `out`."""
    given = operands(contracts(family)[name])
    function, product = getattr(family, name), counted(lambda: given["a"] @ given["b"])
    assert product > 0
    assert [counted(lambda: function(**given)) for _ in range(2)] == [product] * 2
    out = function(**given)
    assert counted(lambda: function(**given, out=out)) == product


@pytest.mark.parametrize("chain", ["none", "scale_bias", "bias_swiglu"])
def test_a_backward_pass_counts_as_its_products(render, chain):
    """Also where the counter was made before any operator was registered."""
    family = render(f"countedback{chain}", SPEC)
    name = f"gemm_fp16_rcr_{chain}"
    given = {x: value.requires_grad_() for x, value in operands(contracts(family)[name]).items()}
    forward = counted(lambda: given["a"].detach() @ given["b"].detach())
    expected = counted(lambda: (given["a"] @ given["b"]).sum().backward())
    assert expected == 3 * forward
    found = counted(lambda: results(getattr(family, name)(**given))[0].sum().backward())
    assert found == expected
    needed = {**given, "b": given["b"].detach()}
    assert counted(lambda: getattr(family, name)(**needed).sum().backward()) == 2 * forward
