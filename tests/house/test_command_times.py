"""The benchmark of the commands' defaults has every command, and its table no failed row."""

from __future__ import annotations

import json

from benchmarks.command_cases import CASES, ROOT, WITHOUT
from benchmarks.command_times import page
from interp.cli.main import main


def test_every_command_has_a_case_or_a_reason() -> None:
    assert {line.split()[0] for line in CASES.values()} | {x.split()[0] for x in WITHOUT} == {
        *main.commands
    }


def test_the_table_is_that_of_the_rows() -> None:
    path = ROOT / "benchmarks" / "command_times.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    assert {row["command"] for row in data["rows"]} <= set(CASES)
    assert [row for row in data["rows"] if "failed" in row] == []
    assert path.with_suffix(".md").read_text(encoding="utf-8") == page(data)
