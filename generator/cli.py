"""The command line: `python -m generator SPEC...` renders; COMMANDS are subcommands."""

from __future__ import annotations

import argparse
import codecs
import contextlib
import importlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import generator
from generator.cost import tuned
from generator.emit.advice import OUT, SPECS
from generator.emit.apply import MANIFEST, Refused, has_manifest
from generator.emit.differences import check, diff
from generator.emit.job import Job, counted, render
from generator.emit.staging import stage
from generator.files.reading import FileError
from generator.language.errors import CallError, Mistake, SpecError
from generator.plan.families import families
from generator.plan.kernels import Family

_SHOWN = "generator.shown"

#: Subcommand -> the module whose `main` runs it. The first four need torch and triton.
COMMANDS = {
    "verify": "generator.verify.cli",
    "prepare": "generator.verify.ahead_of_time",
    "bench": "generator.bench.cli",
    "tune": "generator.tune.cli",
    "schema": "generator.language.schema",
    "new": "generator.emit.scaffold",
    "explain": "generator.tune.explain",
    "package": "generator.emit.package",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status.

    0: done. 1: a check failed, a file is in the way, or one cannot be read or written. 2: a spec or the command line is
    wrong. 130: interrupted.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    _set_error_handlers()
    try:
        named = bool(arguments) and arguments[0] in COMMANDS
        status = _command(arguments[0])(arguments[1:]) if named else _render(arguments)
        # There is no standard output if the caller has closed it.
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except SpecError as error:
        print(error, file=sys.stderr)
        return 2
    except CallError as error:
        print(f"python -m generator: {error}", file=sys.stderr)
        return 2
    except (Refused, FileError) as error:
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of the output has closed it, as `head` does.
        _discard_output()
        return 0
    except OSError as error:
        print(f"{error.filename or 'a file or the output'}: {error.strerror or error}", file=sys.stderr)
        try:
            sys.stdout.flush()
        except OSError:
            _discard_output()
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _set_error_handlers() -> None:
    """Let the output take the text of a spec and a path, which may have characters that its encoding lacks."""
    codecs.register_error(_SHOWN, _shown)
    streams = [stream for stream in (sys.stdout, sys.stderr) if isinstance(stream, io.TextIOWrapper)]
    # Python escapes bytes of paths so where the system's settings have no encoding for them.
    ascii_only = any(stream.errors in ("surrogateescape", _SHOWN) for stream in streams)
    for stream in streams:
        if ascii_only or stream.errors == "strict":
            stream.reconfigure(errors=_SHOWN if ascii_only else "backslashreplace")


def _shown(error: UnicodeError) -> tuple[str | bytes, int]:
    """Encode the bytes of a path as they are, and other characters that the encoding lacks as escapes."""
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeError:
        return codecs.lookup_error("backslashreplace")(error)


def _discard_output() -> None:
    """Let what is left to flush at the end go nowhere: it cannot be written."""
    with contextlib.suppress(OSError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _command(name: str) -> Callable[[list[str]], int]:
    try:
        found: Callable[[list[str]], int] = importlib.import_module(COMMANDS[name]).main
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("generator"):
            raise
        raise CallError(f"{name} needs {error.name}; install the extra: pip install 'gemm-generator[gpu]'") from None
    return found


def parser() -> argparse.ArgumentParser:
    """The parser of the rendering command."""
    made = argparse.ArgumentParser(
        prog="python -m generator",
        description="Render standalone Triton GEMM kernels from YAML specs.",
        epilog=f"Commands, each with --help: {', '.join(COMMANDS)}; write ./verify for a spec file of that name.",
        allow_abbrev=False,
    )
    made.add_argument("specs", nargs="*", type=Path, metavar="SPEC", help="a spec file; each makes one family")
    made.add_argument("--all", action="store_true", help="every spec in specs/")
    made.add_argument("--out", type=Path, default=OUT, metavar="DIR", help="where families go (default: generated)")
    made.add_argument("--only", metavar="GLOB", help="only kernels whose name matches")
    made.add_argument("--force", action="store_true", help="overwrite files edited by hand")
    made.add_argument("--stage", action="store_true", help="add what was rendered to git's index")
    made.add_argument("--json", action="store_true", help="with --list: as JSON")
    made.add_argument("--version", action="version", version=f"%(prog)s {generator.__version__}")
    mode = made.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="print which files would change; write nothing")
    mode.add_argument("--diff", action="store_true", help="print what would change as a unified diff; write nothing")
    mode.add_argument("--list", action="store_true", help="print the variants and what was left out; write nothing")
    return made


def spec_paths(specs: Sequence[Path], every: bool) -> list[Path]:
    """The spec files of a call; raise `CallError` if there are none."""
    paths = list(specs)
    if every:
        found = sorted(SPECS.glob("*.yaml"))
        if not found:
            raise CallError(f"--all: no spec found as {SPECS}/*.yaml")
        paths += [path for path in found if path not in paths]
    if not paths:
        raise CallError("no spec given; name one, such as specs/fp16_rcr.yaml, or use --all (--help for more)")
    return paths


def _render(arguments: list[str]) -> int:
    options = parser().parse_args(arguments)
    if options.json and not options.list:
        raise CallError("--json goes with --list")
    for name in ("force", "stage"):
        if getattr(options, name) and (options.check or options.diff or options.list):
            raise CallError(f"--{name} goes with rendering, not with --check, --diff or --list")
    found = families(spec_paths(options.specs, options.all))
    for family in found:
        for warning in (*family.spec.warnings, *_not_entered(family)):
            print(f"{warning.path}:{warning.line}:{warning.column}: warning: {warning.message}", file=sys.stderr)
    jobs = [Job(family, options.out, options.only, options.force) for family in found]
    if options.only is not None and not any(job.selected for job in jobs):
        names = [kernel.name for family in found for kernel in family.kernels]
        raise CallError(f"--only {options.only!r} matches no kernel; there are {len(names)}, the first {names[0]}")
    if options.list:
        return _list(jobs, options.json)
    if options.check or options.diff:
        orphans = _orphans(options.out, found) if options.all else []
        return check(jobs, orphans, options.all) if options.check else diff(jobs, orphans)
    status = render(jobs)
    if options.stage:
        stage(jobs)
    return status


def _not_entered(family: Family) -> Iterator[Mistake]:
    """What of the spec's measurements does not enter the family."""
    for file, told in tuned.left_out(family):
        yield Mistake(family.spec.path, *family.spec.positions["tuned", file], f"tuned: {file!r} {told}")


def _orphans(out: Path, found: Sequence[Family]) -> list[Path]:
    """Rendered folders that belong to no spec."""
    names = {family.spec.name for family in found}
    folders = sorted(path.parent for path in out.glob(f"*/{MANIFEST}"))
    return [folder for folder in folders if folder.name not in names and has_manifest(folder)]


def _list(jobs: Sequence[Job], as_json: bool) -> int:
    if as_json:
        print(json.dumps([job.listing() for job in jobs], indent=1))
        return 0
    for job in jobs:
        print(f"{job.family.spec.name}: {counted(len(job.selected), 'kernel')} from {job.family.spec.path}")
        for kernel in job.selected:
            print(f"  {kernel.name}  [{' '.join(kernel.targets)}]")
        left = job.left_out
        if left:
            print(f"  left out: {len(left)}")
        for entry in left:
            print(f"  - {entry.name}{f' on {entry.target}' if entry.target else ''}: {entry.reason}")
    return 0
