"""Settings of every test process, made before torch starts its threads, and the shared fixtures."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from sampled import PARTS, part_of

# The test command starts several processes. With torch's default of one thread per core in each,
# the threads wait for each other and the suite is several times slower. torch reads these
# variables when it is first imported; worker processes inherit them from the first process.
os.environ |= {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",  # no test may reach a network
}

# Where compiled files are turned off, every process would rewrite the assertions of all test files
# again, which is half of the time of a collection.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

STARTED = time.time()
ROOT = Path(__file__).parents[1]

# A busy machine makes an example slow, and says nothing about the code under test.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# Fixtures that several files use, one module per subject. A fixture of one file stays in its file;
# a name is defined once (tests/house/test_fixtures.py).
pytest_plugins = [
    "fixtures.chats",
    "fixtures.commands",
    "fixtures.models",
    "fixtures.kernels",
    "fixtures.pages",
    "fixtures.pictures",
    "fixtures.rounding",
    "fixtures.surroundings",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--case", default="", help="A,B: of tests over many cases, those with A or B in their name"
    )
    parser.addoption(
        "--part",
        choices=[*map(str, range(PARTS)), "all"],
        default="all",
        help="a part of the files",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files of other parts."""
    asked = config.getoption("--part")
    if asked == "all" or not collection_path.name.startswith("test_"):
        return None
    return part_of(collection_path) != int(asked) or None


def pytest_configure(config: pytest.Config) -> None:
    import together

    together.CHOSEN = config.getoption("--case")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each process a run of neighbouring tests, which use the same fixtures."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tiers: the second has what is slow or listed for it, and is not exhaustive."""
    from house.tiers import listed

    later = set(listed())
    for item in items:
        if any(item.get_closest_marker(name) for name in ("exhaustive", "gpu")):
            continue
        waits = item.get_closest_marker("slow") or later & {
            item.nodeid,
            item.nodeid.partition("[")[0],
        }
        item.add_marker("second" if waits else "first")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let no collection of garbage walk through the imported packages and all tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        # with the usual thresholds a tenth of the processor time of the tests goes to this
        gc.set_threshold(20_000, 10, 50)
        gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the modules that changed while tests ran.

    Modules are imported when they are first needed, so such a run mixes two versions of the
    package, and a failure may be of neither.
    """
    files = [path for name in ("interp", "kernels") for path in (ROOT / name).rglob("*.py")]
    changed = [str(x.relative_to(ROOT)) for x in sorted(files) if x.stat().st_mtime > STARTED]
    if changed:
        some = ", ".join(changed[:5]) + ", ..." * (len(changed) > 5)
        line = f"{len(changed)} modules changed while the tests ran: {some}"
        terminalreporter.write_line(line, red=True)
