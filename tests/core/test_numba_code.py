"""Without numba everything imports, scores run, and what needs it says what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys
sys.modules["numba"] = None
import numpy as np
import interp
from interp.core.errors import OptionError
from interp.heads.scoring import choose_engine
from interp.syntax.spanning import prim
import interp.attribution.graph.flow

model = interp.load("bundled:one-layer")
table = interp.score(model, ["entropy", "induction"], [[5, 6, 7, 8] * 4], null="none",
                     engine="streamed")
assert len(table.heads()) == 8
try:
    prim(np.zeros((2, 2)))
except OptionError as error:
    print(error)
"""


@pytest.mark.slow
def test_without_numba_scores_run_and_trees_say_what_to_install() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == (
        "interp.syntax.spanning, which computes in compiled code, needs the package numba; install "
        "it: pip install 'interp[kernels]'"
    )
