"""Load a repository with the library `kernels` and call its functions: `python hub_kernel.py REPOSITORY`."""

from __future__ import annotations

import sys
from pathlib import Path

import kernels
import torch
from kernels._rust import Build, Digest, DigestAlgorithm, Metadata


def main() -> None:
    root = Path(sys.argv[1])
    # Without a GPU the loader looks for no variant of one: it is given the folder of the variant.
    variant = root / "build" / "torch-cuda"
    assert [str(each) for each in Build.open(root).general.backends] == ["cuda"]
    metadata = Metadata.read_from_file(variant / "metadata.json")
    metadata.digest.validate(Digest.hash_variant(DigestAlgorithm.SHA256, variant))
    kernel = kernels.get_local_kernel(variant)

    a, b = torch.randn(8, 64).half(), torch.randn(128, 64).half().mT
    kernel.register_operators()
    operators = getattr(torch.ops, metadata.id)
    torch.testing.assert_close(operators.gemm_fp16_rcr_none(a, b, None), kernel.gemm_fp16_rcr_none(a, b))
    print("loaded")


if __name__ == "__main__":
    main()
