"""The walk through CONTRIBUTING.md is true: its file declares a metric that works as it says."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from textwrap import dedent

import pytest
from click.testing import CliRunner

from interp.cli.main import main
from interp.core.registry import METRICS
from interp.testing.metric import picture

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


@pytest.fixture
def walk_file(tmp_path: Path) -> Path:
    """The file of the walk, under the name that the walk gives it, but outside the package."""
    [(name, code)] = re.findall(
        r"`interp/heads/detectors/(\w+\.py)`:\n\n```python\n(.*?)```", TEXT, re.DOTALL
    )
    path = tmp_path / name
    path.write_text(dedent(code), encoding="utf-8")
    return path


def test_its_picture_is_what_the_line_draws(walk_file) -> None:
    declared = METRICS.parse(str(walk_file)).analysis
    names = {"picture": picture, walk_file.stem: declared}
    [example] = doctest.DocTestFinder().find(declared.function, walk_file.stem, globs=names)
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


def test_it_is_explained_and_scored_with_its_option(walk_file) -> None:
    told = CliRunner().invoke(main, ["list", "metrics", str(walk_file)]).stdout
    for words in (
        "Attends a fixed number of tokens back.",
        "Not for:",
        "back=2",
        "how many tokens.",
    ):
        assert words in told
    asked = ["score", "planted:positional", "-m", f"{walk_file}:back=1", "--top", "1", "-q"]
    found = CliRunner().invoke(main, asked)
    assert found.exit_code == 0
    assert f"{walk_file.stem}:back=1" in found.stdout
    assert "1.000" in found.stdout  # the planted head looks one token back, as an ideal one does


def test_the_files_and_commands_it_names_exist() -> None:
    examples = re.findall(r"`(interp/[\w/]+\.py)`:", TEXT)
    for path in re.findall(r"`((?:interp|tests|docs|\.ci)/[\w./]*)`", TEXT):
        if path not in (*examples, "docs/site/"):
            assert (ROOT / path).exists(), path
    for script in re.findall(r"^ *python ([\w./]+\.py)", TEXT, re.MULTILINE):
        assert (ROOT / script).is_file(), script
    for name in re.findall(r"`?interp ([a-z]+) ", TEXT):
        assert name in (*main.commands, *(Path(e).stem for e in examples))
