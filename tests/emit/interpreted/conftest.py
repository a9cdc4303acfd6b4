"""Families that are rendered for a test, and the launches of their kernels."""

import os
import re
import warnings

import pytest

from tests.helpers.support import render_spec

# Without the interpreter no kernel can run here; test_interpreted.py starts a process that has it.
collect_ignore_glob = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["test_*.py"]


#: What torch says of itself, or of what a test does with it.
_OF_TORCH = (
    *("dynamo_pgo", "Initializing zero-el", "The PyTorch API of nested", "Sparse CSR", "Warning only once"),
    *("`torch.jit", "<class 'torch.autograd.function.Function'>", "Your compiler for AOTAutograd"),
)


@pytest.fixture(autouse=True)
def alone(request):
    """No graph was compiled before, and a warning is an error, also where torch would give it once in a process."""
    import torch

    torch._dynamo.reset()
    torch.set_warn_always(True)
    with warnings.catch_warnings():
        # Other libraries warn of themselves.
        if request.node.get_closest_marker("ecosystem") is None:
            warnings.simplefilter("error")
        # Numpy's, of numbers that the interpreter computes with.
        warnings.simplefilter("ignore", RuntimeWarning)
        own = [mark.args[0].removeprefix("ignore:") for mark in request.node.iter_markers("filterwarnings")]
        for told in (*_OF_TORCH, *own):
            warnings.filterwarnings("ignore", re.escape(told))
        yield


@pytest.fixture
def launches(monkeypatch):
    """The kernels that the interpreter has run since the test began, each by what it does."""
    from triton.runtime.interpreter import GridExecutor

    ran = []
    run = GridExecutor.__call__

    def counted(self, *arguments, **options):
        name = self.fn.__name__
        roles = {"__gradient": "gradient_kernel", "_sum": "sum_kernel", "_decode": "decode_kernel"}
        roles = {end: role for end, role in roles.items() if name.endswith(end)}
        ran.append(next(iter(roles.values()), "gemm_kernel"))
        run(self, *arguments, **options)

    monkeypatch.setattr(GridExecutor, "__call__", counted)
    yield ran


@pytest.fixture(scope="module")
def render(tmp_path_factory):
    """Renders a spec's text and imports the family: `render(name, text)`. A name is used once in a process.

    Operators of torch are registered under the name and stay registered.
    """
    from generator.emit.loading import load_family
    from generator.verify import interpreter

    interpreter.install()

    def family(name, text):
        return load_family(render_spec(tmp_path_factory.mktemp(name), name, text))

    return family


@pytest.fixture(scope="module")
def family(request, render):
    """The family of a file's `SPEC`: that of test_groups.py is `of_groups`."""
    return render(f"of{request.module.__name__.rpartition('.test')[2]}", request.module.SPEC)
