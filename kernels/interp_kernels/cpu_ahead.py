"""Compilation of the CPU pass in a process of its own, while this one loads a model.

Compiling is Python for more than half of its time, so a thread would hold the interpreter's lock.
The other process writes numba's cache and the first call here waits for it and reads the result.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

_CODE = "from interp_kernels.cpu_pass import attend; attend(False, False)"
_running: list[subprocess.Popen[bytes]] = []


def compile_ahead() -> None:
    """Start to compile the common pass unless it is in numba's cache; return at once."""
    if _running or find_spec("numba") is None:
        return
    path = os.pathsep.join(each for each in sys.path if each)
    _running.append(
        subprocess.Popen(
            [sys.executable, "-c", _CODE],
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C ends the command; the cache is still written
        )
    )


def wait_for_it() -> None:
    """Wait for a compilation that was started ahead; whatever it could not do is done here."""
    for process in _running:
        process.wait()
