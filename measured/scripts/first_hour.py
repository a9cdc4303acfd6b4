"""Run the commands of docs/first_hour.md as they are written there; keep what they print and how long they take.

python measured/scripts/first_hour.py [--json FILE]                       the steps that need no GPU
python measured/scripts/first_hour.py --gpu --wheel WHEEL [--json FILE]   those that need one

A step is a block of the page below a marker `<!-- step: NAME -->` or `<!-- gpu step: NAME -->`. The steps run one after
another in an empty folder, with an environment made afresh. Without a GPU the first step has a copy of the checkout, no
other step has, and pip needs a package index. With `--gpu` nothing is fetched: a wheel that was built before is
installed, and the environment also sees the packages of the Python that runs this script, torch among them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "first_hour.md"
RESULTS = ROOT / "measured" / "first_hour.json"
#: The environment and the checkout, as the page calls them.
ENVIRONMENT = "first"
CHECKOUT = "gemm-generator"
#: Where the steps run: Python, torch, Triton, and the GPU or the number of cores.
PLACE = """
import os, platform, torch, triton
names = ("python", platform.python_version()), ("torch", torch.__version__), ("triton", triton.__version__)
on = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{len(os.sched_getaffinity(0))} cores"
print(", ".join([on, *map(" ".join, names)]))
"""


def steps(text: str, mode: str) -> dict[str, str]:
    """The commands of a page by the names of their steps, for the mode `cpu` or `gpu`."""
    prefix = {"cpu": "", "gpu": "gpu "}[mode]
    commands = re.findall(rf"^<!-- {prefix}step: (\w+) -->\n```bash\n(.*?)^```$", text, re.M | re.S)
    if len(commands) != len(dict(commands)):
        raise ValueError(f"{PAGE.name}: two steps of the mode {mode} have one name")
    return dict(commands)


def check_out(folder: Path) -> None:
    """Copy the files of the checkout that git knows."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.rstrip("\0").split("\0"):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)


def variables(scratch: Path, mode: str) -> dict[str, str]:
    """The environment of every step: nothing of the checkout, and the programs of the new environment first."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL", "TRITON"))}
    # The Python of this script makes the new environment, whatever else is called python3.
    path = [str(scratch / ENVIRONMENT / "bin"), str(Path(sys.executable).parent), kept["PATH"]]
    kept |= {
        "PATH": os.pathsep.join(path),
        "HOME": str(scratch),
        "COLUMNS": "100",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    if mode == "gpu":
        return kept | {"PIP_NO_INDEX": "1"}
    # The CPU build of torch is enough, and constraints.txt names it.
    return kept | {"PIP_CONSTRAINT": str(ROOT / "constraints.txt"), "HF_HUB_OFFLINE": "1"}


def borrow(environment: Path) -> None:
    """Make an environment that also sees what is installed for this Python, pip too: nothing can be fetched."""
    venv.create(environment, with_pip=False, symlinks=True)
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")


def call(command: list[str], scratch: Path, mode: str) -> str:
    """What a program prints; one that fails ends this program."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    ran = subprocess.run(command, cwd=scratch, env=variables(scratch, mode), text=True, **pipes)
    if ran.returncode != 0:
        sys.exit(f"{ran.stdout}exit status {ran.returncode}: {command[-1]}")
    # A temporary folder has another name each time; a bar of progress is no line.
    lines = ran.stdout.replace(f"{scratch}/", "").splitlines()
    return "".join(f"{line.rpartition(chr(13))[2].rstrip()}\n" for line in lines)


def run(mode: str, wheel: Path | None) -> dict[str, object]:
    """Every step of a mode with its command, what it prints and its seconds."""
    done = []
    with tempfile.TemporaryDirectory(prefix="first_hour") as folder:
        scratch = Path(folder).resolve()
        if mode == "gpu":
            borrow(scratch / ENVIRONMENT)
            (scratch / "dist").mkdir()
            shutil.copy(wheel or "", scratch / "dist")
        else:
            check_out(scratch / CHECKOUT)
        for name, command in steps(PAGE.read_text(encoding="utf-8"), mode).items():
            begun = time.perf_counter()
            printed = call(["bash", "-euo", "pipefail", "-c", command], scratch, mode)
            seconds = time.perf_counter() - begun
            shutil.rmtree(scratch / CHECKOUT, ignore_errors=True)
            print(f"{name}: {seconds:.1f} s\n{printed}", flush=True)
            done.append({"step": name, "command": command, "printed": printed, "seconds": round(seconds, 1)})
        return {"place": call(["python", "-c", PLACE], scratch, mode).strip(), "steps": done}


def main() -> None:
    """Run the steps of one mode, and put them in the place of the earlier ones of this mode."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpu", action="store_true", help="run the steps that need a GPU (default: those that do not)")
    parser.add_argument("--wheel", type=Path, metavar="FILE", help="with --gpu: the wheel to install")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="FILE", help="the file of results")
    arguments = parser.parse_args()
    if arguments.gpu != (arguments.wheel is not None):
        parser.error("--gpu and --wheel go together")
    mode = "gpu" if arguments.gpu else "cpu"
    timed = run(mode, arguments.wheel)
    kept = json.loads(arguments.json.read_text(encoding="utf-8")) if arguments.json.is_file() else {}
    arguments.json.write_text(json.dumps({**kept, mode: timed}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
