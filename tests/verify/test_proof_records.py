"""The record of what was proved: joined over runs on one machine, and told as a table."""

from dataclasses import replace
from pathlib import Path

import pytest

from generator.language.errors import CallError
from generator.verify.jobs import Job, JobResult, Subject
from generator.verify.proof_records import read, renew, table, write
from tests.helpers.support import side_by_side

CPU = (("device", "interpreter"), ("python", "3.11.1"), ("torch", "2.13.0"), ("triton", "3.7.1"))
GPU = (("device", "a GPU"), ("python", "3.12.3"), ("torch", "2.11.0"), ("triton", "3.6.0"))


def subject(name, *, host=True):
    """What is proved of a kernel; at the compile level without the host's code."""
    return Subject(name, f"device code of {name}", f"host code of {name}" if host else "")


def interpreted(name, place=CPU):
    return JobResult(Job("interpret", Path("f"), name), 5, worst_error=0.51234, subject=subject(name), place=place)


def compiled(name):
    job = Job("compile", Path("f"), name, target="sm90")
    figures = [("row0-aligned", 98304, 100), ("row1-aligned", 4096, 180), ("row2-refused", 10**6, 255)]
    measured = tuple(
        (name, (("shared", shared), ("tensor_memory", 0), ("registers", registers), ("spilled", 0)))
        for name, shared, registers in figures
    )
    return JobResult(job, 3, measured=measured, subject=subject(name, host=False), place=CPU[1:])


@pytest.fixture
def path(tmp_path):
    """A record."""
    return tmp_path / "r.json"


def test_runs_on_one_machine_are_joined(path):
    write(path, [interpreted("one")])
    write(path, [compiled("one"), interpreted("two")])
    found = read(path)
    assert found.place == dict(CPU)
    assert found.proved == {
        subject("one"): {"interpret": {"cases": 5, "worst_error": 0.5123}},
        subject("one", host=False): {"compile sm90": {"cases": 3, "shared": 98304, "registers": 180}},
        subject("two"): {"interpret": {"cases": 5, "worst_error": 0.5123}},
    }


def part_of(result, *chosen):
    """The result where those launches alone were chosen."""
    return replace(result, job=replace(result.job, chosen=chosen), cases=len(chosen), measured=result.measured[:1])


def test_part_of_the_cases_leaves_more_of_them_as_recorded(path):
    assert write(path, [compiled("one"), compiled("two")]) == []
    before = read(path)
    told = write(path, [part_of(compiled("one"), "row0-aligned"), part_of(compiled("two"), "row0-aligned")])
    assert read(path) == before
    assert told == [
        f"{path}: the compile sm90 records of 2 kernels stay, with more cases than this run: one (3 cases, here 1), "
        "and others"
    ]
    (line,) = write(path, [part_of(compiled("two"), "row0-aligned"), interpreted("two")])
    told = "the compile sm90 record of 1 kernel stays, with more cases than this run: two (3 cases, here 1)"
    assert line == f"{path}: {told}"
    after = read(path).proved
    assert after.items() >= before.proved.items() and "interpret" in after[subject("two")]


def test_more_cases_and_whole_runs_take_the_place_of_fewer(path):
    """A whole run does so whatever it comes to: the harness may have fewer cases than it had."""
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
        assert read(path).proved[subject("one", host=False)]["compile sm90"]["cases"] == cases
    assert read(path).proved[subject("one", host=False)]["compile sm80"]["cases"] == 1


def test_what_had_no_memory_leaves_what_had(path):
    write(path, [interpreted("one")])
    less = replace(interpreted("one"), cases=4, not_proved=(("huge-c", "no memory"),))
    (line,) = write(path, [less])
    assert "the interpret record of 1 kernel stays, with more cases than this run" in line
    assert read(path).proved[subject("one")]["interpret"]["cases"] == 5
    # What is not understood any more counts as what is found now.
    bounds = replace(interpreted("one"), job=replace(less.job, level="bounds"))
    write(path, [bounds])
    assert write(path, [replace(bounds, cases=4, not_proved=less.not_proved)]) == []
    assert read(path).proved[subject("one")]["bounds"]["cases"] == 4


def test_cases_chosen_by_name_are_not_recorded_and_that_is_said(path):
    one = interpreted("one")
    write(path, [one])
    before = read(path)
    (line,) = write(path, [replace(one, job=replace(one.job, case="prime*"), cases=1)])
    assert line == f"{path}: no result is recorded, because --case runs only some of the cases"
    assert read(path) == before


