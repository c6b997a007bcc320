"""The files for a public forge: they parse, run what README and .ci run, and publish nothing."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))
PYTHONS = [x.rpartition(" ")[2] for x in PROJECT["classifiers"] if re.search(r":: 3\.\d", x)]


def parsed(path: Path) -> dict[Any, Any]:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict), path.name
    return found


def plain(command: str) -> str:
    """A command without the path of its environment, quotes and comments."""
    command = re.sub(r"(\S*/)?bin/pip\"?", "python -m pip", command)
    command = re.sub(r"\S*/bin/python", "python", command)
    return shlex.join(shlex.split(command, comments=True)).replace(" --quiet", "")


def known_commands() -> set[str]:
    """Commands of README, CONTRIBUTING and the scripts of .ci, as one line each."""
    found: set[str] = set()
    for name in ("README.md", "CONTRIBUTING.md", ".ci/run", ".ci/newest"):
        text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
        for line in text.splitlines():
            for part in re.split(r"&&|;|\bif !", line.partition("   # ")[0]):
                if re.search(r"\bpytest\b|\bpip\"? install\b|^\s*bash \.ci/", part):
                    try:
                        found.add(plain(part.strip().strip("`")))
                    except ValueError:  # a sentence with an apostrophe
                        continue
    return found


def steps(workflow: dict[Any, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.stem)
def test_a_workflow_parses_and_may_only_read(path: Path) -> None:
    workflow = parsed(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert {"name", "jobs"} <= set(workflow)
    for job in workflow["jobs"].values():
        assert "permissions" not in job
        assert job["timeout-minutes"] <= 180
    for step in steps(workflow):
        assert ("uses" in step) != ("run" in step), step
        assert re.fullmatch(r"actions/[\w-]+@v\d+", step.get("uses", "actions/x@v1"))
    text = path.read_text(encoding="utf-8")
    assert not re.search(
        "secrets|publish|upload|twine|pypi", text.replace("nothing is uploaded", "")
    )


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.stem)
def test_it_runs_the_commands_of_the_readme_and_of_ci(path: Path) -> None:
    known = known_commands()
    assert len(known) > 6
    for step in steps(parsed(path)):
        if "run" not in step:
            continue
        for line in step["run"].strip().splitlines():
            asked = plain(line)
            if " pip install " not in asked:
                assert asked in known, (asked, sorted(known))
                continue
            [extras] = re.findall(r"-e '?\.\[([\w,]+)\]'?", asked)
            assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
            assert "-c constraints.txt" in asked, "the tested versions; newest.yml takes others"


def test_every_supported_python_is_tested_on_linux_and_macos() -> None:
    [tests] = [parsed(path) for path in WORKFLOWS if path.stem == "tests"]
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"
    assert PYTHONS == ["3.11", "3.12", "3.13", "3.14"]
    matrix = tests["jobs"]["tests"]["strategy"]["matrix"]
    assert matrix["python"] == PYTHONS
    assert matrix["os"] == ["ubuntu-latest", "macos-latest"]
    left_out = [(x["os"], x["python"]) for x in matrix["exclude"]]
    checks = tests["jobs"]["checks"]
    of_checks = [s["with"]["python-version"] for s in checks["steps"] if "with" in s]
    assert left_out == [(checks["runs-on"], python) for python in of_checks]
    told = " ".join(s.get("run", "") for s in tests["jobs"]["tests"]["steps"])
    assert "-m first" in told
    assert "-m second" in told


def test_the_newest_dependencies_are_tested_weekly() -> None:
    [newest] = [parsed(path) for path in WORKFLOWS if path.stem == "newest"]
    triggers = newest[True]  # YAML reads the key `on` as true
    [schedule] = triggers["schedule"]
    assert re.fullmatch(r"\d+ \d+ \* \* [0-6]", schedule["cron"])
    assert "bash .ci/newest" in [step.get("run") for step in steps(newest)]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda p: p.stem)
def test_an_issue_template_asks_what_it_needs(path: Path) -> None:
    form = parsed(path)
    assert {"name", "description", "body"} <= set(form)
    ids = [field["id"] for field in form["body"]]
    assert len(ids) == len(set(ids)) > 0
    for field in form["body"]:
        assert field["type"] in ("textarea", "input")
        assert field["attributes"]["label"]
    assert any(field["validations"]["required"] for field in form["body"])


def test_the_citation_names_the_package_and_its_licence() -> None:
    cited = parsed(ROOT / "CITATION.cff")
    assert cited["cff-version"] == "1.2.0"
    assert cited["license"] == PROJECT["license"]
    assert [a["name"] for a in cited["authors"]] == [a["name"] for a in PROJECT["authors"]]
    assert "version" not in cited, "pyproject.toml is the only place"
