"""The command `interp compare quantised`: printed losses and heads, and files."""

from __future__ import annotations

import json


def test_losses_and_heads_are_printed_and_written(run, tmp_path) -> None:
    file = tmp_path / "prompts.jsonl"
    rows = [[0, 6 + i, 7, 8 + i, 9, 6 + i, 7, 8 + i] for i in range(4)]
    file.write_text("".join(json.dumps({"tokens": row}) + "\n" for row in rows))
    shown = run(
        "compare",
        "quantised",
        "planted:induction",
        "--method",
        "int8",
        "--file",
        file,
        "--top",
        "3",
        "-o",
        tmp_path / "out",
        "-q",
    ).stdout
    for words in ("weights by int8", "full precision", "chosen heads restored", "role after"):
        assert words in shown
    assert shown.count("\n    L") == 3
    [made] = (tmp_path / "out").glob("*/quantised.json")
    assert "QuantisedHeads" in made.read_text()
