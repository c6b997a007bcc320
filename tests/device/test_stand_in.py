"""Everything runs on a device other than the CPU: in a process of its own, on a stand-in."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sampled import sampled

HERE = Path(__file__).parent
CONTRACTS = HERE.parent / "contract"


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


@pytest.mark.slow
def test_numbers_are_those_of_the_cpu() -> None:
    passed = re.search(r"(\d+) passed", ran(str(HERE / "on_device.py")))
    assert passed
    assert int(passed[1]) > 120


@pytest.mark.parametrize("what", sampled(["commands", "functions"]))
def test_all_that_is_public_runs_there(what: str) -> None:
    ran(str(HERE / f"on_{what}.py"))


@pytest.mark.parametrize("kind", sampled(["attribution", "circuit"]))
def test_methods_keep_their_contract_there(kind: str) -> None:
    ran("-p", "device.moved", str(CONTRACTS / f"test_{kind}_methods.py"))
