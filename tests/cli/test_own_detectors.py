"""Detectors of the caller's own files on the command line: never another one's kept numbers."""

from __future__ import annotations

import interp
from interp.core.store import Key, Store
from interp.core.table import HeadTable

MODEL = "planted:positional"


def scores(table: HeadTable) -> list[float]:
    return table.to_pandas()["score"].tolist()


def test_a_lambda_that_is_changed_is_scored_again(run, tmp_path) -> None:
    own, out = tmp_path / "back.py", tmp_path / "r"
    args = ("score", MODEL, "-m", own, "--null", "none", "-o", out, "-q")
    found = []
    for back in (1, 2, 1):
        own.write_text(f"back = lambda query, key: key == query - {back}\n")
        assert run(*args).exit_code == 0
        found.append(scores(HeadTable.load(out / "table.parquet")))
    want = scores(interp.score(MODEL, "previous_token", null="none"))
    assert found[0] == found[2] == want
    assert found[1] != want


def test_two_lambdas_are_kept_apart(tmp_path) -> None:
    """A table may be kept by hand too: labels and so the files of two lambdas differ."""
    store = Store(tmp_path)
    for back in (1, 2):
        table = interp.score(MODEL, _at(back), null="none")
        [label] = table.metrics
        store.write(Key(MODEL, "hash", label, {}), table)
    kept = store.read()
    assert len(kept.metrics) == 2
    assert len([p for p in tmp_path.glob("*.parquet") if ".prompts." not in p.name]) == 2


def _at(back: int):
    return lambda query, key: key == query - back


def test_a_file_of_several_detectors_is_refused_in_one_line(errors, tmp_path) -> None:
    own = tmp_path / "mine.py"
    one = "@detector\ndef {}(query, key):\n    return key == query\n"
    own.write_text("from interp import detector\n" + one.format("a") + one.format("b"))
    code, [line] = errors("score", MODEL, "-m", own)
    assert code == 2
    assert line.startswith(f"{own} declares a, b: give one of them, and no other, the file's name")
    own.write_text("def mine(query):\n    return query\n")
    code, [line] = errors("score", MODEL, "-m", own)
    assert code == 2
    assert line.startswith("mine: a detector is a function of (query, key)")


def test_a_file_is_explained_whatever_way_it_declares(run, tmp_path) -> None:
    own = tmp_path / "mine.py"
    own.write_text("mine = lambda query, key, *, back=1: key == query - back\n")
    told = run("list", "metrics", own).stdout
    for words in ("mine (detector)", "back=1", "Unit: attention mass", "Range: 0 to 1"):
        assert words in told
