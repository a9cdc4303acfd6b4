"""Files of machines with odd values: each is read with its meaning, or refused with its path, a line and the reason."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from generator.bench import measurements, results_report
from generator.bench.suite import read_shapes, read_suite
from generator.emit.report import page
from generator.files.reading import FileError
from generator.files.updating import put
from generator.language.errors import CallError, SpecError
from generator.language.spec import read as read_spec
from generator.plan.expand import expand
from generator.problem.grouping import EVEN
from generator.problem.product import Shape
from generator.tune import tuning_report, winners
from generator.tune.journal import Journal
from generator.tune.outcome import Chosen, ConfirmedWinner, Timed, TrialFailure, TrialOutcome, row_of
from generator.tune.rate_fit import RateFit
from generator.tune.samples import samples_of
from generator.tune.winners import MeasurementSource, Winners
from generator.verify import proof_records
from tests.helpers import tuned_file as tuned_files
from tests.helpers.bench import records
from tests.helpers.odd_files import VALUES, mutated

ROW = {"BLOCK_M": 16, "BLOCK_N": 16, "num_warps": 1}
PLACE = MeasurementSource("NVIDIA H200", 132, "2.11.0", "3.6.0")
ONE, TWO = "gmm_fp16_rcr_none__one", "gmm_fp16_rcr_none__two"
OUTCOME = TrialOutcome(
    (Timed(ONE, ROW, 2e-6),),
    (TrialFailure(TWO, ROW, "wrong result"), TrialFailure("torch.matmul", None, "no such type", refused=True)),
    ConfirmedWinner("gmm_fp16_rcr_none", Shape(8, 8, 16, 0, 0, 4, "zipf"), ONE, ROW, 1e-6, 2e-6, Timed(TWO, ROW, 2e-6)),
    "torch.matmul",
    None,
    True,
    Chosen(TWO, ROW, 3e-6, True),
)


def _journal(path):
    with Journal(path) as journal:
        journal.append("first", "family/one 16x16x16", TrialOutcome(lost="no answer"), PLACE, {ONE: "ab"})
        journal.append("second", "family/gmm_fp16_rcr_none 4g8x8x16", OUTCOME, PLACE, {ONE: "ab", TWO: "cd"})


def _read_journal(path):
    journal = Journal(path)
    standing = [each for place in journal.places for each in journal.standing(place, "family", {ONE: "ab", TWO: "cd"})]
    assert list(samples_of(standing, {})) == []
    if found := [each for each in journal.kept.values() if each.outcome.regret is not None]:
        page(tuning_report.of_regret(found))
    return [json.loads(kept.line(key)) for key, kept in journal.kept.items()][1:]


def _tuned(path):
    fit = RateFit({row_of("gmm_fp16_rcr_none", ONE, ROW): (1.0, 1e-6, 1e-6, 1e-6, 1e12, 1e-6, 0.1, -0.1)}, 0.01, 0.02)
    put(path, winners.text_of(Winners(PLACE, {ONE: "ab", TWO: "cd"}, (OUTCOME.winner,), fit), path))


def _read_tuned(path):
    found = winners.read(path)
    page(tuning_report.of_winners(found))
    return json.loads(winners.text_of(found, path))


def _spec(path):
    path.write_text(tuned_files.GOOD)
    path.with_name("spec.yaml").write_text(tuned_files.SPEC.replace("found.json", path.name))


def _read_by_spec(path):
    expand(read_spec(path.with_name("spec.yaml")))


def _bench(path):
    sides = [records.side("ours", "kernel", [1.5, 2.0]), records.side("torch", "peer", [1.0, 3.0])]
    failed = records.wrong(records.side("other", "kernel", [1.0]))
    records.save(records.results(records.record(*sides, failed)), path)


def _read_bench(path):
    found = measurements.load(path)
    results_report.markdown(found)
    results_report.markdown(found, brief=True, by_rows=True)
    page(results_report.report(found))
    return json.loads(measurements.text_of(found, path))


def _proofs(path):
    interpreted = {"interpret": {"cases": 3, "worst_error": 0.5, "not_proved": {"case": "reason"}}}
    compiled = {"cases": 20, "shared": 229432, "registers": 158}
    line = {"kernel": ONE, "device": "ab", "compile sm90": compiled, "hosts": {"cd": interpreted}}
    path.write_text(json.dumps({"place": {"device": "NVIDIA H200", "triton": "3.6.0"}, "kernels": [line]}))


def _read_proofs(path):
    found = proof_records.read(path)
    proof_records.table([path], set(found.proved))
    return json.loads(proof_records.text_of(found, path))


def _shapes(path):
    path.write_text(json.dumps({"summary": "Some.", "shapes": ["16x32x64", [1, 2, 3], "2x3x4x5", "4g5x6x7"]}))


def _suite(path):
    case = {"name": "squares", "title": "Squares", "peer": "cublas", "kernels": [{"family": "fp16_rcr", "label": "a"}]}
    found = {"summary": "Some.", "seconds": 1, "bound": 0.9, "by_rows": True, "cases": [{**case, "shapes": ["1x2x3"]}]}
    path.write_text(json.dumps(found))


@dataclass(frozen=True)
class Kind:
    """A kind of file: how a small one is written, how one is read, and written again if that gives its contents."""

    write: Callable[[Path], None]
    read: Callable[[Path], Any]
    lines: bool = False
    #: The values that take the places of its own.
    values: tuple[str, ...] = tuple(VALUES)


#: YAML takes long to refuse what is deep.
SHALLOW = tuple(word for word in VALUES if word != "nested")
KINDS = {
    "journal": Kind(_journal, _read_journal, lines=True),
    "tuned": Kind(_tuned, _read_tuned),
    "tuned of a spec": Kind(_spec, _read_by_spec, values=tuple(VALUES)[::4]),
    "bench": Kind(_bench, _read_bench),
    "proofs": Kind(_proofs, _read_proofs),
    "shapes": Kind(_shapes, lambda path: read_shapes(path) and None, values=SHALLOW),
    "suite": Kind(_suite, lambda path: read_suite(path) and None, values=SHALLOW),
}


def wrong_answers(kind, folder):
    """How many mutations there are, and those with another exception, without path and line, or of another meaning."""
    path = folder / ("file.jsonl" if kind.lines else "file.json")
    kind.write(path)
    text, found, number = path.read_text(), [], 0
    for name, data in mutated(text, lines=kind.lines, values=kind.values):
        number += 1
        # A new file: some file systems wait for the disk when an old one is cut off and written again.
        path.unlink()
        path.write_bytes(data)
        try:
            meaning = kind.read(path)
        except (CallError, SpecError, FileError) as error:
            told = str(error).replace(f"{path.with_name('spec.yaml')}:", "", 1)
            if f"{path}:" not in told.replace(repr(path.name), f"{path}:"):
                found.append(f"{name}: without the path: {error}")
            elif not any(f":{line}:" in str(error) for line in range(1, 300)):
                found.append(f"{name}: without a line: {error}")
            elif len(str(error)) > 2000:
                found.append(f"{name}: a message of {len(str(error))} characters")
        except Exception as error:
            found.append(f"{name}: {type(error).__name__}: {str(error)[:200]}")
        else:
            if meaning is not None and not _same(meaning, data, lines=kind.lines):
                found.append(f"{name}: accepted with another meaning: {json.dumps(meaning)[:2000]}")
    return number, found


def _same(meaning, data, *, lines):
    text = data.decode("utf-8-sig")
    # A last line that is cut off is of a run that was killed.
    found = [json.loads(line) for line in text.rpartition("\n")[0].split("\n")[1:]] if lines else json.loads(text)
    return json.dumps(_usual(meaning), sort_keys=True) == json.dumps(_usual(found), sort_keys=True)


def _usual(value):
    """The same without what means the same as nothing: null, false, equal groups, what has no entries."""
    if isinstance(value, list):
        return [_usual(each) for each in value]
    if not isinstance(value, dict):
        return value
    entries = {key: _usual(each) for key, each in value.items()}
    return {key: each for key, each in entries.items() if not (each is False or each in (None, [], {}, EVEN))}


@pytest.mark.parametrize("kind", KINDS)
def test_every_mutation_is_read_with_its_meaning_or_refused_with_a_line(kind, tmp_path):
    number, found = wrong_answers(KINDS[kind], tmp_path)
    assert number > 80 and not found, "\n".join([f"{len(found)} of {number}", *found[:20]])