def test_runs_on_two_machines_are_not(path):
    write(path, [interpreted("one")])
    before = path.read_text()
    with pytest.raises(CallError, match=r"has results of .*, but these are of"):
        write(path, [interpreted("two", GPU)])
    assert path.read_text() == before


def test_a_run_over_all_kernels_keeps_what_was_proved_besides_of_those_that_are_left(tmp_path):
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    write(old, [interpreted("one"), compiled("one"), interpreted("gone")])
    write(new, [replace(interpreted("one"), cases=7), interpreted("two")])
    renew(old, new)
    found = read(old)
    assert found.proved.keys() == {subject("one"), subject("one", host=False), subject("two")}
    assert found.proved[subject("one")]["interpret"]["cases"] == 7


def test_a_run_over_all_kernels_replaces_what_was_proved_by_other_versions(tmp_path):
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    write(old, [interpreted("one"), compiled("one")])
    later = dict(CPU) | {"torch": "2.14.0"}
    write(new, [interpreted("one", tuple(later.items()))])
    renew(old, new)
    assert read(old) == read(new)
    old.unlink()
    renew(old, new)
    assert read(old) == read(new)


def test_the_table_counts_what_is_current(tmp_path):
    write(tmp_path / "cpu.json", [interpreted("one"), interpreted("two"), compiled("one")])
    gpu = JobResult(Job("gpu", Path("f"), "one"), 9, subject=subject("one"), place=GPU)
    write(tmp_path / "gpu.json", [gpu])
    current = {subject("one"), subject("one", host=False), subject("three")}
    assert table([tmp_path / "cpu.json", tmp_path / "gpu.json"], current)[0].splitlines()[2:] == [
        "| compile | sm90 | 3.7.1 | 2.13.0 | 1 | 3 |",
        "| gpu | a GPU | 3.6.0 | 2.11.0 | 1 | 9 |",
        "| interpret | no GPU | 3.7.1 | 2.13.0 | 1 | 5 |",
    ]


def test_what_was_compiled_stands_beside_other_code_of_the_host(path, tmp_path):
    other = replace(subject("one"), host="other host code of one")
    write(path, [interpreted("one"), compiled("one")])
    assert [line.split(" | ")[0] for line in table([path], {other, replace(other, host="")})[0].splitlines()[2:]] == [
        "| compile"
    ]
    # Two families may have one kernel with two launchers: what ran of each stands in the same line.
    write(path, [replace(interpreted("one"), subject=other, cases=6)])
    assert len(path.read_text().splitlines()) == 6
    assert [read(path).proved[each]["interpret"]["cases"] for each in (subject("one"), other)] == [5, 6]
    fresh = tmp_path / "fresh.json"
    write(fresh, [replace(interpreted("one"), subject=other, cases=7)])
    renew(path, fresh)
    assert read(path).proved.keys() == {other, subject("one", host=False)}


def test_another_kernel_of_the_same_code_is_another(path):
    """Types of operands are in the name, and not always in what the compiler sees."""
    write(path, [compiled("one")])
    current = {replace(subject("one", host=False), kernel="two")}
    assert len(table([path], current)[0].splitlines()) == 2


def test_static_and_functions_of_contracts_are_not_recorded(path):
    static = JobResult(Job("static", Path("f"), "one"), 1)
    function = JobResult(Job("interpret", Path("f"), "one", contract=True), 4)
    nothing = replace(interpreted("one"), cases=0)
    write(path, [static, function, nothing])
    assert read(path).proved == {}


def test_a_table_without_a_row_says_why(path):
    write(path, [])
    assert table([path], {subject("one")})[1] == f"--table: {path}: no proof is recorded"
    write(path, [interpreted("one")])
    assert table([path], {subject("one")})[1] is None
    told = table([path], {subject("two")})[1]
    assert told is not None and "none of 1 recorded proofs counts: 1 are of code" in told


def _write(path, name):
    for number in range(4):
        write(path, [interpreted(f"{name}{number}")])


def test_several_processes_add_to_one_file(path):
    assert side_by_side(_write, (path, "a"), (path, "b")) == [0, 0]
    assert {each.kernel for each in read(path).proved} == {f"{name}{number}" for name in "ab" for number in range(4)}
