"""What is kept: whole, without loss, and found again; its statistics."""

import math
from dataclasses import replace

import pytest

from generator.bench import measurements, stats
from generator.files.reading import FileError
from generator.language.errors import CallError
from tests.helpers.bench import records as samples
from tests.helpers.support import side_by_side


def test_a_file_gives_back_what_was_saved(tmp_path):
    refused = replace(samples.wrong(samples.side("row", "kernel", [1.0])), refused=True, forced=True)
    kept = samples.results(
        samples.record(samples.side("ours", "kernel", [1.5, 2.0]), samples.side("torch", "peer", [1.0, 3.0]), refused)
    )
    path = tmp_path / "deep" / "kept.json"
    samples.save(kept, path)
    assert measurements.load(path) == kept
    lines = [line.strip(" ,") for line in path.read_text().splitlines()]
    assert sum(line.startswith('{"label"') for line in lines) == 3, "each side stands on a line of its own"
    assert [each.name for each in path.parent.iterdir()] == ["kept.json"], "nothing is left beside it"


def test_a_file_of_another_format_is_refused(tmp_path):
    path = tmp_path / "other.json"
    path.write_text('{"format": 1, "records": []}')
    with pytest.raises(CallError, match=r"--json.*format 1, this version reads 2: name another file"):
        measurements.load(path)


def test_a_ratio_is_that_of_the_same_rounds():
    """The medians are 2 and 2, but in two rounds of three the peer takes twice as long, or half."""
    ours, peer = samples.side("ours", "kernel", [1.0, 2.0, 4.0]), samples.side("torch", "peer", [2.0, 4.0, 2.0])
    record = samples.record(ours, samples.side("other", "kernel", [2.0, 2.0, 2.0]), peer)
    first, second, torch = record.sides
    assert record.ratio(torch, first, "gpu") == stats.Ratio(2.0, 1.25, 2.0)
    assert record.ratio(first, second, "host") == stats.Ratio(1.0, 0.75, 1.5)
    assert record.ratio(second, first, "gpu") is None, "nothing reads it"
    assert record.ratio(torch, torch, "gpu") is None and record.ratio(None, first, "gpu") is None


def test_a_record_with_a_fault_is_not_found_again():
    ours = samples.side("ours", "kernel", [1.0])
    good = samples.record(ours)
    assert samples.results(good).find(good.key) == good
    assert samples.results(samples.record(samples.wrong(ours))).find(good.key) is None
    refused = samples.record(replace(samples.wrong(ours), refused=True))
    assert samples.results(refused).find(good.key) == refused, "a refusal is an answer"


def test_a_new_record_takes_the_place_of_the_old():
    ours = samples.side("ours", "kernel", [1.0])
    first, second = samples.record(ours), samples.record(ours, shape=(1, 2, 3))
    kept = samples.results(first, second)
    newer = replace(first, key="another kernel")
    kept.put(newer)
    assert kept.records == [newer, second]
    forced = replace(first, key="every row", method={**first.method, "configs": "all"})
    kept.put(forced)
    assert kept.records == [newer, second, forced]


def _add(path, name):
    for size in range(1, 6):
        mine = samples.results(samples.record(samples.side("ours", "kernel", [1.0]), shape=(size, 16, 16), case=name))
        mine.environments = {name: mine.environments["env"], **mine.environments}
        measurements.add(mine, mine.records, path)


def test_several_processes_add_to_one_file(tmp_path):
    path = tmp_path / "new" / "kept.json"
    assert side_by_side(_add, (path, "one"), (path, "two")) == [0, 0]
    found = measurements.load(path)
    assert len(found.records) == 10 and {each.case for each in found.records} == {"one", "two"}
    assert set(found.environments) == {"one", "two", "env"}


def test_what_no_reader_would_accept_is_not_written(tmp_path):
    with pytest.raises(FileError, match="NaN is not a finite number"):
        samples.save(
            samples.results(samples.record(samples.side("ours", "kernel", [math.nan]))), tmp_path / "kept.json"
        )
