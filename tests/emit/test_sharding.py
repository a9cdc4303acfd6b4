"""A mesh of processes divides operands as the rules of the operators say, and results and gradients are torch's."""

import sys

import pytest

from tests.helpers.support import ROOT, python, spec

SPEC = spec(
    "layout: rcr; dtype: fp32; epilogue: [none, bias, bias+gelu, scale+bias, bias+swiglu]; load: pointer; "
    "with: dtensor; backward: kernels"
)
#: The placements of the result and of the gradients of A, B and the bias.
CHAIN = {
    "rows": "S(0) S(0) P(sum) P(sum)",
    "columns": "S(1) P(sum) S(0) S(0)",
    # Parts of a sum do not pass a chain, so torch gathers them first.
    "K": "R S(1) S(1) R",
    "nothing": "R R R R",
    "rows and columns": "S(1) P(sum) S(0) S(0)",
    "K of A and columns": "S(1) P(sum) S(1) S(0)",
}
NONE = {how: f"{places.rpartition(' ')[0]} -" for how, places in CHAIN.items()} | {"K": "P(sum) S(1) S(1) -"}
#: Its columns are pairs, which are not divided.
GATED = {
    **CHAIN,
    "columns": "R P(sum) R R",
    "rows and columns": "S(0) S(0) P(sum) P(sum)",
    "K of A and columns": "R P(sum) S(1) R",
}


@pytest.mark.skipif(sys.platform == "win32", reason="gloo is tested on Linux")
def test_operands_are_divided_without_communication_where_that_is_possible(cli, tmp_path):
    (tmp_path / "meshes.yaml").write_text(SPEC)
    assert cli("meshes.yaml", "--out", tmp_path).status == 0
    script = str(ROOT / "tests" / "helpers" / "emit" / "divided.py")
    options = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script, str(tmp_path / "meshes"))
    env = {"PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    ran = python(*options, cwd=tmp_path, env=env)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = dict(line.split(": ") for line in ran.stdout.splitlines() if " by " in line)
    chains = {"none": NONE, "bias": CHAIN, "bias_gelu": CHAIN, "scale_bias": CHAIN, "bias_swiglu": GATED}
    assert said == {f"{name} by {how}": places for name, of in chains.items() for how, places in of.items()}
