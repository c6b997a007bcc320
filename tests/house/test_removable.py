"""Each subject can be taken away: what stands below it and beside it runs without its folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sampled import sampled

ROOT = Path(__file__).parents[2]
SUBJECTS = {
    "vision": ("study vision", "study pictures"),
    "alignment": ("study align", "study speech"),
    "text": ("texts anchors", "texts graph", "texts order", "texts sources"),
    "safety": ("study safety",),
    "syntax": ("study trees", "texts categories"),
    "dictionaries": ("train dictionary",),
    "probes": ("train probe",),
    "cache": ("cache",),
    "policies": (),
}
"""Folders of subjects, and the commands that leave with them."""
COMMANDS = [
    "--help",
    "list metrics",
    "list methods",
    "list models",
    "score bundled:induction -m induction,ov_copying --random 2 -o results",
    "importance ablate bundled:induction --task repeats -n 4 -o results",
    "attribute lens bundled:induction --text abcab",
    "attribute bundled:induction --text abcab -m attn_lrp",
    "circuit planted:induction --task planted:induction -n 6",
    "view bundled:induction --text abcab -o view.html",
    "results show results",
    "atlas results -o page.html",
]
RUN = """
import json, sys
from click.testing import CliRunner
import interp
from interp.cli.folder import leaves
from interp.cli.main import main
for name in interp.__all__:
    try:
        getattr(interp, name)
    except ModuleNotFoundError as error:
        assert error.name == f"interp.{sys.argv[2]}", error
told = {"known": [path.removeprefix("interp ") for path, _ in leaves(main, "interp")]}
told["failed"] = []
for command in json.loads(sys.argv[1]):
    done = CliRunner().invoke(main, command.split())
    if done.exit_code or "Traceback" in done.output:
        told["failed"].append([command, done.output[-800:], repr(done.exception)])
print(json.dumps(told))
"""


def without(subject: str, folder: Path) -> Path:
    """A package of links to all folders and files but one."""
    package = folder / "package" / "interp"
    package.mkdir(parents=True)
    for path in (ROOT / "interp").iterdir():
        if path.name != subject:
            (package / path.name).symlink_to(path)
    for name in ("kernels", "data", "circuits", "pyproject.toml"):
        (package.parent / name).symlink_to(ROOT / name)
    return package.parent


@pytest.mark.parametrize("subject", sampled(SUBJECTS, every=5))
def test_the_rest_runs_without_a_subject(subject: str, tmp_path: Path) -> None:
    package = without(subject, tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(COMMANDS), subject],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(package), str(package / "kernels")))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["failed"] == []
    expected = {name for other in SUBJECTS if other != subject for name in SUBJECTS[other]}
    assert {*told["known"]} & {*SUBJECTS[subject]} == set()
    assert expected <= {*told["known"]}
