"""A load and a warm score pass through few files of the package, so that they can be followed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
# ranks of processes stand below sources; scores have intervals; weights may be read by part;
# arguments of public functions are checked against their annotations, and documents are sealed
MOST = {"load": 33, "score": 35}
MEASURE = """
import json
from files_touched import touched_by_load, touched_by_score
print(json.dumps({"load": touched_by_load(), "score": touched_by_score()}))
"""


def test_load_and_warm_score_touch_few_files() -> None:
    # in a process of its own: what another test has imported or cached must not count less
    done = subprocess.run(
        [sys.executable, "-c", MEASURE],
        cwd=BENCHMARKS,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    touched = json.loads(done.stdout.splitlines()[-1])
    for call, files in touched.items():
        assert 10 < len(files) <= MOST[call], (call, files)
        assert all(not file.startswith("..") for file in files)
