"""Kernels of drawn specs pass every level: a few of them here, thousands with `-m drawn`."""

import itertools
from collections import Counter

import pytest
import yaml
from hypothesis import given, settings

from generator.cost import tuned
from generator.verify.jobs import JobState
from generator.verify.run_report import whole_text
from generator.verify.verification_run import gpu
from generator.verify.worker_pool import settled

from . import proving
from .specs import contracts, families, legal, rendered

TARGETS = ("sm80", "sm90", "sm100", "gfx942")


def many(*values):
    return pytest.param(*values, marks=pytest.mark.drawn)


@pytest.mark.parametrize(
    ("level", "target", "wanted", "number"),
    [
        *(("compile", target, 6, 11) for target in ("sm90", "gfx942")),
        *((level, "sm90", 6, 8) for level in ("bounds", "interpret")),
        *(many("compile", target, 2000, 0) for target in TARGETS),
        *(many(level, "sm90", 400, 1) for level in ("bounds", "interpret", *["gpu"] * (gpu() is not None))),
    ],
)
def test_drawn_kernels_pass(level, target, wanted, number, tmp_path, pools):
    """At the compile level launches as they are foretold."""
    jobs = proving.jobs(level, rendered(tmp_path, target, number), target, wanted)
    results = [settled(future.result()) for future in [pools(level).submit(job) for job in jobs]]
    wrong = [result for result in results if result.state != JobState.PASSED]
    told = [f"{whole_text(each)}\n{each.job.folder.with_suffix('.yaml').read_text()}" for each in wrong]
    assert not wrong, "\n\n".join(told)
    assert sum(result.cases for result in results) >= wanted


def test_specs_are_drawn_over_all_axes_and_are_the_same_each_time():
    once, again = ([*itertools.islice(families("sm90", 3), count)] for count in (40, 6))
    texts = [text for text, _ in once]
    assert texts[:6] == [text for text, _ in again] and len(set(texts)) > 35
    words = {}
    for _, family in once:
        for kernel in family.kernels:
            for axis, word in kernel.variant.words.items():
                words.setdefault(axis, Counter())[word] += 1
    assert {axis: len(found) for axis, found in words.items() if len(found) < 2} == {}
    assert len(words["schedule"]) >= 6 and len(words["layout"]) > 10 and len(words["epilogue"]) >= 8


@given(contracts())
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_every_contract_with_a_kernel_has_a_fastest_portfolio(contract):
    """The kernel that takes any operand is in it, whatever was measured, and the choice by measurements can be made."""
    plain, fastest = (legal(yaml.safe_dump(contract | {"select": select})) for select in ("heuristic", "fastest"))
    if plain is None:
        # Packed operands of a direct product, which sm90 does not take, may be exchanged.
        assert fastest is None or "exchanged" in {each.variant.product for each in fastest.kernels}
        return
    assert fastest is not None
    # One kernel, or one for each target that takes another product.
    assert {kernel.name for kernel in plain.kernels} <= {each.name for each in fastest.kernels}
    assert len({each.variant.contract for each in (*plain.kernels, *fastest.kernels)}) == 1
    for target in {target for kernel in plain.kernels for target in kernel.targets}:
        assert any(target in each.targets for each in fastest.kernels)
    baked = tuned.bake(fastest)
    assert bool(baked.rates) <= bool(fastest.measured)
