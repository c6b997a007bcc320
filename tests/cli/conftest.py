"""A small model on disk and a way to run commands in this process."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import zoo
from click.testing import CliRunner, Result

from interp.cli.main import main

Run = Callable[..., Result]


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny llama folder without a tokenizer; tests that damage it take a copy."""
    folder = tmp_path_factory.mktemp("models") / "llama"
    zoo.FAMILIES["llama"].model("sdpa").save_pretrained(folder)
    return folder


@pytest.fixture
def copy(llama: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Another folder with the same model, under the name given."""

    def made(name: str) -> Path:
        return Path(shutil.copytree(llama, tmp_path / name))

    return made


@pytest.fixture
def run() -> Run:
    """Run `interp ARGS` here; exceptions that the command line does not handle fail the test."""

    def runs(*args: str | Path) -> Result:
        result = CliRunner().invoke(main, [str(a) for a in args], prog_name="interp")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return runs


@pytest.fixture
def errors(run: Run) -> Callable[..., tuple[int, list[str]]]:
    """Exit code and the lines that begin `interp: error: ` of a command."""

    def lines(*args: str | Path) -> tuple[int, list[str]]:
        result = run(*args)
        assert "Traceback" not in result.output
        told = [x for x in result.stderr.splitlines() if x]
        assert all(x.startswith("interp: ") for x in told), result.stderr
        begin = "interp: error: "
        return result.exit_code, [x.removeprefix(begin) for x in told if x.startswith(begin)]

    return lines
