"""Help and lists: complete, and cheap."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from together import over

import interp
from interp import bundled, planted
from interp.core.registry import METRICS

HEAVY = ("torch", "transformers", "pandas", "numpy", "pyarrow", "plotly", "numba", "rich")


def test_lists_and_help_import_nothing_heavy() -> None:
    code = f"""
import sys
from interp.cli.main import main
for line in sys.argv[1:]:
    main(line.split(), standalone_mode=False)
    heavy = [m for m in {HEAVY} if m in sys.modules]
    if heavy:
        sys.exit(f"{{line}} imports {{heavy}}")
"""
    lines = (
        "--help",
        "score --help",
        "check --help",
        "list metrics",
        "list metrics induction",
        "list models",
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *lines],
        capture_output=True,
        text=True,
        env=os.environ,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_every_metric_is_listed_with_its_sentence(run) -> None:
    lines = run("list", "metrics").stdout.splitlines()
    for name, entry in METRICS.items():
        line = next(x for x in lines if x.split()[:1] == [name])
        assert entry.summary in line
        assert all(f"{o}={default}" in line for o, (default, _) in entry.options.items())


@over("name", sorted(METRICS))
def test_a_metric_is_explained(run, name: str) -> None:
    entry, text = METRICS[name], run("list", "metrics", name).stdout
    assert entry.summary in text
    assert f"Unit: {entry.unit}" in text
    for option, (default, _) in entry.options.items():
        assert f"  {option}={default}" in text
    if entry.kind == "detector":
        assert "#" in text.partition("Where an ideal head attends")[2]
    assert ">>>" not in text


def test_the_explanation_of_induction_is_what_its_file_says(run) -> None:
    text = run("list", "metrics", "induction").stdout
    assert "Rows: the score is the attention on the targets" in text
    assert "rows without a visible target are left out" in text
    assert "Rows: averaged over all query rows" in run("list", "metrics", "entropy").stdout
    assert "Rows:" not in run("list", "metrics", "ov_copying").stdout
    assert 'Source: Olsson et al. 2022, "In-context Learning and Induction Heads".' in text
    assert "Range: 0 to 1" in text
    assert text.endswith(". . . .\na . # . . .\nb . . # . .\n")


def test_a_metric_of_ones_own_is_explained_too(run, tmp_path) -> None:
    (tmp_path / "odd.py").write_text(OWN)
    text = run("list", "metrics", tmp_path / "odd.py").stdout
    assert "Attends to odd positions" in text
    assert "  step=2 (int)  how far apart." in text


OWN = '''
from interp.heads.declaration import detector

@detector
def odd(query, key, *, step: int = 2):
    """Attends to odd positions.

    Options:
        step: how far apart.
    """
    return (key % step == 1) & (key <= query)
'''


def test_every_model_is_listed(run) -> None:
    text = run("list", "models").stdout
    for kind in planted.KINDS:
        for name, summary in planted.known_models(kind).items():
            assert f"{name} " in text
            assert summary in text
    for name in bundled.names():
        line = next(x for x in text.splitlines() if x.split()[:1] == [name])
        assert len(line.split()) > 3, "a bundled model needs a model card with a first sentence"


def test_a_model_has_a_card(run, errors) -> None:
    text = run("list", "models", "trained:names").stdout
    assert "  inhibition: L1H0\n" in text
    assert "  L1H0 -> L2H3.q\n" in text
    assert "interp circuit trained:names --task trained:names\n" in text
    shares = [
        float(x) for x in re.findall(r"^  (?:accuracy|interchange|strict).*: (.*)$", text, re.M)
    ]
    assert len(shares) > 12
    assert min(shares) >= 0.99
    text = run("list", "models", "compiled:hist+sort").stdout
    assert (
        "sort: the words in order of size\n  words 1 2 3 4; heads L1H1 L2H1; MLPs mlp0 mlp1" in text
    )
    assert "  outputs 6 to 9: 1 2 3 4\n" in text
    assert "  induction: L1H0\n" in run("list", "models", "planted:bystander").stdout
    assert "control" in run("list", "models", "bundled:one-layer").stdout
    for name, told in (
        ("trained:nmes", "did you mean names"),
        ("hist", "known: bundled:NAME"),
        ("variant:top_k", "known: bundled:NAME"),
    ):
        code, [line] = errors("list", "models", name)
        assert code == 2
        assert told in line


def test_an_unknown_metric_gets_the_nearest_name(errors) -> None:
    code, [line] = errors("list", "metrics", "inducton")
    assert code == 2
    assert line.startswith("unknown metric 'inducton'; did you mean induction")


def test_the_version_is_told(run) -> None:
    assert run("--version").stdout == f"interp {interp.__version__}\n"


@pytest.mark.parametrize(
    "args",
    [
        ("score", "planted:induction", "-m", "nosuch"),
        ("score", "planted:induction", "-m", "local_window:widht=3"),
        ("importance", "verify", "planted:induction", "-m", "nosuch"),
        ("importance", "planted:induction", "-m", "nosuch"),
        ("prune", "planted:induction", "--method", "greedy,nosuch"),
        ("circuit", "planted:induction", "--task", "induction", "--method", "nosuch"),
        ("attribute", "planted:induction", "--text", "text", "-m", "nosuch"),
    ],
)
def test_a_wrong_name_is_reported_without_importing_torch(args) -> None:
    code = f"""
import sys
from interp.cli.main import main
try:
    main({list(args)!r}, prog_name="interp")
except SystemExit as stopped:
    assert stopped.code == 2, stopped.code
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "unknown" in done.stderr


def test_debug_shows_the_traceback(llama_folder) -> None:
    from click.testing import CliRunner

    from interp.cli.main import main
    from interp.core.errors import UnknownName

    result = CliRunner().invoke(main, ["score", str(llama_folder), "-m", "inducton", "--debug"])
    assert isinstance(result.exception, UnknownName)
