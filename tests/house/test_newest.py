"""The tests under the newest releases: what is said when they fail to install or are left out."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def newest(tmp_path: Path, pip: str, *words: str, **given: str) -> subprocess.CompletedProcess:
    """Run `.ci/newest` with a python3 whose environments have this pip and this python."""
    tools = tmp_path / "tools"
    tools.mkdir()
    python3 = tools / "python3"
    python3.write_text(
        '#!/usr/bin/env bash\n[[ "$2" == venv ]] && mkdir -p "$3/bin"\n'
        f"printf '#!/usr/bin/env bash\\n{pip}\\n' > \"$3/bin/pip\"\n"
        'printf \'#!/usr/bin/env bash\\necho "python $*"\\n\' > "$3/bin/python"\n'
        'chmod +x "$3"/bin/*\n'
    )
    python3.chmod(0o755)
    kept = {n: v for n, v in os.environ.items() if not n.startswith("INTERP_")}
    return subprocess.run(
        ["bash", ROOT / ".ci" / "newest", *words],
        check=False,
        capture_output=True,
        text=True,
        env=kept | {"PATH": f"{tools}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)} | given,
    )


def test_a_release_that_cannot_be_installed_fails_in_one_line(tmp_path) -> None:
    found = newest(tmp_path, "echo no such release >&2; exit 1")
    assert found.returncode == 1
    assert "cannot be installed together" in found.stderr.splitlines()[-1]
    assert "python -m pytest" not in found.stdout


def test_it_installs_without_constraints_and_runs_the_tests_there(tmp_path) -> None:
    found = newest(tmp_path, "echo pip $*")
    assert found.returncode == 0, found.stderr
    assert "pip install --quiet --no-compile -e .[test,kernels,query]" in found.stdout
    assert "constraints" not in found.stdout
    assert "python -m pytest" in found.stdout.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["tools"], "the environment is removed"


def test_the_environment_alone_is_made_where_it_is_asked_for(tmp_path) -> None:
    found = newest(tmp_path, "echo pip $*", "install", str(tmp_path / "here"))
    assert found.returncode == 0, found.stderr
    assert "python -m pytest" not in found.stdout
    assert (tmp_path / "here" / "bin" / "python").exists()
    shutil.rmtree(tmp_path / "tools")
    assert newest(tmp_path, "exit 1", "install", str(tmp_path / "there")).returncode == 1


def test_it_says_that_it_is_left_out(tmp_path) -> None:
    found = newest(tmp_path, "exit 1", INTERP_SKIP_NEWEST="1")
    assert found.returncode == 0
    assert "skipped: INTERP_SKIP_NEWEST is set" in found.stdout
