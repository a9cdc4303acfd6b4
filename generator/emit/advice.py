"""Commands that messages advise: each does what the message says when it is copied into a shell."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from generator.files.program import program

#: Where families go by default, and where `--all` finds specs.
OUT, SPECS = Path("generated"), Path("specs")

#: More specs than this are named as `--all`, if the call has named them so.
_FEW = 3


def argument(path: Path) -> str:
    """The path of a spec as a word of a command line that is neither an option nor the name of a command."""
    text = str(path)
    return f"./{text}" if path.name == text and not path.suffix else _no_option(path)


def _no_option(path: Path) -> str:
    text = str(path)
    return f"./{text}" if text.startswith("-") else text


def rendering(
    specs: Sequence[Path],
    out: Path = OUT,
    only: str | None = None,
    force: bool = False,
    every: bool = False,
    package: str | None = None,
    additions: Sequence[str] = (),
) -> str:
    """The command that renders the specs; the call that advises it had `--all` (`every`), `--package` or `--with`."""
    short = every and len(specs) > _FEW and {*specs} <= {*SPECS.glob("*.yaml")}
    words = ["--all"] if short else [argument(path) for path in specs]
    words += ["--out", _no_option(out)] if out != OUT else []
    words += ["--package", package] if package is not None else []
    words += ["--with", ",".join(additions)] if additions else []
    if only is not None:
        words += [f"--only={only}"] if only.startswith("-") else ["--only", only]
    words += ["--force"] if force else []
    return f"{program()} {shlex.join(words)}"


def rendering_into(folder: Path) -> str:
    """The command that renders the family in `folder` again, of which a spec has the name."""
    names = (Path(f"{folder.name}.yaml"), SPECS / f"{folder.name}.yaml")
    return rendering([next((each for each in names if each.is_file()), Path("SPEC.yaml"))], folder.parent)
