"""The names of GPUs as people and drivers write them, `h100` or `NVIDIA H100 80GB HBM3`, and their architectures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from generator.language.errors import nearest
from generator.language.targets import TARGETS

#: Architecture -> its GPUs, without spaces and makers. Those that are no targets are not supported.
_OF_ARCHITECTURE: Mapping[str, str] = {
    "sm60": "p100",
    "sm61": "p4 p40 gtx1080 gtx1080ti",
    "sm70": "v100 v100s titanv",
    "sm75": "t4 t4g rtx2060 rtx2070 rtx2080 rtx2080ti rtx5000 rtx6000 rtx8000 titanrtx",
    "sm80": "a30 a100 a100x a800",
    "sm86": """
        a2 a10 a10g a10m a16 a40 a4000 a4500 a5000 a5500 a6000 rtxa2000 rtxa4000 rtxa4500 rtxa5000 rtxa5500 rtxa6000
        rtx3050 rtx3060 rtx3060ti rtx3070 rtx3070ti rtx3080 rtx3080ti rtx3090 rtx3090ti
    """,
    "sm87": "orin agxorin jetsonorin jetsonagxorin",
    "sm89": """
        l2 l4 l20 l40 l40g l40s rtx4050 rtx4060 rtx4060ti rtx4070 rtx4070super rtx4070ti rtx4070tisuper rtx4080
        rtx4080super rtx4090 rtx4090d rtx2000ada rtx4000ada rtx4500ada rtx5000ada rtx5880ada rtx6000ada
    """,
    "sm90": "gh200 h20 h100 h200 h800",
    "sm100": "b100 b200 gb200",
    "sm103": "b300 gb300",
    "sm110": "thor agxthor jetsonthor jetsonagxthor",
    "sm120": """
        rtx5050 rtx5060 rtx5060ti rtx5070 rtx5070ti rtx5080 rtx5090 rtx5090d rtxpro2000 rtxpro4000 rtxpro4500
        rtxpro5000 rtxpro6000
    """,
    "sm121": "gb10 dgxspark",
    "gfx906": "mi50 mi60 radeonvii",
    "gfx908": "mi100",
    "gfx90a": "mi200 mi210 mi250 mi250x",
    "gfx942": "mi300 mi300a mi300x mi308x mi325x",
    "gfx950": "mi350 mi350x mi355x",
    "gfx1030": "rx6800 rx6800xt rx6900xt rx6950xt w6800 prow6800",
    "gfx1100": "rx7900gre rx7900xt rx7900xtx w7800 w7900 prow7800 prow7900",
    "gfx1101": "rx7700xt rx7800xt w7700 prow7700",
    "gfx1102": "rx7600 rx7600xt",
    "gfx1151": "strixhalo 8060s",
    "gfx1200": "rx9060 rx9060xt",
    "gfx1201": "rx9070 rx9070gre rx9070xt r9700 aipror9700",
}
#: The names of the GPUs of each architecture.
ARCHITECTURES: Mapping[str, tuple[str, ...]] = {each: tuple(names.split()) for each, names in _OF_ARCHITECTURE.items()}
_ARCHITECTURES = {name: architecture for architecture, names in ARCHITECTURES.items() for name in names}
#: What stands in front of a name, and what may stand behind it: the form, the memory.
_MAKERS = frozenset({"nvidia", "amd", "geforce", "instinct", "radeon", "tesla", "quadro", "gpu"})
_FORM = re.compile(r"(sxm\d*|pcie|oam|nvl|\d+gb|hbm\d*e?|mig\w*|laptop|gpu|generation|blackwell|edition)*")


@dataclass(frozen=True)
class NamedGpu:
    """A GPU by the shortest of its names."""

    name: str
    architecture: str

    @property
    def supported(self) -> bool:
        """Whether its architecture is a target."""
        return self.architecture in TARGETS

    @property
    def description(self) -> str:
        """What it is, as part of a message that names it."""
        return f"is a GPU of {self.architecture}" + ("" if self.supported else ", which is not supported")


def gpu_of(text: str) -> NamedGpu | None:
    """The GPU that a text names, in any case, with spaces, hyphens or underscores, by itself or in full; or None."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    while words and words[0] in _MAKERS:
        words = words[1:]
    for count in range(len(words), 0, -1):
        joined = "".join(words[:count])
        # A form may stand close to the name: `h100sxm`, `a100-80gb`.
        for length in range(len(joined), 0, -1):
            name = joined[:length]
            if name in _ARCHITECTURES and _FORM.fullmatch(joined[length:]):
                return NamedGpu(name, _ARCHITECTURES[name])
    return None


def nearest_target(word: str, legal: Iterable[str] = TARGETS) -> str:
    """The end of a message about a word that is no target: the target of the GPU that it names, or the nearest one."""
    gpu, words = gpu_of(word), list(legal)
    if gpu is not None:
        return f"{word} {gpu.description}; legal: {', '.join(words)}"
    spelled = re.sub(r"[^a-z0-9]", "", word.lower())
    return nearest(spelled if spelled in words else word, words)
