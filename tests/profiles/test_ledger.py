"""Ledger of questions: what its lines state, several writers, kills, tampering."""

from __future__ import annotations

import hashlib
import json
import math
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from together import over

from interp.core.documents import seal
from interp.core.errors import KeptWarning, OptionError, StoreError
from interp.profiles import ledger as module
from interp.profiles.ledger import QuestionLedger
from interp.profiles.online_levels import OnlineLevels

ABOUT = {"model": "m" * 16, "corpus": "c" * 16}
KEYS = ("number", "asked", "documents", "p", "level", "found", "verdict", "time", "before")
P = [0.4, 1e-6, 0.9, 1e-5, 0.02, 1e-9, 1.0]


def ask(ledger: QuestionLedger, p: float | None, *, stream: str = "holds", n: int = 2) -> dict:
    with ledger.turn() as turn:
        documents = [f"d{len(turn.used) + i}" for i in range(n)]
        p_values = {} if p is None else {stream: p}
        return turn.write(
            asked=f"ünïcode\n{turn.number}", documents=documents, p=p_values, verdict=stream
        )


def used(ledger: QuestionLedger) -> set[str]:
    """Return the documents of all questions, which are those that a turn knows as used."""
    with ledger.turn() as turn:
        assert turn.used == {d for question in ledger.questions() for d in question["documents"]}
        return {*turn.used}


@pytest.fixture
def ledger(tmp_path: Path) -> QuestionLedger:
    return QuestionLedger(tmp_path / "new", ABOUT)


@pytest.fixture
def full(ledger: QuestionLedger) -> QuestionLedger:
    """A ledger of questions with three discoveries: the second, the fourth and the sixth."""
    for p in P:
        ask(ledger, p)
    return ledger


def test_a_line_states_the_question(full: QuestionLedger) -> None:
    questions = full.questions()
    assert [q["number"] for q in questions] == list(range(1, 8))
    assert [q["found"]["holds"] for q in questions] == [
        False,
        True,
        False,
        True,
        False,
        True,
        False,
    ]
    expected = [OnlineLevels().level(t, [x for x in (2, 4, 6) if x < t]) for t in range(1, 9)]
    assert [q["level"]["holds"] for q in questions] == expected[:7]
    with full.turn() as turn:
        assert (turn.level("holds"), turn.level("in part")) == (expected[7], expected[0])
    assert questions[2]["asked"] == "ünïcode\n3"
    assert questions[2]["documents"] == ["d4", "d5"]
    assert used(full) == {f"d{i}" for i in range(14)}
    lines = full.path.read_bytes().splitlines()
    assert json.loads(lines[0])["about"] == ABOUT
    for line, before in zip(lines[1:], lines, strict=False):
        assert json.loads(line)["before"] == hashlib.sha256(before).hexdigest()
    about = json.dumps(dict(sorted(ABOUT.items()))).encode()
    assert full.path.name == f"ledger-{hashlib.sha256(about).hexdigest()[:16]}.jsonl"


def test_a_turn_lists_all_questions_and_its_own(full: QuestionLedger) -> None:
    with full.turn() as turn:
        before = turn.listing()
        turn.write(asked="the last", documents=["x", "y", "z"], p={"holds": 0.5}, verdict="no")
        listed = turn.listing()
    assert [question["number"] for question in before] == [*range(1, 8)]
    assert listed[:-1] == before
    assert (listed[-1]["asked"], listed[-1]["documents"]) == ("the last", 3)
    assert [question["documents"] for question in before] == [2] * 7


def test_a_stream_that_is_not_tested_takes_no_step(ledger: QuestionLedger) -> None:
    ask(ledger, 1e-6)
    ask(ledger, None)
    assert ask(ledger, 1e-7, stream="in part")["level"]["in part"] == OnlineLevels().level(1, ())
    assert ask(ledger, 0.5)["level"]["holds"] == OnlineLevels().level(2, [1])
    asked = ledger.questions()
    assert [question["number"] for question in asked] == [1, 2, 3, 4]
    assert [question["p"].get("holds") for question in asked] == [1e-6, None, None, 0.5]
    assert [question["p"].get("in part") for question in asked] == [None, None, 1e-7, None]
    assert set(asked[0]) == set(KEYS)


def test_a_ledger_that_was_never_written_is_empty(ledger: QuestionLedger) -> None:
    assert ledger.questions() == []
    assert not ledger.path.parent.exists()
    assert used(ledger) == set()


