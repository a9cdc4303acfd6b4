"""What the proof says of kernels with a mistake: planted.txt, which `python -m tests.bounds.planted` writes again.

A section is of kernels that are committed, or of the family of the spec that it begins with. A case is a kernel, what
of it is replaced (`-`) by what (`+`), and the verdict (`=>`): of the order of tiles, and of each operand whose accesses
are not all proved, the first detail. A new case is written without its verdict.
"""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

from generator.bounds import NotUnderstood
from tests.helpers.bounds.kernels import planted, proof_of
from tests.helpers.call_functions import with_names
from tests.helpers.changes import Section, sections
from tests.helpers.verify.rendered import rendered

PATH = Path(__file__).with_suffix(".txt")
#: Numbers of lines change with every text, and the sizes of a counterexample say less than what is wrong there.
_LINE, _SIZES = re.compile(r"\bline \d+"), re.compile(r"(?:\b\w+ = -?\d+, )*\b\w+ = -?\d+: ")


def verdicts(section: Section) -> list[list[str]]:
    """What the proof says of each case."""
    with TemporaryDirectory() as folder:
        family = rendered(Path(folder), "planted", section.preface) if section.preface else None
        found = []
        for case in section.cases:
            if family is None:
                text = planted(case.title, *case.replacements)
            else:
                text = family.file(case.title).read_text()
                for old, new in case.replacements:
                    assert text.count(old) == 1, f"{case.title} has {old!r} {text.count(old)} times"
                    text = text.replace(old, new)
                text = with_names(text)
            found.append(verdict(Path(folder), text))
        return found


def verdict(folder: Path, text: str) -> list[str]:
    """What the proof says of a text."""
    try:
        proof = proof_of(folder, text)
    except NotUnderstood as error:
        return [told(str(error))]
    found = {"order": told(proof.order.state, proof.order.detail)} if proof.order.state != "proved" else {}
    for access in proof.accesses:
        if access.state in ("refuted", "not proved"):
            found.setdefault(access.operand, told(access.state, access.detail))
    alike = {said: ", ".join(name for name in found if found[name] == said) for said in found.values()}
    return [f"{names} {said}" for said, names in alike.items()] or ["proved"]


def told(*words: str) -> str:
    """A verdict without what is of the text and of the counterexample."""
    return _LINE.sub("a line", _SIZES.sub("", ": ".join(words)))


def main() -> None:
    """Write what is said of every case now."""
    lines = []
    for name, section in sections(PATH).items():
        lines += [f"== {name}", *(f"| {line}" for line in section.preface.splitlines())]
        for case, said in zip(section.cases, verdicts(section), strict=True):
            lines += ["", f"-- {case.title}"]
            for change in case.changes:
                lines += [f"{mark} {line}" if line else mark for mark, part in zip("-+", change) for line in part]
            lines += [f"=> {line}" for line in said]
        lines.append("")
    PATH.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
