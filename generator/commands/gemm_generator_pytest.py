"""What pytest loads: the options of `generator.pytest_plugin`, and its hooks where `--gemm-family` is given.

The wheel has this file as a top-level module, because pytest loads it in every project: it imports nothing of
`generator`, whose name a module of the project may have. Where that is so, the plugin stands aside with a warning.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from importlib.machinery import PathFinder

import pytest

#: A copy of `generator.verify.jobs.LEVELS`.
LEVELS = ("static", "bounds", "interpret", "compile", "gpu")
#: The plugin that does the work, and packages that no other `generator` has beside it.
_PLUGIN = "generator.pytest_plugin"
_OWN = ("epilogue", "lowering", "verify")


def add_options(parser: pytest.Parser) -> None:
    """Add the options; `--help` lists them under the plugin's name. Raises ValueError if they are there."""
    option = parser.getgroup("gemm-generator", "verification of rendered GEMM kernels").addoption
    option(
        "--gemm-family", action="append", default=[], metavar="DIR", help="verify the kernels of this rendered family"
    )
    option("--gemm-level", action="append", choices=LEVELS, help="only this level (default: all that the machine has)")
    option(
        "--gemm-target", action="append", default=[], metavar="TARGET", help="compile for it (default: each kernel's)"
    )
    option(
        "--gemm-coverage",
        default="pairs",
        metavar="all|pairs|triples|kernels|N%",
        help="which launches to compile (default: enough for every pair of axis values)",
    )
    option("--gemm-shard", default="1/1", metavar="I/N", help="only the I-th of N parts of equal cost")
    option("--gemm-allow-undecided", action="store_true", help="jobs that are not proved are expected failures (xfail)")
    option("--gemm-cache", metavar="DIR", help="folder of the result cache (default: in the user's cache folder)")
    option("--gemm-fresh", action="store_true", help="run every job again and ignore cached results")


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the options, unless the plugin itself was loaded with `-p`."""
    if not pluginmanager.hasplugin(_PLUGIN):
        add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Report a project's own `generator` that can be imported already: in the current folder, or beside a conftest."""
    _warn(config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add the tests of the families, and from now on call the plugin's other hooks, too."""
    _warn(config)
    # Loaded with `-p`, the plugin adds them itself.
    if config.getoption("--gemm-family") and not config.pluginmanager.hasplugin(_PLUGIN):
        plugin = importlib.import_module(_PLUGIN)
        config.pluginmanager.register(plugin, _PLUGIN)
        plugin.pytest_collection_modifyitems(session, config, items)


def _warn(config: pytest.Config) -> None:
    """Warn once of a `generator` that is not this package's; raise `UsageError` if the session needs this package's."""
    aside = config.pluginmanager.hasplugin(_PLUGIN) or config.stash.get(_WARNED, False)
    if aside or (other := _other()) is None:
        return
    config.stash[_WARNED] = True
    message = f"gemm-generator: 'generator' is {other} here, not the package of that name, whose plugin stands aside"
    if config.getoption("--gemm-family"):
        how = "give --gemm-family in a run from another folder, without this project's tests"
        raise pytest.UsageError(f"{message}: {how}")
    if hasattr(config, "workerinput"):
        return
    # A project that makes errors of warnings keeps its tests.
    with contextlib.suppress(pytest.PytestWarning):
        config.issue_config_time_warning(pytest.PytestWarning(message), stacklevel=2)


def _other() -> str | None:
    """The file of a module `generator` that is not this package's; None if there is none. Nothing is imported."""
    try:
        installed = importlib.util.find_spec("generator")
    except (ImportError, ValueError):
        return "a module without a file"
    places = [] if installed is None else [*(installed.submodule_search_locations or ())]
    own = bool(places) and all(PathFinder.find_spec(f"generator.{name}", places) is not None for name in _OWN)
    return None if installed is None or own else installed.origin or "a folder without __init__.py"


_WARNED: pytest.StashKey[bool] = pytest.StashKey()
