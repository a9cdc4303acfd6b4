"""Floating-point operations of contracts, counted by torch's counter beside those of `a @ b`."""

import pytest
from torch.utils.flop_counter import FlopCounterMode

from tests.helpers.emit.calls import contracts, operands, results
from tests.helpers.support import spec

SPEC = spec(
    "layout: rcr; dtype: fp32; batch: [none, strided]; epilogue: [none, bias+gelu, swiglu]; load: pointer; "
    "backward: kernels"
)


def counted(call):
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


@pytest.mark.parametrize("batch", ["gemm", "bmm"])
@pytest.mark.parametrize("chain", ["none", "bias_gelu", "swiglu"])
def test_a_call_counts_as_its_product(family, batch, chain):
    """The first call as every other one, which returns new results or fills `out`."""
    name = f"{batch}_fp32_rcr_{chain}"
    given = operands(contracts(family)[name])
    function, product = getattr(family, name), counted(lambda: given["a"] @ given["b"])
    assert product > 0
    assert [counted(lambda: function(**given)) for _ in range(2)] == [product] * 2
    out = function(**given)
    assert counted(lambda: function(**given, out=out)) == product


@pytest.mark.parametrize("chain", ["none", "bias_gelu", "swiglu"])
def test_a_backward_pass_counts_as_its_products(render, chain):
    """Also where the counter was made before any operator was registered."""
    family = render(f"countedback{chain}", SPEC)
    name = f"gemm_fp32_rcr_{chain}"
    given = {x: value.requires_grad_() for x, value in operands(contracts(family)[name]).items()}
    forward = counted(lambda: given["a"].detach() @ given["b"].detach())
    expected = counted(lambda: (given["a"] @ given["b"]).sum().backward())
    assert expected == 3 * forward
    found = counted(lambda: results(getattr(family, name)(**given))[0].sum().backward())
    assert found == expected
    needed = {**given, "b": given["b"].detach()}
    assert counted(lambda: getattr(family, name)(**needed).sum().backward()) == 2 * forward
