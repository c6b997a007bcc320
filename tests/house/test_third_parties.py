"""An installed package adds metrics, methods and commands without a change of this repository.

The package is a folder on `sys.path` with its `dist-info`, as pip would unpack it; `jar` is another
one, which claims a name twice.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES = """
[interp.metrics]
two_back = head_kit.metrics
induction = head_kit.metrics
no_module = head_kit.nowhere
no_file = math
unparsed = head_kit.broken
undeclared = head_kit.metrics
renamed = head_kit.metrics:two_back
shared = head_kit.metrics
raising = head_kit.raising

[interp.attribution_methods]
all_to_first = head_kit.methods
needless = head_kit.bare

[interp.circuit_methods]
upwards = head_kit.methods

[interp.commands]
count-heads = head_kit.commands
score = head_kit.commands
lost = head_kit.commands
fails = head_kit.raising:fails
"""
FILES = {
    "__init__.py": "raise SystemExit('listing runs nothing of the package')\n",
    "metrics.py": '''
import torch
from interp import detector

@detector
def two_back(query, key, *, back: int = 2):
    """Attend some tokens back.

    Not for: models without an order of tokens.

    Options:
        back: how many tokens.
    """
    return key == query - back

def undeclared(query, key):
    return key == query
''',
    "broken.py": "def unparsed(:\n",
    "raising.py": '''
import click
from interp import detector

@detector
def raising(query, key):
    """Attend anywhere."""

@click.command()
def fails():
    """Fail."""

raise ValueError("no such licence")
''',
    "methods.py": '''
import numpy as np
from interp.attribution import Scores, attribution
from interp.circuits import Found, discovery

@attribution(unit="share", signed=False, needs="nothing")
def all_to_first(example):
    """Give everything to the first token.

    Not for: explanations.
    """
    return Scores(np.eye(len(example))[0])

@discovery(levels=("head",))
def upwards(model, task, level):
    """Rank heads by their layer.

    Not for: finding circuits.
    """
    at = [(site.layer, h) for site in model.sites for h in range(site.n_heads)]
    names = tuple(f"L{layer}H{h}" for layer, h in at)
    return Found(names, np.array([[float(layer)] for layer, _ in at]), unit="layers", signed=False)
''',
    "bare.py": '''
from interp.attribution import attribution

@attribution
def needless(example):
    """State nothing."""
''',
    "commands.py": '''
import click
from interp import load

@click.command()
@click.argument("model")
def count_heads(model):
    """Count the heads of MODEL."""
    click.echo(f"{sum(site.n_heads for site in load(model).sites)} heads")
''',
}
RUN = """
import json, sys
from click.shell_completion import BashComplete
from click.testing import CliRunner
from interp.cli.main import main

found = []
for line in json.loads(sys.argv[1]):
    if line[0] == "complete":
        shell = BashComplete(main, {}, "interp", "_INTERP_COMPLETE")
        names = [x.value for x in shell.get_completions(line[1:-1], line[-1])]
        found.append([0, " ".join(names), "", ""])
        continue
    done = CliRunner().invoke(main, line, prog_name="interp")
    found.append([done.exit_code, done.stdout, done.stderr, repr(done.exception)])
print(json.dumps({"found": found, "heavy": sorted({"torch", "head_kit"} & set(sys.modules))}))
"""


@pytest.fixture(scope="module")
def third_parties(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of installed packages."""
    folder = tmp_path_factory.mktemp("site")
    for name, lines in (
        ("head_kit", LINES),
        ("jar", "[interp.metrics]\nshared = jar\n"),
    ):
        about = folder / f"{name}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(lines)
    (folder / "head_kit").mkdir()
    for name, text in FILES.items():
        (folder / "head_kit" / name).write_text(text)
    return folder


def ran(folder: Path, *lines: str) -> tuple[list[list], list[str]]:
    """Exit code, outputs and exception of each command, and which packages were imported."""
    paths = os.pathsep.join(map(str, (folder, ROOT, ROOT / "kernels")))
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps([shlex.split(line) for line in lines])],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    return told["found"], told["heavy"]