def test_another_subject_is_another_file(full: QuestionLedger) -> None:
    other = QuestionLedger(full.path.parent, ABOUT | {"corpus": "other"})
    assert other.path != full.path
    assert other.questions() == []
    assert QuestionLedger(full.path.parent, dict(reversed(ABOUT.items()))).path == full.path
    other.path.write_bytes(full.path.read_bytes())
    with pytest.raises(OptionError, match=r"line 1: it is not the header \{.*other"):
        other.questions()
    with pytest.raises(OptionError, match=r"line 1: it is not the header .*0\.1"):
        QuestionLedger(full.path.parent, ABOUT, alpha=0.1).questions()
    for about in ({}, {"model": 3}):
        with pytest.raises(OptionError, match=r"must name its subject"):
            QuestionLedger(full.path.parent, about)


def test_a_question_that_raises_leaves_nothing(full: QuestionLedger) -> None:
    before = full.path.read_bytes()
    with pytest.raises(KeyError), full.turn():
        raise KeyError
    with full.turn() as turn:
        assert turn.number == 8
    assert full.path.read_bytes() == before
    assert ask(full, 0.5)["number"] == 8


def test_a_turn_writes_once(ledger: QuestionLedger) -> None:
    answer: dict[str, Any] = {"asked": "", "documents": [], "p": {}, "verdict": ""}
    with ledger.turn() as turn:
        turn.write(**answer)
        with pytest.raises(OptionError, match=r"question 1 was written already"):
            turn.write(**answer)
    with pytest.raises(OptionError, match=r"question 1 was written already"):
        turn.write(**answer)
    with ledger.turn() as late:
        pass
    with pytest.raises(OptionError, match=r"question 2 is over"):
        late.write(**answer)
    with (
        ledger.turn(),
        pytest.raises(OptionError, match=r"open already"),
        QuestionLedger(ledger.path.parent, ABOUT).turn(),
    ):
        pass
    assert len(ledger.questions()) == 1


@over(
    ("answer", "text"),
    [
        ({"p": {"holds": math.nan}}, "'holds' is nan"),
        ({"p": {"holds": 1.1}}, "not between 0 and 1"),
        ({"p": {"holds": -1e-9}}, "not between 0 and 1"),
        ({"p": {"holds": True}}, "'holds' is True"),
        ({"p": {"holds": "0.1"}}, "'holds' is '0.1'"),
        ({"p": {1: 0.1}}, "p-value of 1"),
        ({"documents": ["new", "new"]}, "a document twice"),
        ({"documents": ["new", "d3", "d1"]}, "2 of its documents were used before, such as 'd1'"),
        ({"documents": [3]}, "not all texts"),
        ({"documents": "new"}, "a list of texts"),
        ({"asked": None}, "asked and verdict as texts"),
        ({"asked": "x" * module.LONGEST}, "takes 16,777,\\d+ bytes"),
    ],
    ids=lambda x: str(x)[:40],
)
def test_an_answer_that_is_none_is_refused(
    full: QuestionLedger, answer: dict[str, Any], text: str
) -> None:
    before = full.path.read_bytes()
    good: dict[str, Any] = {"asked": "", "documents": ["new"], "p": {"holds": 0}, "verdict": ""}
    with full.turn() as turn, pytest.raises(OptionError, match=text):
        turn.write(**good | answer)
    assert full.path.read_bytes() == before


def test_numbers_of_other_kinds_are_read_back(ledger: QuestionLedger) -> None:
    with ledger.turn() as turn:
        p = {"a": np.float32(0.25), "b": 1, "c": np.int64(0), "d": np.float64(1e-300)}
        turn.write(asked="\ud800\u2028", documents=(), p=p, verdict="")
    (question,) = ledger.questions()
    assert question["p"] == {"a": 0.25, "b": 1.0, "c": 0.0, "d": 1e-300}
    assert question["asked"] == "\ud800\u2028"


WRITER = """
import sys
from interp.profiles.ledger import QuestionLedger
ledger = QuestionLedger(sys.argv[1], {"model": "m" * 16, "corpus": "c" * 16})
keys = [f"d{i}" for i in range(200)]
for _ in range(20):
    with ledger.turn() as turn:
        fresh = [key for key in keys if key not in turn.used][:3]
        turn.write(asked=sys.argv[2], documents=fresh, p={"holds": 0.5}, verdict="")
"""


