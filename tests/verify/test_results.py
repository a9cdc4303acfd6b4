"""The record of what was proved: joined over runs on one machine, and told as a table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from generator.errors import CallError
from generator.verify.jobs import Job, Result
from generator.verify.results import read, table, write

CPU = (("device", "interpreter"), ("python", "3.11.1"), ("torch", "2.13.0"), ("triton", "3.7.1"))
GPU = (("device", "a GPU"), ("python", "3.12.3"), ("torch", "2.11.0"), ("triton", "3.6.0"))


def interpreted(name: str, place: tuple[tuple[str, str], ...] = CPU) -> Result:
    return Result(Job("interpret", Path("f"), name), 5, worst_error=0.51234, digest=f"digest of {name}", place=place)


def compiled(name: str) -> Result:
    job = Job("compile", Path("f"), name, target="sm90")
    figures = [("row0-aligned", 98304, 100), ("row1-aligned", 4096, 180), ("row2-refused", 10**6, 255)]
    measured = tuple(
        (name, (("shared", shared), ("tensor_memory", 0), ("registers", registers), ("spilled", 0)))
        for name, shared, registers in figures
    )
    return Result(job, 3, measured=measured, digest=f"digest of {name}", place=CPU[1:])


def test_runs_on_one_machine_are_joined(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    write(path, [interpreted("one")])
    write(path, [compiled("one"), interpreted("two")])
    found = read(path)
    assert found["place"] == dict(CPU)
    assert found["kernels"]["digest of one"] == {
        "kernel": "one",
        "interpret": {"cases": 5, "worst_error": 0.5123},
        "compile sm90": {"cases": 3, "shared": 98304, "registers": 180},
    }
    assert found["kernels"].keys() == {"digest of one", "digest of two"}


def test_runs_on_two_machines_are_not(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    write(path, [interpreted("one")])
    before = path.read_text()
    with pytest.raises(CallError, match="holds results of"):
        write(path, [interpreted("two", GPU)])
    assert path.read_text() == before


def test_levels_that_need_no_device_are_joined_with_the_interpreters(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    for first, second in ((compiled("one"), interpreted("one")), (interpreted("one"), compiled("one"))):
        path.unlink(missing_ok=True)
        write(path, [first])
        write(path, [second])
        found = read(path)
        assert found["place"] == dict(CPU)
        assert found["kernels"]["digest of one"].keys() == {"kernel", "interpret", "compile sm90"}


def test_a_line_a_kernel(tmp_path: Path) -> None:
    write(tmp_path / "r.json", [interpreted("two"), interpreted("one")])
    lines = (tmp_path / "r.json").read_text().splitlines()
    assert [json.loads("{" + line.rstrip(",") + "}") for line in lines[3:5]]
    assert '"one"' in lines[3] and '"two"' in lines[4]


def test_the_table_counts_what_is_current(tmp_path: Path) -> None:
    write(tmp_path / "cpu.json", [interpreted("one"), interpreted("two"), compiled("one")])
    gpu = Result(Job("gpu", Path("f"), "one"), 9, digest="digest of one", place=GPU)
    write(tmp_path / "gpu.json", [gpu])
    current = {"digest of one": "one", "digest of three": "three"}
    assert table([tmp_path / "cpu.json", tmp_path / "gpu.json"], current).splitlines()[2:] == [
        "| compile | sm90 | 3.7.1 | 2.13.0 | 1 | 3 |",
        "| gpu | a GPU | 3.6.0 | 2.11.0 | 1 | 9 |",
        "| interpret | no GPU | 3.7.1 | 2.13.0 | 1 | 5 |",
    ]


@pytest.mark.parametrize("text", ["", "[]", '{"place": 1, "kernels": {}}'])
def test_a_file_that_holds_no_results_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(CallError, match="holds no results"):
        read(tmp_path / "r.json")
