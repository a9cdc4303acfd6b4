"""Lay a rendered family out as a kernel repository of the Hugging Face Hub, for the library `kernels`.

    README.md, CARD.md            the card, as the Hub and as kernel-builder look for it
    build.toml, flake.nix         from which kernel-builder can build the repository again
    torch-ext/NAME/               the family as a package, with `layers.py`
    build/torch-BACKEND/          the same, with the `metadata.json` that the loader reads; one folder a vendor
    tests/, benchmarks/           what pytest and `kernels benchmark` run

The loader imports a variant under the `id` of its metadata. The family registers its operators in the namespace of its
package's name, so they are those of `torch.ops.ID`, as the Hub requires.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import generator
from generator.emit.apply import MANIFEST
from generator.emit.family_package import LinearContract, linear
from generator.emit.manifest_reader import Rendered
from generator.emit.packed_family import Packed, license_expression
from generator.emit.render import PACKAGE, RUNTIME, environment, with_new_body
from generator.files.package_data import data
from generator.language.elements import ELEMENTS
from generator.language.errors import CallError, shown
from generator.language.family_names import why_no_family
from generator.language.targets import TARGETS
from generator.language.versions import SUPPORTED, spelled
from generator.lowering.docstrings import beside, formula
from generator.plan.contract_call import ContractCall, call

#: What the Hub and `kernels` take as the name of a kernel, and as its licence.
_NAME = re.compile(r"(?!.*--)[a-z][-a-z0-9]*[a-z0-9]")
#: Licences of the Hub that are none of SPDX.
_LICENSES = frozenset(
    {
        *("other", "unknown", "cc", "gpl", "lgpl", "bsd", "openrail", "openrail++", "gemma", "h-research"),
        *("bigscience-openrail-m", "creativeml-openrail-m", "bigscience-bloom-rail-1.0", "bigcode-openrail-m"),
        *("llama2", "llama3", "llama3.1", "llama3.2", "llama3.3", "llama4", "intel-research", "openmdw-1.0"),
        *("apple-amlr", "apple-ascl", "deepfloyd-if-license", "fair-noncommercial-research-license", "lgpl-lr"),
    }
)
_PART = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")

_BACKENDS = {"nvidia": "cuda", "amd": "rocm"}
#: What the family's package is followed by, so that the loader finds the layers.
_LAYERS = '\n\nfrom . import layers  # noqa: E402\n\n__all__ += ["layers"]\n'


@dataclass(frozen=True)
class Layer:
    """A layer, and the contracts of the types of a weight that it computes."""

    name: str
    linear: tuple[LinearContract, ...]

    @property
    def description(self) -> str:
        """What it computes, in one line."""
        if self.name == "Linear":
            return "The forward pass of torch.nn.Linear."
        return f"A linear layer and what follows it, by {self.linear[0].contract}."


@dataclass(frozen=True)
class Repository:
    """One family as a repository: its name, its major version, its licence, and where it is uploaded to."""

    packed: Packed
    name: str
    version: int
    license: str
    repo: str | None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            expected = "lower-case letters, digits and single -, a letter first, and at least two characters"
            raise CallError(f"package: --name: {shown(self.name)} is not a name of a kernel; expected {expected}")
        reason = why_no_family(self.module)
        if reason is not None:
            raise CallError(f"package: --name: {reason}")
        if not _is_license(self.license):
            expected = "no identifier of the Hub, which writes those of SPDX in lower case, such as mit or apache-2.0"
            raise CallError(f"package: --license: {shown(self.license)} is {expected}; or other")
        if self.repo is not None and not _is_repository(self.repo):
            raise CallError(f"package: --repo-id: expected OWNER/NAME, found {shown(self.repo)}")

    @property
    def family(self) -> Rendered:
        return self.packed.family

    @property
    def module(self) -> str:
        """The name as a Python module."""
        return self.name.replace("-", "_")

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The layers of the family: each has the contracts that differ only in the weight's type and the bias."""
        layers: dict[str, list[LinearContract]] = {}
        for each in linear(self.family.contracts):
            _, _, epilogue = each.contract.partition("_rcr_")
            words = [word for word in re.sub(r"^(none|bias)(_|$)", "", epilogue).split("_") if word]
            layers.setdefault("Linear" + "".join(map(str.capitalize, words)), []).append(each)
        return tuple(Layer(name, tuple(those)) for name, those in sorted(layers.items()))

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """The architectures of the kernels, in the order of the language."""
        those = {target for kernel in self.family.kernels for target in kernel.targets}
        return tuple(target for target in TARGETS if target in those)

    def archs(self, backend: str) -> tuple[str, ...]:
        """The architectures of a backend, as the Hub writes them."""
        of = [target for target in self.targets if _BACKENDS[TARGETS[target].vendor] == backend]
        return tuple(f"{TARGETS[x].capability / 10:.1f}" if backend == "cuda" else x for x in of)

    @property
    def backends(self) -> tuple[str, ...]:
        return tuple(backend for backend in _BACKENDS.values() if self.archs(backend))

    def files(self) -> Iterator[tuple[str, str]]:
        """The path and the text of every file."""
        package = dict(self._package())
        for name, text in package.items():
            yield f"torch-ext/{self.module}/{name}", text
        for backend in self.backends:
            for name, text in package.items():
                yield f"build/torch-{backend}/{name}", text
            yield f"build/torch-{backend}/metadata.json", self._metadata(backend, package)
        for name in ("build.toml", "flake.nix"):
            yield name, self._text(f"{name}.j2")
        for name in ("README.md", "CARD.md"):
            yield name, self._text("card.md.j2")
        yield "tests/__init__.py", ""
        yield "tests/test_kernels.py", self._text("test_kernels.py.j2")
        yield "benchmarks/_operands.py", self._text("operands.py.j2")
        yield "benchmarks/benchmark.py", self._text("benchmark.py.j2")

    def _package(self) -> Iterator[tuple[str, str]]:
        """The family's files, with the layers."""
        texts = dict(self.packed.texts)
        if self.layers:
            texts[PACKAGE] = with_new_body(texts[PACKAGE], lambda body: body + _LAYERS)
            texts["layers.py"] = with_new_body(texts[PACKAGE], lambda _: self._text("layers.py.j2"))
        yield from texts.items()
        yield MANIFEST, self.packed.manifest(texts)

    def _metadata(self, backend: str, variant: dict[str, str]) -> str:
        """What the loader reads of a variant: among others the name under which it imports the package."""
        digests = {name: hashlib.sha256(text.encode()).digest() for name, text in sorted(variant.items())}
        unique = hashlib.sha256(b"".join(digests.values())).hexdigest()[:8]
        metadata = {
            "id": f"_{self.module}_{backend}_{unique}",
            "name": self.name,
            "version": self.version,
            "license": self.license,
            "python-depends": [],
            "kernel-depends": [],
            "backend": {"type": backend, "archs": list(self.archs(backend))},
            "digest": {
                "algorithm": "sha256",
                "files": {name: base64.b64encode(digest).decode() for name, digest in digests.items()},
            },
        }
        return json.dumps(metadata, indent=2) + "\n"

    def _text(self, template: str) -> str:
        text: str = environment(data("emit", "hub")).get_template(template).render(self._values, hub=self)
        return text

    @cached_property
    def _values(self) -> dict[str, Any]:
        """What the templates read."""
        variants = {name: kernels[0].variant for name, kernels in self.family.contracts.items()}
        calls = {name: call(v) for name, v in variants.items()}
        computed = {name: "; ".join([f"`{formula(v)}`", *beside(v)]) for name, v in variants.items()}
        contracts = [(name, computed[name], _operands(calls[name])) for name in variants]
        results = [x.name for x in calls[contracts[0][0]].results]
        outs = [ELEMENTS[v.dtype.out] for v in variants.values()]
        return {
            # Without --repo-id: who uploads it puts a name there.
            "repo": self.repo or f"OWNER/{self.name}",
            "generator": generator.__version__,
            "backends": _quoted(self.backends),
            "capabilities": _quoted(self.archs("cuda")),
            "rocm": _quoted(self.archs("rocm")),
            "triton": spelled(SUPPORTED),
            "contracts": contracts,
            "example_results": ", ".join(results) if len(results) > 1 else "y",
            # The size that groups divide: the rows, or K.
            "grouped": {name: v.products.divided for name, v in variants.items() if v.products.divided},
            "example": "".join(f", {each}={each}" for each in [*contracts[0][2]][2:]),
            "derived": "triton." in str(contracts),
            # torch.compile traces operators of torch, which only `package: torch` has.
            "compiled": self.family.package == "torch",
            "backward": f"{RUNTIME}/autograd.py" in self.family.files,
            # A relative error that sums of products and their rounding to a result's type stay below.
            "tolerance": f"2**-{min([10, *(each.mantissa for each in outs if each.floating)])}",
        }


