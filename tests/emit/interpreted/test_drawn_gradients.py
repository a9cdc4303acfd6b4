"""The gradients of chains drawn by hypothesis, against torch's autograd in float64: a few, and more on demand."""

import pytest
import yaml
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st

from tests.drawn.specs import CHAINS, LAYOUTS, OWN, legal
from tests.helpers.emit.calls import contracts
from tests.helpers.emit.gradients import check


@st.composite
def specs(draw):
    """A spec of one contract with gradients, legal or not."""
    words = {
        "layout": draw(LAYOUTS),
        "epilogue": draw(CHAINS.filter(lambda chain: chain != "none")),
        "dtype": draw(st.sampled_from(["fp32", "bf16"])),
    }
    words |= {"batch": draw(st.sampled_from(["none", "strided"])), "rounding": draw(st.sampled_from(["late", "torch"]))}
    fixed = {"summary": "Drawn.", "ops": OWN, "load": "pointer", "backward": "kernels"}
    return yaml.safe_dump(fixed | words, sort_keys=False)


@pytest.mark.parametrize(
    ("count", "number"), [pytest.param(12, 5, id="few"), pytest.param(200, 6, id="many", marks=pytest.mark.operators)]
)
def test_drawn_chains(render, count, number):
    found = []

    @seed(number)
    @settings(max_examples=count, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(specs())
    def examine(text):
        assume(legal(text) is not None)
        found.append(text)
        family = render(f"drawn{number}_{len(found)}", text)
        # The contract that the spec asks for comes first.
        check(family, next(iter(contracts(family))), tight=False)

    examine()
    assert len({*found}) >= 0.75 * count
