"""Everything runs on a device other than the CPU: in a process of its own, on a stand-in."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sampled import EVERY, sampled

HERE = Path(__file__).parent
CONTRACTS = HERE.parent / "contract"
PART, FEW = 3 * EVERY, 6 * EVERY
"""Every how many metrics and commands are tried: a command takes about fifteen seconds."""


def ran(*args: str) -> str:
    """What pytest printed in a process where the device is registered."""
    path = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *args],
        cwd=HERE.parents[1],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=1500,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("every", sampled([PART, 1], always=[PART]))
def test_numbers_are_those_of_the_cpu(every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All metrics, and every so many on a device without float64."""
    monkeypatch.setenv("INTERP_EVERY", str(every))
    passed = re.search(r"(\d+) passed", ran(str(HERE / "on_device.py")))
    assert passed
    assert int(passed[1]) > 100 + 100 // every


@pytest.mark.parametrize("every", sampled([FEW, 1], always=[FEW]))
def test_every_so_many_commands_run_there(every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERP_EVERY", str(every))
    ran(str(HERE / "on_commands.py"))


@pytest.mark.slow
@pytest.mark.exhaustive
def test_public_functions_run_there() -> None:
    ran(str(HERE / "on_functions.py"))


@pytest.mark.parametrize("kind", sampled(["attribution", "circuit"]))
def test_methods_keep_their_contract_there(kind: str) -> None:
    ran("-p", "device.moved", str(CONTRACTS / f"test_{kind}_methods.py"))