def _operands(called: ContractCall) -> dict[str, str]:
    """The operands that a call must give, each as the source of a script makes it."""
    arguments: dict[str, str] = {}
    for operand in (
        called.a,
        called.b,
        *called.keywords,
        *((called.out,) if called.reads_out else ()),
    ):
        result = (
            called.out.dtype if isinstance(called.out.dtype, str) and ELEMENTS[called.out.dtype].bits > 8 else "fp32"
        )
        # Of several types the first one; where any is taken, the result's.
        usual = operand.dtype[0] if isinstance(operand.dtype, tuple) else result
        type_ = operand.torch_dtype if isinstance(operand.dtype, str) else f"torch.{ELEMENTS[usual].torch}"
        extents = [extent.replace("ceil(", "triton.cdiv(") for extent in operand.extents]
        shape = f"({', '.join(extents)}{',' * (len(extents) == 1)})"
        random = f"_random({shape}, {type_}, {operand.unit}, device)"
        arguments[operand.name] = "_ends(G, T, device)" if operand.name == "offsets" else random
    return arguments


def _is_license(text: str) -> bool:
    """Whether `text` is a licence's identifier on the Hub: one of its own, or one of SPDX in lower case."""
    if text in _LICENSES:
        return True
    license = license_expression(text) if re.fullmatch(r"[a-z0-9.+-]{1,64}", text) else None
    return license is not None and license.lower() == text


def _is_repository(text: str) -> bool:
    """Whether the Hub takes `text` as the name of a repository of an owner."""
    parts = text.split("/")
    plain = len(parts) == 2 and all(_PART.fullmatch(part) for part in parts)
    return plain and len(text) <= 96 and not {"--", ".."} & {a + b for a, b in pairwise(text)} and text[-4:] != ".git"


def _quoted(words: Sequence[str]) -> str:
    return ", ".join(f'"{word}"' for word in words)
