"""What Triton's interpreter does with bf16: asked before a product is interpreted."""

# Triton has no type hints.
# mypy: disable-error-code="import-untyped"
import torch
import triton
import triton.language as tl


def check(a: object, b: object) -> None:
    """Raise RuntimeError in Triton's interpreter where it multiplies the bits of bf16 as integers.

    It does so if its faults are not corrected. `a` and `b` are the operands of a call, which need not be tensors yet.
    """
    dtypes = [getattr(x, "dtype", None) for x in (a, b)]
    if not isinstance(_multiply, triton.JITFunction) and torch.bfloat16 in dtypes and not _multiplies_bf16():
        raise RuntimeError(
            "Triton's interpreter multiplies the bits of bf16 as if they were integers: take fp16 there, or install "
            "the corrections of gemm-generator (generator.verify.interpreter.install())"
        )


def _multiplies_bf16() -> bool:
    """Whether the interpreter was corrected, or a product of ones is one of numbers."""
    if hasattr(getattr(triton.runtime, "interpreter", None), "corrected_by"):
        return True
    ones, product = torch.ones((16, 16), dtype=torch.bfloat16), torch.empty((16, 16))
    _multiply[(1,)](ones, product)
    return bool((product == 16).all())


@triton.jit
def _multiply(ones_ptr, product_ptr):  # type: ignore[no-untyped-def]
    offsets = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    ones = tl.load(ones_ptr + offsets)
    tl.store(product_ptr + offsets, tl.dot(ones, ones))
