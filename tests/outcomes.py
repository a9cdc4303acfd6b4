"""What specs and wrong calls come to, word for word: outcomes.txt, which `python -m tests.outcomes` writes again.

The only place where the whole text of such a message stands. A new case is a few lines of a spec, or a call behind `$`;
what is written behind `=>` is for a reviewer to read. A spec has those of summary, layout and dtype that a case leaves
out, but in the sections of whole files. A call is made in a folder with family.yaml and the families that it names.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
from pathlib import Path
from tempfile import TemporaryDirectory

from generator.commands.command_line import main as command_line
from generator.language.errors import SpecError
from generator.plan.configurations import label
from tests.helpers import shipped
from tests.helpers.support import BASE, ROOT, family_of

PATH = Path(__file__).with_suffix(".txt")
GIVES, SECTION, WHOLE, CALL = "=> ", "== ", "whole files: ", "$ "

#: The texts of a section, each with what it comes to.
Sections = dict[str, list[tuple[str, list[str]]]]


def sections() -> Sections:
    """The cases as they are written."""
    found: Sections = {}
    cases: list[tuple[str, list[str]]] = []
    behind = True
    for line in PATH.read_text(encoding="utf-8").split("\n"):
        if line.startswith(SECTION):
            cases = found[line.removeprefix(SECTION)] = []
            behind = True
        elif line.startswith(GIVES):
            cases[-1][1].append(line.removeprefix(GIVES))
            behind = True
        elif not behind:
            cases[-1] = (f"{cases[-1][0]}{line}\n", [])
        elif line:
            cases.append((f"{line}\n", []))
            behind = False
    return found


def whole(section: str, text: str) -> str:
    """The file of a case."""
    own = {line.partition(":")[0] for line in text.splitlines()}
    added = [line for line in BASE.splitlines(keepends=True) if line.partition(":")[0] not in own]
    return text if section.startswith(WHOLE) else "".join(added) + text


def outcome(section: str, text: str) -> list[str]:
    """The mistakes of a spec with their places; of one without, its kernels, and what is left out for which reason."""
    if text.startswith(CALL):
        return call(text.removeprefix(CALL))
    try:
        family = family_of(whole(section, text))
    except SpecError as error:
        return [f"{m.line}:{m.column}: {m.message}" for m in error.mistakes]
    tiles = "tile:" in text
    lines = [f"warning: {m.line}:{m.column}: {m.message}" for m in family.spec.warnings]
    for kernel in family.kernels:
        rows = [label(kernel.variant, tile).removeprefix("tile ") for tile in kernel.tiles] if tiles else []
        lines.append("; ".join([f"{kernel.name} on {' '.join(kernel.targets)}", *rows]))
    for each in family.gradients:
        products = [f"{x.contract}{' transposed' * x.turned}" for x in (each.a, each.b)]
        saved = [f"{name} {value}" for name, value in (("saving", each.saving), ("sum", each.sum)) if value]
        lines.append(f"gradient of {each.contract}: {', '.join([*products, *saved, *['chained'] * each.chained])}")
    left = [left for left in family.left_out if tiles or not left.reason.startswith("tile ")]
    return lines + [f"no {x.name}" + f" on {x.target}" * bool(x.target) + f": {x.reason}" for x in left]


def call(words: str) -> list[str]:
    """What a call that does nothing says, less how it is used, and with which status it ends."""
    said, before = io.StringIO(), Path.cwd()
    with TemporaryDirectory() as folder, contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        here = Path(folder)
        (here / "family.yaml").write_text(f"{BASE}epilogue: [none, bias]\n")
        (here / "specs").symlink_to(ROOT / "specs")
        (here / "generated").mkdir()
        for name in {*re.findall(r"(?:generated|specs)/(\w+)", words)} & {
            path.stem for path in (ROOT / "specs").glob("*.yaml")
        }:
            (here / "generated" / name).symlink_to(shipped.folder(name))
        os.chdir(here)
        try:
            status: object = command_line(shlex.split(words))
        except SystemExit as ended:
            status = ended.code
        finally:
            os.chdir(before)
        assert {path.name for path in here.iterdir()} == {"family.yaml", "generated", "specs"}, words
    lines = [line for line in said.getvalue().splitlines() if not line.startswith(("usage: ", " "))]
    # Versions of Python list the choices in different ways.
    return [*(line.partition(" (choose from ")[0].replace(str(ROOT), "ROOT") for line in lines), f"status {status}"]


def main() -> None:
    """Write what every case comes to now."""
    lines = []
    for section, cases in sections().items():
        lines.append(f"{SECTION}{section}\n")
        lines += [
            text + "".join(f"{GIVES}{each}\n" for each in outcome(section, text)) for text in dict.fromkeys(dict(cases))
        ]
    PATH.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
