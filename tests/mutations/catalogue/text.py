"""Wrong text: what the static level sees in a file without running it."""

from __future__ import annotations

from ..mutation import Mutation, instead
from .kernels import CCC, ELEMENTWISE, MASKED, RELU, RRR, SILU, SSS

COMMENT = "# Store, rounding to fp16 once.\n"

MUTATIONS = (
    Mutation(
        "a hand edit",
        "text",
        SILU,
        (instead(COMMENT, "once", "twice"),),
        "the file is no longer what was proved",
        by="static",
        says="the file states",
        stale=frozenset({"digest", "manifest"}),
    ),
    Mutation(
        "a hand edit with its digest",
        "text",
        SILU,
        (instead(COMMENT, "once", "twice"),),
        "the file is no longer what the manifest tells of",
        by="static",
        says="it does not list",
        stale=frozenset({"manifest"}),
    ),
    Mutation(
        "an import that is not used",
        "text",
        RELU,
        (("import torch\n", "import math\n\nimport torch\n"),),
        "the reader looks for its use",
        by="static",
        says="F401",
    ),
    Mutation(
        "a local that is not used",
        "text",
        RRR,
        (("    pid = tl.program_id(0)\n", "    pid = tl.program_id(0)\n    programs = tl.num_programs(0)\n"),),
        "the reader looks for its use",
        by="static",
        says="F841",
    ),
    Mutation(
        "an undefined name in a branch that is seldom run",
        "text",
        SSS,
        (("choose=cheapest(cost)", "choose=cheapest(cost if M else y)"),),
        "NameError instead of the message",
        by="static",
        says="F821",
    ),
    Mutation(
        "a package that a stranger lacks",
        "text",
        CCC,
        (("import torch\n", "import numpy\nimport torch\n"),),
        "the file needs torch and triton alone",
        by="static",
        says="it imports numpy",
    ),
    Mutation(
        "a letter that is not ASCII",
        "text",
        MASKED,
        (
            ("    pid = tl.program_id(0)\n", "    \N{MICRO SIGN} = pid = tl.program_id(0)\n"),
            ("    pid_m = pid // num_n\n", "    pid_m = \N{MICRO SIGN} // num_n\n"),
        ),
        "read with another encoding it is another text",
        by="static",
        says="is not",
    ),
    Mutation(
        "a line that the formatter would change",
        "text",
        MASKED,
        (("pid = tl.program_id(0)", "pid = tl.program_id( 0 )"),),
        "the first edit of a stranger changes more than he meant",
        by="static",
        says="ruff format",
    ),
    Mutation(
        "a file that does not parse",
        "text",
        ELEMENTWISE,
        (("\n@triton.jit\ndef ", "\n@triton.jit\ndef def "),),
        "it cannot be imported",
        by="static",
    ),
)
