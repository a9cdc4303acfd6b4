"""Copy operands that lie badly, with Triton's interpreter: `python copied.py MODULE`, a family's `_runtime.copies`."""

from __future__ import annotations

import importlib
import sys

import torch

SHAPES = [(5, 7), (3, 5, 7), (1, 9), (9, 1), (70, 1030), (2, 3, 1030)]


def main() -> None:
    copies = importlib.import_module(sys.argv[1])
    other = torch.randn(3, 33, dtype=torch.float16)
    done = 0
    for mirrored in (False, True):
        for shape in SHAPES:
            x = torch.randn(*shape, dtype=torch.float16)
            x = x.mT if mirrored else x
            copy, second = copies.aligning(x, other)(x, other)
            assert torch.equal(copy, x) and torch.equal(second, other), shape
            assert 1 in copy.stride()[-2:] and copy.data_ptr() % 16 == 0, shape
            steps = [step for size, step in zip(copy.shape, copy.stride()) if size > 1 and step != 1]
            assert all(step % 8 == 0 for step in steps), shape
            again = copies.aligning(copy, second)(copy, second)
            assert again[0] is copy and again[1] is second, shape
            across, same = copies.turning("a")(x, other)
            assert torch.equal(across, x) and across.stride(-1) == 1 and same is other, shape
            same, down = copies.turning("b")(other, x)
            assert torch.equal(down, x) and down.stride(-2) == 1 and same is other, shape
            up, same = copies.copy_across("a")(x, other)
            assert torch.equal(up, x) and up.stride(-2) == 1 and same is other, shape
            same, along = copies.copy_across("b")(other, x)
            assert torch.equal(along, x) and along.stride(-1) == 1 and same is other, shape
            done += 1
    # Past the first of several matrices, and of several blocks along both sides.
    wide = torch.randn(2, 130, 70).mT
    assert torch.equal(copies.turning("a")(wide, other)[0], wide)
    print(done + 1, "copied")


if __name__ == "__main__":
    main()
