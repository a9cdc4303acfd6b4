"""Load a repository with the library `kernels` and put its layer into a model: `python hub_kernel.py REPOSITORY`."""

from __future__ import annotations

import importlib.util
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

    torch.manual_seed(0)
    layers = [torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 96, bias=False)]
    model, x = torch.nn.Sequential(*layers).half(), torch.randn(2, 8, 64).half()
    with torch.no_grad():
        expected = model(x)
        kernels.replace_kernel_forward_from_hub(torch.nn.Linear, "Linear")
        layer = kernels.LocalLayerRepository(variant, layer_name="Linear")
        with kernels.use_kernel_mapping({"Linear": {"cpu": layer}}):
            for mode in (kernels.Mode.INFERENCE, kernels.Mode.INFERENCE | kernels.Mode.TORCH_COMPILE):
                model = kernels.kernelize(model, mode=mode, device="cpu", use_fallback=False)
        torch.testing.assert_close(model(x), expected)
    replaced = [
        module.forward.__func__ is kernel.layers.Linear.forward for module in model if hasattr(module, "weight")
    ]
    assert replaced == [True, True]

    kernel.register_operators()
    operators = getattr(torch.ops, metadata.id)
    a, b = x[0], layers[0].weight.detach().mT
    torch.testing.assert_close(operators.gemm_fp16_rcr_none(a, b, None), kernel.gemm_fp16_rcr_none(a, b))

    shim = importlib.util.spec_from_file_location("older", variant / "fp16_rcr" / "__init__.py")
    assert shim is not None and shim.loader is not None
    older = importlib.util.module_from_spec(shim)
    shim.loader.exec_module(older)
    assert older.__all__ == kernel.__all__ and older.gemm_fp16_rcr_none(a, b).shape == (8, 128)
    print("loaded")


if __name__ == "__main__":
    main()
