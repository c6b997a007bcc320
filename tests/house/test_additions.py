"""The additions of CONTRIBUTING.md: each is one file or entry; listings, help, tests follow.

The files are written into a copy of the package that is made of links: nothing here changes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"`(interp/[\w/]+\.py)`:\n\n```python\n(.*?)```", TEXT, re.DOTALL))
[ENTRY] = re.findall(r"```python\n(Intervention\(.*?)```", TEXT, re.DOTALL)
ENTRIES = "interp/causal/game/interventions.py"
BOX = """
class Box:
    def __init__(self, module, tokenizer):
        self.module, self.tokenizer, self.name = module, tokenizer, "boxed"
"""
RUN = """
import json, sys
from click.testing import CliRunner
from click.shell_completion import BashComplete
from interp.cli.main import main

def run(*args):
    done = CliRunner().invoke(main, list(args))
    return [done.exit_code, done.output]

def complete(*args):
    shell = BashComplete(main, {}, "interp", "_INTERP_COMPLETE")
    return [0, "\\n".join(x.value for x in shell.get_completions(list(args[:-1]), args[-1]))]

asked = json.loads(sys.argv[1])
found = [(complete if a[0] == "complete" else run)(*a[a[0] == "complete":]) for a in asked]
print(json.dumps({"found": found, "heavy": sorted({"torch", "pandas"} & set(sys.modules))}))
"""


def link(source: Path, target: Path, new: set[Path]) -> None:
    """Make a folder of links to what another holds, down to the folders of new files."""
    target.mkdir(parents=True)
    for path in source.iterdir():
        if path.name == "__pycache__":
            continue
        if path.is_dir() and any(other.is_relative_to(path) for other in new):
            link(path, target / path.name, new)
        else:
            (target / path.name).symlink_to(path)


@pytest.fixture(scope="module")
def package_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package with the files, and the line of the source in its pyproject.toml."""
    root = tmp_path_factory.mktemp("additions")
    link(ROOT / "interp", root / "interp", {ROOT / name for name in [*EXAMPLES, ENTRIES]})
    for name in ("data", "circuits", "kernels"):
        (root / name).symlink_to(ROOT / name)
    for name, text in EXAMPLES.items():
        (root / name).write_text(text, encoding="utf-8")
    declared = (
        (ROOT / ENTRIES)
        .read_text(encoding="utf-8")
        .replace("ENTRIES = (\n", f"ENTRIES = (\n{ENTRY.rstrip()},\n")
    )
    (root / ENTRIES).unlink()
    (root / ENTRIES).write_text(declared, encoding="utf-8")
    [(group, line)] = re.findall(r"```toml\n(\[.*?\])\n(.*?)\n```", TEXT)
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f"{group}\n" in project
    (root / "pyproject.toml").write_text(project.replace(f"{group}\n", f"{group}\n{line}\n"))
    (root / "boxes.py").write_text(BOX)
    return root