def test_two_writers_share_no_number_document_or_level(ledger: QuestionLedger) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(ledger.path.parent), name])
        for name in "ab"
    ]
    assert [writer.wait() for writer in writers] == [0, 0]
    questions = ledger.questions()
    assert [q["number"] for q in questions] == list(range(1, 41))
    assert {q["asked"] for q in questions} == {"a", "b"}
    assert sum(len(q["documents"]) for q in questions) == len(used(ledger)) == 120
    assert [q["level"]["holds"] for q in questions] == [
        OnlineLevels().level(t, ()) for t in range(1, 41)
    ]


def test_two_threads_wait_for_each_other(ledger: QuestionLedger) -> None:
    threads = [
        threading.Thread(target=lambda: [ask(ledger, 0.5) for _ in range(8)]) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ledger.questions()) == 16


KILLED = """
import os, signal, sys
from interp.profiles import ledger as module

def half(path, end, added):
    with open(path, "ab") as out:
        out.write(added[: len(added) // 2])
    os.kill(os.getpid(), signal.SIGKILL)

module._append = half
ledger = module.QuestionLedger(sys.argv[1], {"model": "m" * 16, "corpus": "c" * 16})
with ledger.turn() as turn:
    turn.write(asked="never seen", documents=["late"], p={"holds": 1e-9}, verdict="")
"""


@pytest.mark.parametrize("n", [0, 3])
def test_a_line_cut_short_by_a_kill_is_removed(ledger: QuestionLedger, n: int) -> None:
    for _ in range(n):
        ask(ledger, 0.5)
    whole = ledger.path.read_bytes() if n else b""
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(ledger.path.parent)], capture_output=True, check=False
    )
    assert killed.returncode < 0, killed.stderr
    cut = ledger.path.read_bytes()[len(whole) :]
    if not n:  # the header is whole, since it stands first
        cut = cut.partition(b"\n")[2] or cut
    assert cut
    assert not cut.endswith(b"\n")
    assert "late" not in used(ledger)
    with pytest.warns(KeptWarning, match=r"jsonl was cut short; it is moved to .*\.jsonl\.cut$"):
        assert ask(ledger, 0.5)["number"] == n + 1
    assert ledger.path.with_name(f"{ledger.path.name}.cut").read_bytes() == cut
    assert len(ledger.questions()) == n + 1
    ask(ledger, 0.5)


def test_a_last_line_without_sense_is_removed(full: QuestionLedger) -> None:
    lines = full.path.read_bytes().splitlines(keepends=True)
    for line in (b'{"number": 7, "p": \xff\x00\n', b"\0" * 5_000):  # longer than its successor
        full.path.write_bytes(b"".join([*lines[:-1], line]))
        assert len(full.questions()) == 6
        with pytest.warns(KeptWarning, match=r"cut short"):
            assert ask(full, 0.5)["number"] == 7
        assert full.path.read_bytes().endswith(b"\n")
        assert len(full.questions()) == 7


