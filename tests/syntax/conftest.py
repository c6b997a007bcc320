"""A small BERT on disk, and the command."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from syntax.commanded import BANK, Run
from syntax.small_bert import save_bert

from interp.cli.main import main


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = sorted({word for one in BANK for word in one.words})
    return save_bert(tmp_path_factory.mktemp("models") / "bert", words)


@pytest.fixture
def run() -> Run:
    """Run `interp trees ARGS` here; exceptions that the command does not handle fail the test."""

    def runs(*args: str | Path) -> Result:
        result = CliRunner().invoke(main, ["trees", *map(str, args)], prog_name="interp")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return runs
