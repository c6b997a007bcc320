"""The version, and what installed packages register: read from files, without an import."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import interp
from interp.core import installed
from interp.core.errors import OptionError
from interp.core.installed import EntryPoint, entry_points

ROOT = Path(__file__).parents[2]


def test_the_version_stands_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert interp.__version__ == project["version"]
    stated = re.compile(rf"(?<![\d.]){re.escape(project['version'])}(?![\d.])")
    files = [*(ROOT / "interp").rglob("*.py"), ROOT / "CITATION.cff", ROOT / "mkdocs.yml"]
    assert [p for p in files if stated.search(p.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(("metadata", "answer"), [("9.8.7", "9.8.7"), ("", installed.UNKNOWN)])
def test_files_outside_a_checkout_have_the_version_of_their_metadata(
    tmp_path, metadata, answer
) -> None:
    shutil.copytree(ROOT / "interp" / "core", tmp_path / "interp" / "core")
    shutil.copy(ROOT / "interp" / "__init__.py", tmp_path / "interp")
    shutil.copy(ROOT / "interp" / "__init__.pyi", tmp_path / "interp")
    if metadata:
        about = tmp_path / f"interp-{metadata}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: interp\nVersion: {metadata}")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import interp"
    code += "; print(interp.__version__, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [answer, "False"]


def package(folder: Path, name: str, lines: str) -> None:
    """Install a package that consists of its metadata only."""
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "entry_points.txt").write_text(lines, encoding="utf-8")


def test_lines_are_read_by_group_and_the_first_package_of_a_name_counts(
    tmp_path, monkeypatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    package(first, "head_kit", "[interp.metrics]\nb = kit.m:f\na=kit\n[other]\nc = kit\n")
    package(second, "Head.Kit", "[interp.metrics]\nstale = kit.old\n")
    package(second, "more", "# a note\n[console_scripts]\nx = y\n\n[interp.commands]\nx-y = more\n")
    monkeypatch.setattr(sys, "path", [str(first), str(second)])
    assert entry_points("interp.metrics") == [
        EntryPoint("head_kit", "interp.metrics", "a", "kit"),
        EntryPoint("head_kit", "interp.metrics", "b", "kit.m:f"),
    ]
    [command] = entry_points("interp.commands")
    assert (command.module, command.function) == ("more", "x_y")
    assert entry_points("interp.other") == []


def test_a_module_is_found_without_running_its_packages(tmp_path, monkeypatch) -> None:
    inner = tmp_path / "loud" / "inner"
    inner.mkdir(parents=True)
    for file in (inner.parent / "__init__.py", inner / "__init__.py", inner / "heads.py"):
        file.write_text("raise SystemExit('this ran')\n")
    monkeypatch.syspath_prepend(tmp_path)

    def file(module: str) -> Path:
        return EntryPoint("loud", "interp.metrics", "x", module).file()

    assert file("loud.inner.heads") == inner / "heads.py"
    assert file("loud") == tmp_path / "loud" / "__init__.py"
    for missing in ("loud.inner.none", "loud.none.heads", "nothing_of_this_name", "math"):
        with pytest.raises(OptionError, match=f"no module '{missing}' with a Python source file"):
            file(missing)