def test_a_write_that_fails_leaves_nothing(
    full: QuestionLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = full.path.read_bytes()

    def fails(_handle: int) -> None:
        assert len(full.path.read_bytes()) > len(before)
        raise OSError(28, "No space left on device")

    with full.turn() as turn:
        answer: dict[str, Any] = {"asked": "", "documents": [], "p": {}, "verdict": ""}
        with monkeypatch.context() as patch:
            patch.setattr(module.os, "fsync", fails)
            with pytest.raises(StoreError, match=r"no space left"):
                turn.write(**answer)
        assert full.path.read_bytes() == before
        assert turn.write(**answer)["number"] == 8


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ledger = QuestionLedger(tmp_path / "file", ABOUT)
    with pytest.raises(StoreError, match=r"file"):
        ledger.questions()
    with pytest.raises(StoreError, match=r"choose another folder"), ledger.turn():
        pass


def test_a_file_changed_during_the_question_is_not_written(full: QuestionLedger) -> None:
    with full.turn() as turn:
        lines = full.path.read_bytes().splitlines(keepends=True)
        full.path.write_bytes(b"".join(lines[:-1]))
        with pytest.raises(OptionError, match=r"was changed during the question"):
            turn.write(asked="", documents=[], p={}, verdict="")


def changed(n: int, **entries: Any) -> Callable[[list[bytes]], list[bytes]]:
    """Change entries of a line, and its own checksum, as one who knows the format would."""

    def change(lines: list[bytes]) -> list[bytes]:
        line = json.dumps(seal(json.loads(lines[n - 1]) | entries)).encode() + b"\n"
        return [*lines[: n - 1], line, *lines[n:]]

    return change


def replaced(n: int, old: bytes, new: bytes) -> Callable[[list[bytes]], list[bytes]]:
    def change(lines: list[bytes]) -> list[bytes]:
        assert old in lines[n - 1]
        return [*lines[: n - 1], lines[n - 1].replace(old, new), *lines[n:]]

    return change


@over(
    ("change", "line", "text"),
    [
        pytest.param(replaced(3, b"1e-06", b"2e-06"), 3, "was changed", id="a p-value"),
        pytest.param(replaced(8, b"holds", b"fails"), 8, "was changed", id="the last line"),
        pytest.param(replaced(1, b"0.05", b"0.5"), 1, "not the header", id="alpha"),
        pytest.param(replaced(1, b"cccc", b"dddd"), 1, "not the header", id="about"),
        pytest.param(replaced(4, b'"asked"', b'"as\xffed"'), 4, "not a JSON", id="no text"),
        pytest.param(changed(3, verdict="true"), 4, "does not follow the line", id="sealed anew"),
        pytest.param(changed(8, level={"holds": 0.04}), 8, "instead of 0.00", id="a level"),
        pytest.param(changed(8, level={"holds": 1}), 8, "is 1 instead", id="no level"),
        pytest.param(changed(8, level={"holds": "1"}), 8, "is '1' instead", id="a text"),
        pytest.param(changed(8, level={}), 8, "the same streams", id="without level"),
        pytest.param(changed(8, found={"holds": True}), 8, "what it found", id="a finding"),
        pytest.param(changed(8, found={"holds": 0}), 8, "what it found", id="no finding"),
        pytest.param(changed(8, p={"holds": math.nan}), 8, "is nan", id="NaN"),
        pytest.param(changed(8, p={"holds": 0}), 8, "is 0, not", id="an integer"),
        pytest.param(changed(8, documents=["d0"]), 8, "used before", id="a used document"),
        pytest.param(changed(8, documents=[["d"]]), 8, "not all texts", id="no document"),
        pytest.param(changed(8, number=True), 8, "entries are not", id="no number"),
        pytest.param(changed(8, more=1), 8, "entries are not", id="one more entry"),
        pytest.param(lambda x: x[:4] + x[5:], 5, "its number is 5 instead of 4", id="missing"),
        pytest.param(lambda x: x[1:], 1, "not the header", id="no header"),
        pytest.param(lambda x: [*x, x[-1]], 9, "its number is 7 instead of 8", id="added"),
        pytest.param(lambda x: [*x[:3], x[4], x[3], *x[5:]], 4, "number is 4", id="reordered"),
        pytest.param(lambda x: [*x[:3], b"\n", *x[3:]], 4, "not a JSON", id="an empty line"),
        pytest.param(lambda x: [*x[:3], b"[1]\n", *x[3:]], 4, "not an object", id="a list"),
        pytest.param(lambda x: [*x[:3], b"[" * 10**6 + b"\n", *x[3:]], 4, "not a JS", id="deep"),
        pytest.param(lambda x: [*x, b"x" * (module.LONGEST + 1)], 9, "is longer", id="a long line"),
    ],
)
def test_damage_is_refused(
    full: QuestionLedger,
    change: Callable[[list[bytes]], list[bytes]],
    line: int,
    text: str,
) -> None:
    whole = full.path.read_bytes()
    content = b"".join(change(whole.splitlines(keepends=True)))
    full.path.write_bytes(content)
    where = f"{full.path.name}, line {line}: .*{text}.*; restore the file, or give a new folder"
    try:
        for use in (full.questions, lambda: used(full), lambda: ask(full, 0.5)):
            with pytest.raises(OptionError, match=where):
                use()
        assert full.path.read_bytes() == content
    finally:
        full.path.write_bytes(whole)
    assert len(full.questions()) == 7


def test_windows_line_ends_are_a_change(full: QuestionLedger) -> None:
    full.path.write_bytes(re.sub(rb"\n", b"\r\n", full.path.read_bytes()))
    with pytest.raises(OptionError, match=r"line 1: it is not the header"):
        full.questions()


def test_nothing_is_said_of_a_whole_file(full: QuestionLedger) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ask(full, 0.1)
    assert {path.name for path in full.path.parent.iterdir()} == {
        full.path.name,
        f"{full.path.name}.lock",
    }