def assert_refused(found: list, words: str) -> None:
    """One line on stderr and exit code 2."""
    code, _, stderr, _ = found
    assert code == 2
    assert stderr.startswith("interp: error: ")
    assert words in stderr
    assert len(stderr.splitlines()) == 1


def test_listings_name_what_is_added_and_report_the_rest_in_one_line_each(third_parties) -> None:
    found, heavy = ran(
        third_parties,
        "list metrics",
        "list metrics two_back",
        "list methods",
        "circuit x --task y --list",
        "--help",
        "list metrics induction",
        "score planted:positional -m unparsed",
        "score planted:positional -m shared",
        "lost --now",
        "complete count",
        "complete score -m two",
    )
    assert [text for _, text, *_ in found[-2:]] == ["count-heads", "two_back"]
    *found, unparsed, shared, lost = found[:-2]
    assert_refused(unparsed, "metric unparsed of the package head_kit is left out")
    assert_refused(shared, "metric shared of the package jar is left out: head_kit has the same")
    assert_refused(lost, "command lost of the package head_kit is left out")
    assert [code for code, *_ in found] == [0] * len(found), found
    assert heavy == [], "nothing of the package ran, and torch was not imported"
    metrics, one, methods, circuit, main, own = found
    assert "two_back" in metrics[1].partition("Installed packages")[2]
    assert "back=2 (int)" in one[1]
    assert "File: head_kit/metrics.py of the package head_kit" in one[1]
    lines = dict(line.split(" is left out: ") for line in metrics[2].splitlines())
    why = {name.split()[2]: said for name, said in lines.items() if "left out" not in said}
    assert sorted(why) == sorted(
        ["induction", "no_module", "no_file", "unparsed", "undeclared", "renamed", "shared"]
    )
    assert why["induction"] == "interp uses this name; the package must give it another"
    assert why["no_module"].startswith("there is no module 'head_kit.nowhere'")
    assert "does not parse" in why["unparsed"]
    assert "declares nothing called 'undeclared'" in why["undeclared"]
    assert "names the function 'two_back'" in why["renamed"]
    assert "has the same name; uninstall one of the two" in why["shared"]
    assert "all_to_first" in methods[1]
    assert "@attribution states no unit and no signed and no needs" in methods[2]
    assert "upwards (head): Rank heads by their layer." in circuit[1]
    assert "Count the heads of MODEL. (head_kit)" in main[1]
    told = " ".join(main[1].split())
    assert "command score of the package head_kit is left out: interp uses this name" in told
    assert "defines no 'lost'" in told
    assert "File: detectors/induction.py\n" in own[1], "interp's own stays"


@pytest.mark.slow
def test_what_is_added_runs_from_the_command_line_and_the_rest_fails_alone(third_parties) -> None:
    (third_parties / "head_kit" / "__init__.py").write_text("")
    found, _ = ran(
        third_parties,
        "score planted:positional -m two_back:back=1 --top 1 --null none -q",
        "score planted:positional -m installed,two_back:back=1 --null none --json",
        "attribute bundled:deceive --text 'with Anna the red bird sings so' -m all_to_first -q",
        "circuit planted:bystander --task planted:bystander --method upwards -n 4 --random 2"
        " --top 1 -q",
        "count-heads planted:positional",
        "score planted:positional -m raising",
        "fails --now",
    )
    *found, raising, fails = found
    assert_refused(raising, "raising.py, line 13: ValueError: no such licence")
    assert_refused(fails, "command fails of the package head_kit cannot be imported")
    assert [code for code, *_ in found] == [0] * len(found), found
    assert "1.000" in found[0][1]
    rows = json.loads(found[1][1])
    assert "two_back:back=1" in str(rows)
    assert "raising of the package head_kit is left out" in found[1][2]
    assert "all_to_first" in found[2][1]
    assert "upwards" in found[3][1]
    assert found[4][1].endswith(" heads\n")