def python(copy: Path, *args: str, cwd: Path | None = None) -> str:
    paths = [copy, copy / "kernels", ROOT / "tests", ROOT]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    done = subprocess.run(
        [sys.executable, "-P", *args],
        env=env,
        cwd=cwd or copy,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def outputs(copy: Path, *commands: list[str]) -> tuple[list[str], list[str]]:
    """What commands print, run one after another, and which heavy packages they imported."""
    told = json.loads(python(copy, "-c", RUN, json.dumps(commands)).splitlines()[-1])
    assert [code for code, _ in told["found"]] == [0] * len(commands), told["found"]
    return [text for _, text in told["found"]], told["heavy"]


def test_there_is_an_example_of_each() -> None:
    folders = ["heads/detectors", "heads/outliers", "attribution/methods", "circuits/methods"]
    folders += ["cli/commands", "model/sources"]
    assert [str(Path(name).parent) for name in EXAMPLES] == [f"interp/{f}" for f in folders]


def test_each_is_listed_helped_and_completed_without_heavy_imports(package_copy) -> None:
    told, heavy = outputs(
        package_copy,
        ["--help"],
        ["list", "metrics"],
        ["list", "methods"],
        ["circuit", "--list"],
        ["list", "metrics", "next_to_last"],
        ["list", "methods", "last_token"],
        ["heads", "--help"],
        ["score", "--help"],
        ["complete", "heads"],
        ["complete", "score", "-m", "next"],
        ["complete", "attribute", "-m", "last"],
        ["complete", "circuit", "--method", "by_l"],
        ["complete", "heads", "bundled:ind"],
        ["complete", "score", "--source", "bo"],
        ["complete", "importance", "ablate", "--kind", "ha"],
        ["texts", "influence", "--help"],
    )
    assert re.search("heads +Count the heads of MODEL, layer by layer.", told[0])
    assert "next_to_last" in told[1]
    assert "last_token" in told[2]
    assert "by_layer (head): Rank heads by their layer" in told[3]
    assert "Not for: models without an order" in told[4]
    assert "Not for: explanations" in told[5]
    assert "Example: interp heads bundled:stories" in told[6]
    assert "transformers|boxes|interp-engine|nnsight|transformer-lens" in told[7]
    assert "half|uniform-attention|zero" in told[15]
    assert told[8:15] == [
        "heads",
        "next_to_last",
        "last_token",
        "by_layer",
        "bundled:induction",
        "boxes",
        "half",
    ]
    assert heavy == []


def test_each_runs(package_copy) -> None:
    told, _ = outputs(
        package_copy,
        ["score", "planted:positional", "-m", "next_to_last:back=1", "--top", "1", "-q"],
        [
            "attribute",
            "bundled:deceive",
            "--text",
            "with Anna the red bird sings so",
            "-m",
            "last_token",
            "-q",
        ],
        ["heads", "bundled:induction"],
        ["check", "planted:positional", "--source", "boxes"],
        [
            "circuit",
            "planted:bystander",
            "--task",
            "planted:bystander",
            "--method",
            "by_layer",
            "-n",
            "4",
            "--random",
            "2",
            "--top",
            "1",
            "-q",
        ],
        ["importance", "ablate", "bundled:induction", "-n", "4", "--kind", "half"],
    )
    assert "1.000" in told[0]
    assert "last_token" in told[1]
    assert "layer 0: " in told[2]
    assert "source: boxes, the module inside" in told[3]
    assert "by_layer" in told[4]
    assert "ablation: the task second_copy_loss is" in told[5]


HALF = """
import interp
from interp.report.explore.session import Session

model = interp.load("bundled:induction")
task = interp.repeats_task(model, n=4)
lost = {kind: interp.ablate(model, task, kind=kind, null="none").table for kind in ("half", "zero")}
least, most = (float(lost[kind].to_pandas()["score"].max()) for kind in lost)
assert 0 < least < most, (least, most)
session = Session(model)
shown = session.prompt([5, 6, 7, 5, 6])
print(session.about()["interventions"]["half"])
print(session.ablate(shown["prompt"], ["L1H0"], "half")["intervention"])
"""


def test_an_intervention_runs_from_python_and_the_explorer(package_copy) -> None:
    assert python(package_copy, "-c", HALF).splitlines() == [
        "the head writes half of its output",
        "half(decoder L1H0)",
    ]


def test_one_file_presents_a_result(package_copy, tmp_path) -> None:
    """Its text, its page and its part of the atlas, in processes that did not make it."""
    make = (
        "import interp\n"
        "from interp.heads.outliers.first_share import first_shares\n"
        "table = interp.score('planted:positional', ['first_token'])\n"
        f"table.save({str(tmp_path / 'table.csv')!r})\n"
        f"first_shares(table).save({str(tmp_path / 'shares.json')!r})\n"
    )
    read = (
        "from interp.core.result_rows import ResultRows\n"
        f"found = ResultRows.load({str(tmp_path / 'shares.json')!r})\n"
        f"found.save_html({str(tmp_path / 'shares.html')!r})\n"
        "print(found)\n"
    )
    python(package_copy, "-c", make)
    said = python(package_copy, "-c", read).strip()
    assert re.fullmatch(r"FirstShares: \d of \d+ heads above one half", said)
    assert "above one half" in (tmp_path / "shares.html").read_text(encoding="utf-8")
    outputs(package_copy, ["atlas", str(tmp_path), "-o", str(tmp_path / "atlas.html"), "-q"])
    page = (tmp_path / "atlas.html").read_text(encoding="utf-8")
    assert said in page
    assert "% of the largest" in page


def test_the_contract_tests_run_each_of_them(package_copy) -> None:
    ran = python(
        package_copy,
        "-m",
        "pytest",
        "-c",
        str(ROOT / "pyproject.toml"),
        "--rootdir",
        str(ROOT),
        str(ROOT / "tests" / "contract"),
        "-v",
        "-p",
        "no:cacheprovider",
        "-o",
        "pythonpath=",
        "-k",
        "next_to_last or last_token or by_layer or declarations or finite_score_per_token",
        "--case",
        "next_to_last,last_token,by_layer",
    )
    for test in (
        "test_declarations.py::test_what_the_file_states_is_what_it_runs",
        "test_declarations.py::test_worked_example",
        "test_metrics.py::test_an_ideal_head_scores_one_and_looks_only_back[next_to_last]",
        "test_attribution_methods.py::test_it_needs_no_more_than_it_declares[last_token]",
        "test_attribution_methods.py::test_one_finite_score_per_token_and_the_model_untouched",
        "test_circuit_methods.py::test_one_score_per_node",
    ):
        assert re.search(rf"{re.escape(test)}\S* PASSED", ran), test


def test_another_package_can_register_a_source(tmp_path) -> None:
    """An installed package says its line in its metadata; its source is beside interp's own."""
    about = tmp_path / "jars-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: jars\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[interp.sources]\njars = jars.adapter\n")
    code = "from interp.model.sources.registered import sources; print(sorted(sources().items()))"
    env = {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT), str(ROOT / "kernels")])}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in ("'jars', 'jars.adapter'", "'nnsight'", "'transformer-lens'"):
        assert name in done.stdout


def test_a_command_file_that_is_broken_hides_no_other(package_copy) -> None:
    broken = package_copy / "interp" / "cli" / "commands" / "broken.py"
    broken.write_text("def broken(:\n")
    try:
        [told], _ = outputs(package_copy, ["--help"])
    finally:
        broken.unlink()
    assert "broken.py does not parse" in told
    assert "Score every head of each MODEL." in told
