"""Fixtures of all tests. Nothing here imports torch or triton: worker processes do."""

import itertools
import os
from pathlib import Path

import hypothesis
import pytest

# Matrices are small, and workers prove kernels beside this process: torch's threads would spend more on waiting.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from generator.verify import worker_pool
from generator.verify.worker_pool import Pool
from tests.helpers.support import called

# A busy machine draws slowly.
hypothesis.settings.register_profile("busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("busy")

# Processes of pytest-xdist share the processors: each begins its share of workers, which take seconds to import torch.
_SHARE = max(1, worker_pool.workers_by_default() // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
worker_pool.workers_by_default = lambda: _SHARE


#: Files of which all tests take long, and beginnings of names in others.
_WHOLE = (
    "bounds/order_proof drawn/drawn emit/copies emit/invariant emit/sharding "
    "tune/executors tune/public_calls tune/tuning_run "
    "verify/approximate_math verify/coverage verify/cubin_launches verify/cubin_package verify/operations "
    "verify/plugin verify/standalone"
)
_VERDICTS = "defects two orders counters symmetric batches groups blocks saved programs outputs a gates"
_PLANTED = (
    "what is compiled, files, halves, B is, batches, blocks, groups, one, outputs, programs, stored, symmetric, two"
)
_INTERPRETED = (
    "aten_product backward_launches combine compiled composed_products experts "
    "gradient_calls gradients graph_pass groups layers_as_torch less_host_code "
    "opcheck overridden_products"
)
#: What takes long, and runs after the other tests (`-m long`): files, with the names' beginnings if not all are meant.
LONG = {
    **{f"{name.replace('/', '/test_')}.py": () for name in _WHOLE.split()},
    "bench/test_cli.py": ("test_the_suites_shipped", "test_a_suite_from_file"),
    "bench/test_groups.py": ("test_kernels_of_groups_are_timed",),
    "bounds/test_patterns.py": ("test_words_and_spelling_are_free[tiled_pointer_auto_hilbert",),
    "bounds/test_shipped.py": ("test_rows_that_a_tuner",),
    "bounds/test_verdicts.py": tuple(f"test_a_mistake_has_its_verdict[{section}" for section in _VERDICTS.split()),
    "bounds/test_where.py": ("test_an_order_that_somebody_adds",),
    "bounds/test_widths.py": ("test_sizes_of_a_larger_limit",),
    "cost/test_family_costs.py": ("test_the_choice_has_the_least_predicted_seconds[contracts",),
    "emit/test_interrupted_rendering.py": ("test_calls_with", "test_processes_that"),
    "emit/test_interpreted.py": tuple(f"test_interpreted_families[test_{name}]" for name in _INTERPRETED.split()),
    "emit/test_manifest_mutations.py": ("test_a_value_replaced",),
    "emit/test_new_schedule.py": (
        "test_what",
        "test_claims",
        "test_each",
        "test_every",
        "test_a_template",
        "test_the_",
    ),
    "emit/test_prepare.py": ("test_prepared_calls_compile_nothing[gemm16",),
    "emit/test_render.py": ("test_any_text", "test_specs_may_define_operations", "test_the_surroundings"),
    "epilogue/test_operations.py": ("test_one_entry_is_all",),
    "emit/test_vendored.py": ("test_mypy_finds_nothing_by_its_defaults[torch", "test_a_typo_is"),
    "epilogue/test_derivative.py": ("test_derivatives_are_finite",),
    "epilogue/test_formula.py": ("test_hostile_strings",),
    "language/test_elements.py": ("test_one_record_is_enough",),
    "language/test_reserved_names.py": ("test_no_two_variants",),
    "language/test_schema.py": ("test_an_altered_spec", "test_what_the_reader_takes"),
    "mutations/test_mutations.py": ("test_sample",),
    "runtime/test_private.py": ("test_a_family_does_without",),
    "test_cli.py": ("test_a_difference_is_status_1", "test_options_of_the_interpreter"),
    "test_docs.py": (
        "test_a_command_prints",
        "test_a_session_prints",
        "test_a_table_is_what_its_command_makes[docs/proving",
    ),
    "test_wheel.py": ("test_a_first_family",),
    "verify/test_ahead_of_time.py": ("test_a_second_run",),
    "verify/test_asynchronous_products.py": ("test_compiled_kernels_are_right",),
    "verify/test_cli.py": ("test_a_run_goes_on", "test_a_run_that_is_stopped", "test_a_cache_that_cannot"),
    "verify/test_lacking.py": ("test_the_command_line_says",),
    "verify/test_planted.py": tuple(f"test_planted[{section}" for section in _PLANTED.split(", ")),
    "verify/test_quantised.py": ("test_every_number_is_quantised",),
    "verify/test_quantised_blocks.py": ("test_quotients_that_are_hard", "test_every_number_of_16_bits"),
    "verify/test_tile_order.py": ("test_every_order_goes",),
    "verify/test_words.py": ("test_another_constant",),
}
_ON_DEMAND = ("browser", "drawn", "ecosystem", "install", "mutations", "operators", "product")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark tests that take long, except those that run on demand only."""
    tests = Path(__file__).parent
    for item in items:
        names = LONG.get(os.path.relpath(item.path, tests).replace(os.sep, "/"))
        if (
            names is not None
            and item.name.startswith(names or "")
            and not any(map(item.get_closest_marker, _ON_DEMAND))
        ):
            item.add_marker("long")


@pytest.fixture(scope="session")
def pools():
    """The worker processes of a level, which all tests of this process share: each worker takes seconds to start."""
    begun = {}

    def of(level):
        if level not in begun:
            begun[level] = Pool(level, _SHARE)
        return begun[level]

    yield of
    for pool in begun.values():
        pool.close()


_numbers = itertools.count()


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory):
    """Give each test a result cache of its own: what stand-ins for workers prove must reach no other run."""
    # Not the test's own `monkeypatch`, which it may undo.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / f"cache{next(_numbers)}"))
        yield


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys):
    """Runs the command line in this process, in an empty folder: `cli("family.yaml", "--check")`."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: called(capsys, *arguments)
