"""A family's manifest: the spec it was rendered from, its kernels, what was left out, and what is never chosen."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import generator
from generator.emit.manifest_schema import VERSION
from generator.emit.never_chosen import never_chosen
from generator.epilogue.auxiliary_outputs import AuxiliaryOutput
from generator.epilogue.chain import definition
from generator.epilogue.quantisation import PER_BLOCK, Quantisation
from generator.language.model import Spec, Tile, Variant
from generator.language.spec import file_name
from generator.language.vocabulary import DEFAULTS
from generator.lowering import docstrings
from generator.plan.contract_call import ContractCall, call
from generator.plan.kernels import Family, Kernel


def written_by() -> dict[str, object]:
    """What a manifest says of the generator: the version of the format, and its own."""
    return {"manifest": VERSION, "generator": generator.__version__}


def spec_entry(spec: Spec) -> dict[str, str]:
    """What a manifest says of the spec: the name of its file, and the digest of what it and its measurements say."""
    return {"file": file_name(spec.path), "sha256": spec.digest}


def manifest(family: Family, bodies: dict[str, str], kept: dict[str, Any] | None = None) -> dict[str, object]:
    """The manifest without its `files`.

    `bodies` maps each kernel's name to the digest of its body. A kernel that is not in `bodies` was not rendered now,
    and its entry is taken from `kept`.
    """
    spec = family.spec
    steps = [step for kernel in family.kernels for step in kernel.variant.epilogue.steps]
    # Auxiliary outputs are part of the language, as `quantize` is; the name of each is in the epilogue of its kernel.
    formulas = [step for step in steps if step.output is None and not isinstance(step.meaning, Quantisation)]
    operations = {step.operation: step.meaning for step in formulas}
    # Kernels of a contract have one call.
    calls = {name: call(kernels[0].variant) for name, kernels in family.contracts.items()}
    unused = [{"name": each.name, "reason": each.reason} for each in never_chosen(family)]
    return {
        **written_by(),
        "spec": spec_entry(spec),
        "name": spec.name,
        **({"package": spec.package} if spec.package != DEFAULTS["package"] else {}),
        "summary": spec.summary,
        "operations": {name: definition(meaning) for name, meaning in sorted(operations.items())},
        "kernels": {
            kernel.name: _kernel(kernel, bodies[kernel.name], calls[kernel.variant.contract])
            if kernel.name in bodies
            else (kept or {})[kernel.name]
            for kernel in family.kernels
        },
        "left_out": [
            {"name": left.name, "reason": left.reason} | ({"target": left.target} if left.target else {})
            for left in family.left_out
        ],
        **({"never_chosen": unused} if unused else {}),
    }


def why_not_beside(family: Family, before: Mapping[str, Any], kept: Collection[str]) -> str | None:
    """Why the family's other files, rendered now, do not fit the kernels `kept` of the manifest `before`; or None.

    These files are made for every kernel as the spec has it now: its configurations, its choice among them, and what
    its file imports.
    """
    if not kept:
        return None
    version = before.get("generator")
    if version != generator.__version__:
        return f"its other kernels were rendered by gemm-generator {version}, and this is {generator.__version__}"
    package = before.get("package", DEFAULTS["package"])
    if package != family.spec.package:
        difference = f"'package: {package}', and this call has 'package: {family.spec.package}'"
        return f"its other kernels were rendered with {difference}"
    kernels = tuple(kernel for kernel in family.kernels if kernel.name in kept)
    entries: Mapping[str, Any] = before.get("kernels", {})
    digests = {kernel.name: entries[kernel.name].get("sha256", "") for kernel in kernels}
    now = json.loads(json.dumps(manifest(replace(family, kernels=kernels), digests)))
    for name, entry in now["operations"].items():
        if before.get("operations", {}).get(name) != entry:
            return f"its other kernels were rendered with another operation {name!r}"
    for name, entry in now["kernels"].items():
        rendered = entries[name]
        keys = [key for key in {**entry, **rendered} if rendered.get(key) != entry.get(key)]
        if keys:
            return f"{name} was rendered with another value of {', '.join(keys)}"
    return None


def _kernel(kernel: Kernel, body: str, described: ContractCall) -> dict[str, Any]:
    v = kernel.variant
    shaped = [(x, output.shape) for output, x in zip(v.epilogue.outputs, described.beside, strict=True)]
    shaped += [(described.out_scale, PER_BLOCK)] if described.out_scale is not None else []
    outputs = [{"name": x.name, "shape": shape, "dtype": x.dtype} for x, shape in shaped]
    return {
        "contract": v.contract,
        "formula": docstrings.formula(v),
        "sha256": body,
        "axes": axes(v),
        **({"outputs": outputs} if outputs else {}),
        "targets": list(kernel.targets),
        "triton": kernel.triton,
        "select": kernel.select,
        **({"invariant": "rows"} if kernel.rows_alike else {}),
        "tiles": _tiles(kernel.tiles),
        **({"not_offered": {target: list(rows) for target, rows in kernel.not_offered}} if kernel.not_offered else {}),
    }


def axes(v: Variant) -> dict[str, Any]:
    """The axes of a kernel as JSON."""
    return {
        **v.words,
        "layout": {"a": v.layout.a, "b": v.layout.b, "c": v.layout.c},
        "dtype": v.dtype.data,
        "epilogue": [
            {
                "operation": step.operation,
                "operands": {local: {"name": o.name, "shape": o.shape} for local, o in step.operands},
                "settings": dict(step.meaning.settings if isinstance(step.meaning, Quantisation) else step.settings),
                **({"output": step.meaning.output} if isinstance(step.meaning, AuxiliaryOutput) else {}),
            }
            for step in v.epilogue.steps
        ],
    }


@cache
def _tiles(tiles: tuple[Tile, ...]) -> list[dict[str, int]]:
    return [dict(vars(tile)) for tile in tiles]
