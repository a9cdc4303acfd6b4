"""The record of what was proved: joined over runs on one machine, and told as a table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from generator.errors import CallError
from generator.verify.jobs import Job, Result
from generator.verify.results import read, renew, table, write

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


def part_of(result: Result, *chosen: str) -> Result:
    """The result where those launches alone were chosen."""
    return replace(result, job=replace(result.job, chosen=chosen), cases=len(chosen), measured=result.measured[:1])


def test_part_of_the_cases_leaves_more_of_them_as_recorded(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    assert write(path, [compiled("one"), compiled("two")]) == []
    before = read(path)
    told = write(path, [part_of(compiled("one"), "row0-aligned"), part_of(compiled("two"), "row0-aligned")])
    assert read(path) == before
    assert told == [
        f"{path}: compile sm90 of 2 kernels stay as recorded, where more cases ran: one (3, here 1), and others"
    ]
    (line,) = write(path, [part_of(compiled("two"), "row0-aligned"), interpreted("two")])
    assert line == f"{path}: compile sm90 of 1 kernel stays as recorded, where more cases ran: two (3, here 1)"
    after = read(path)["kernels"]["digest of two"]
    assert after["compile sm90"] == before["kernels"]["digest of two"]["compile sm90"] and "interpret" in after


def test_more_cases_and_whole_runs_take_the_place_of_fewer(tmp_path: Path) -> None:
    """A whole run does so whatever it comes to: the harness may have fewer cases than it had."""
    path = tmp_path / "r.json"
    some = part_of(compiled("one"), "row0-aligned")
    other = replace(compiled("one"), job=replace(compiled("one").job, target="sm80"))
    for results, cases in (
        ([some], 1),
        ([part_of(compiled("one"), "row0-aligned", "row1-aligned")], 2),
        ([compiled("one")], 3),
        ([replace(compiled("one"), cases=2)], 2),
        # Of another target nothing is known, of the same kernel in two families the fuller counts.
        ([part_of(other, "row0-aligned")], 2),
        ([compiled("one"), some], 3),
        ([some, compiled("one")], 3),
    ):
        assert write(path, results) == []
        assert read(path)["kernels"]["digest of one"]["compile sm90"]["cases"] == cases
    assert read(path)["kernels"]["digest of one"]["compile sm80"]["cases"] == 1


def test_what_had_no_memory_leaves_what_had(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    write(path, [interpreted("one")])
    less = replace(interpreted("one"), cases=4, not_proved=(("huge-c", "no memory"),))
    (line,) = write(path, [less])
    assert "interpret of 1 kernel stays as recorded" in line
    assert read(path)["kernels"]["digest of one"]["interpret"]["cases"] == 5
    # What is not understood any more counts as what is found now.
    bounds = replace(interpreted("one"), job=replace(less.job, level="bounds"))
    write(path, [bounds])
    assert write(path, [replace(bounds, cases=4, not_proved=less.not_proved)]) == []
    assert read(path)["kernels"]["digest of one"]["bounds"]["cases"] == 4


def test_cases_chosen_by_name_are_not_recorded_and_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    one = interpreted("one")
    write(path, [one])
    before = read(path)
    (line,) = write(path, [replace(one, job=replace(one.job, case="prime*"), cases=1)])
    assert line == f"{path}: nothing of what ran is recorded, for --case takes some of the cases alone"
    assert read(path) == before


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


def test_a_run_over_all_kernels_keeps_what_was_proved_besides_of_those_that_are_left(tmp_path: Path) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    write(old, [interpreted("one"), compiled("one"), interpreted("gone")])
    write(new, [replace(interpreted("one"), cases=7), interpreted("two")])
    renew(old, new)
    found = read(old)["kernels"]
    assert found.keys() == {"digest of one", "digest of two"}
    assert found["digest of one"].keys() == {"kernel", "interpret", "compile sm90"}
    assert found["digest of one"]["interpret"]["cases"] == 7


def test_a_run_over_all_kernels_replaces_what_was_proved_by_other_versions(tmp_path: Path) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    write(old, [interpreted("one"), compiled("one")])
    later = dict(CPU) | {"torch": "2.14.0"}
    write(new, [interpreted("one", tuple(later.items()))])
    renew(old, new)
    assert read(old) == read(new)
    old.unlink()
    renew(old, new)
    assert read(old) == read(new)


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
