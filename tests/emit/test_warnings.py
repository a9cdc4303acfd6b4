"""Calls of rendered families warn of nothing: eager, of fake and meta tensors, under torch.compile, exported."""

import os
import subprocess
import sys

import pytest

from tests.helpers.support import ROOT, render_spec

#: Each way to call a function of a family. Without `torch.set_warn_always`, torch shows a warning once in a process.
_CALLS = '''
import contextlib, importlib, sys, warnings
import torch
import torch._inductor.compile_fx
from torch._subclasses.fake_tensor import FakeTensorMode

torch.set_warn_always(True)
warnings.simplefilter("error")
family = importlib.import_module("warned")


def operands(function, device):
    sizes = dict(M=16, N=32, K=64, B=3, G=4, T=16, R=16)
    found = {}
    for each in function.table.operands:
        if type(each).__name__ == "Number":
            found[each.name] = 0.5
        elif each.absent is None:
            shape = each.sized(sizes)
            dtype = each.dtype[0] if isinstance(each.dtype, tuple) else each.dtype or torch.float16
            turned = each.unit == len(shape) - 2
            shape = [*shape[:-2], shape[-1], shape[-2]] if turned else shape
            found[each.name] = torch.zeros(shape, dtype=dtype, device=device)
            found[each.name] = found[each.name].mT if turned else found[each.name]
    return found


def call(function, given, **more):
    front = [given[name] for name in ("a", "b", "offsets") if name in given]
    rest = {name: x for name, x in given.items() if name not in ("a", "b", "offsets")}
    return function(*front, **rest, **more)


def both(function, given):
    """Without and with `out`."""
    found = call(function, given)
    first = found[0] if isinstance(found, tuple) else found
    turned = not first.is_contiguous()
    made = first.new_empty(first.mT.shape if turned else first.shape)
    call(function, given, out=made.mT if turned else made)


class Model(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, given):
        return call(self.function, given)


for name, kernels in family._KERNELS.items():
    function = getattr(family, name)
    kernels = [importlib.import_module(f"warned.{kernel}") for kernel in kernels]
    both(function, operands(function, "cpu"))
    both(function, operands(function, "meta"))
    for device in ("cpu", "cuda"):
        with FakeTensorMode():
            given = operands(function, device)
            both(function, given)
            for kernel in kernels:
                call(kernel.gemm, given)
                if device == "cpu":
                    kernel.CALL.refusal(**given)
                    kernel.CALL.plan(**given)
            if device == "cpu":
                call(function.which, given)
    # Outside of their mode.
    with FakeTensorMode():
        given = operands(function, "cpu")
    both(function, given)
    call(function.which, given)
    for dynamic in (False, True):
        torch._dynamo.reset()
        torch.compile(Model(function), fullgraph=True, dynamic=dynamic, backend="aot_eager")(operands(function, "cpu"))
    with torch.no_grad():
        torch.export.export(Model(function), (operands(function, "cpu"),))
    if sys.argv[1] == "gradients" and "saving" not in name and "none" not in name and "save" not in name:
        for mode in (contextlib.nullcontext, FakeTensorMode):
            with mode():
                given = operands(function, "cpu")
                given["a"].requires_grad_()
                found = call(function, given)
                (found[0] if isinstance(found, tuple) else found).sum().backward()
        given = operands(function, "cpu")
        scale = torch.ones((), dtype=given["a"].dtype, requires_grad=True)
        step = torch.compile(lambda scale: call(function, {**given, "a": given["a"] * scale}), backend="aot_eager")
        found = step(scale)
        (found[0] if isinstance(found, tuple) else found).sum().backward()
print("warned of nothing")
'''

_HEAD = "summary: S.\nlayout: rcr\ndtype: fp16\ntargets: [sm90]\n"
_FAMILIES = {
    "descriptors, split K and outputs": _HEAD
    + "load: [descriptor, pointer]\nschedule: [tiled, split_k, stream_k]\nepilogue: [bias, add, bias+row_sum, scale]\n",
    "gradients": "summary: S.\nlayout: rcr\ndtype: fp16\nbackward: kernels\nepilogue: [bias, bias+gelu_tanh, swiglu]\n",
    "groups": _HEAD.replace("rcr", "rrr") + "batch: grouped\nload: [pointer, descriptor]\nstore: pointer\n",
    "rows that are alike": _HEAD + "invariant: rows\nload: [pointer, descriptor]\n",
    "stored": "summary: S.\nlayout: rcr\ndtype: {a: fp16, b: int4, scales: {b: [32, 1]}}\nproduct: exchanged\n"
    "targets: [sm90]\n",
    "measured": "summary: S.\nlayout: [rcr, rrr]\ndtype: tf32\nselect: fastest\ntargets: [sm90]\n",
}


@pytest.mark.parametrize("family", _FAMILIES)
def test_calls_warn_of_nothing(family, tmp_path):
    render_spec(tmp_path, "warned", _FAMILIES[family])
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", _CALLS, family.partition(" ")[0]],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0 and done.stdout.endswith("warned of nothing\n"), done.stdout[-3000:]
