"""Ledger of the hypotheses asked about one model, each with its documents, level and verdict.

    ledger = QuestionLedger(folder, {"model": model_hash})
    with ledger.turn() as turn:
        fresh = [key for key in keys if key not in turn.used]
        ...
        turn.write(asked="...", documents=fresh, p={"holds": 0.003}, verdict="holds")

Of many hypotheses judged at 5 % each, some hold by chance. The ledger lowers the levels, so that
the expected share of such among all that were found to hold stays below alpha. Each stream of
p-values, such as "holds" and "in part", has a sequence of levels of its own.

A line states the sha256 of the line before it and the checksum of its own entries, so a line that
was changed, moved, added or left out is refused. Neither is a signature: the removal of the last
lines, and a file that was rewritten from a changed line on, are not noticed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from numbers import Real
from pathlib import Path
from typing import Any

from filelock import FileLock

from interp.core import files
from interp.core.documents import parse_json, seal
from interp.core.errors import KeptWarning, OptionError, StoreError
from interp.profiles.online_levels import ALPHA, AskedQuestions, OnlineLevels

LONGEST = 2**24  # bytes of a line, with the keys of all its documents


class QuestionTurn:
    """One question to a ledger, which nobody else can ask at the same time."""

    def __init__(self, ledger: QuestionLedger) -> None:
        self._ledger, self._over = ledger, ""
        self._written: list[dict[str, Any]] = []
        self._asked, self._end = ledger.read()
        self.number = len(self._asked.questions) + 1
        self.used, self.held = frozenset(self._asked.used), frozenset(self._asked.held)
        self.answers = self._asked.answers

    def listing(self) -> list[dict[str, Any]]:
        """Return the questions so far in short, with the number of documents of each."""
        shown = ("number", "asked", "verdict", "p", "level", "time")
        return [
            {name: question[name] for name in shown} | {"documents": len(question["documents"])}
            for question in [*self._asked.questions, *self._written]
        ]

    def level(self, stream: str) -> float:
        """Return the level that a p-value of this stream is compared with."""
        return self._asked.level(stream)

    def write(
        self, *, asked: str, documents: Sequence[str], p: Mapping[str, float], verdict: str
    ) -> dict[str, Any]:
        """Append the question to the file, once, and return what was written.

        A stream without a p-value was not tested, and takes no step; on held-back documents none
        is. OptionError for a document that was used before, or a p-value that is not one; the file
        is then unchanged.
        """
        if self._over:
            raise OptionError(f"question {self.number} {self._over}; begin another turn")
        if isinstance(documents, str) or not (isinstance(asked, str) and isinstance(verdict, str)):
            raise OptionError("give asked and verdict as texts, and documents as a list of texts")
        documents, p = list(documents), {stream: _as_float(x) for stream, x in p.items()}
        try:
            self._asked.check(documents, p)
        except ValueError as error:
            text = f"question {self.number} cannot be written: {error}"
            raise OptionError(f"{text}; give fresh documents and p-values from 0 to 1") from error
        level = {stream: self.level(stream) for stream in p}
        question = {
            "number": self.number,
            "asked": asked,
            "documents": documents,
            "p": p,
            "level": level,
            "found": {stream: p[stream] <= level[stream] for stream in p},
            "verdict": verdict,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "before": self._asked.before,
        }
        self._ledger.append(question, self._end)
        self._written.append(question)
        self.end("was written already")
        return question

    def end(self, why: str) -> None:
        """Refuse to write from now on, for the reason given."""
        self._over = self._over or why


class QuestionLedger:
    """Append-only file of the questions about one subject, shared between threads and processes.

    `about` names it by hashes, such as that of a model; another `about` has another file in the
    folder. `alpha` is the false discovery rate of every stream. Its lock is that of the package
    filelock, which also holds on Windows and between threads: `interp.core.locks` does not, where a
    second computation costs only time.
    """

    def __init__(
        self, folder: str | os.PathLike, about: Mapping[str, str], *, alpha: float = ALPHA
    ) -> None:
        if not about or not all(isinstance(x, str) for pair in about.items() for x in pair):
            raise OptionError(f"about={about!r} must name its subject, as texts")
        self.levels = OnlineLevels(float(alpha))
        said = dict(sorted(about.items()))
        name = _sha256(json.dumps(said).encode())[:16]
        self.path = Path(folder) / f"ledger-{name}.jsonl"
        header = {"format": "interp ledger 1", "about": said, "alpha": self.levels.alpha}
        self._header = _line(header | {"before": ""})

    def questions(self) -> list[dict[str, Any]]:
        """Return the questions so far, as the file states them."""
        return self.read()[0].questions

    @contextlib.contextmanager
    def turn(self) -> Iterator[QuestionTurn]:
        """Hold the ledger for one question, from the choice of its documents to its verdict."""
        lock = FileLock(self.path.with_name(f"{self.path.name}.lock"))
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except OSError as error:
            raise StoreError(files.cannot_write(self.path, error)) from error
        except RuntimeError as error:  # what this thread holds it would wait for without end
            raise OptionError(f"a turn of {self.path} is open already; end it first") from error
        try:
            turn = QuestionTurn(self)
            try:
                yield turn
            finally:
                turn.end("is over")
        finally:
            lock.release()

    def read(self) -> tuple[AskedQuestions, int]:
        """Read and check the file; return its questions, and the number of bytes they take."""
        asked, end = AskedQuestions(self.levels, _sha256(self._header)), 0
        for n, line in enumerate(_lines_of(self.path)[0], 1):
            try:
                if n > 1:
                    asked.add(_parsed(line))
                elif line != self._header:
                    raise ValueError(f"it is not the header {self._header.decode().strip()}")
            except ValueError as error:
                raise _damaged(self.path, n, error) from error
            asked.before, end = _sha256(line), end + len(line)
        return asked, end

    def append(self, question: Mapping[str, Any], end: int) -> None:
        """Append a question after the bytes that were read, whole and on disk, or not at all."""
        added = _line(seal(question))
        if len(added) > LONGEST:
            raise OptionError(f"the question takes {len(added):,} bytes, above {LONGEST:,}")
        asked, now = self.read()
        if (asked.before, now) != (question["before"], end):
            raise OptionError(f"{self.path} was changed during the question; ask it again")
        if cut := _lines_of(self.path)[1]:
            aside = self.path.with_name(f"{self.path.name}.cut")
            text = f"the last line of {self.path} was cut short; it is moved to {aside.name}"
            warnings.warn(text, KeptWarning, stacklevel=3)
            files.write_atomically(aside, cut)
        _append(self.path, end, added if end else self._header + added)


def _append(path: Path, end: int, added: bytes) -> None:
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(path, flags, 0o666), "r+b", buffering=0) as out:
            try:
                out.truncate(end)
                out.seek(end)
                left = memoryview(added)
                while left:
                    left = left[out.write(left) :]
                os.fsync(out.fileno())
            except BaseException:  # also on Ctrl-C
                out.truncate(end)
                raise
    except OSError as error:
        raise StoreError(files.cannot_write(path, error)) from error


def _lines_of(path: Path) -> tuple[list[bytes], bytes]:
    """Return the whole lines of a file, and a last one that a killed process left unfinished."""
    lines: list[bytes] = []
    try:
        with files.open_file(path) as content:
            while line := content.readline(LONGEST + 1):
                lines.append(line)
                if len(line) > LONGEST:
                    raise _damaged(path, len(lines), f"it is longer than {LONGEST:,} bytes")
        if lines and lines[-1].endswith(b"\n"):
            _parsed(lines[-1])
    except FileNotFoundError:
        return [], b""
    except OSError as error:
        raise StoreError(files.cannot_read(path, error)) from error
    except ValueError:
        return lines[:-1], lines[-1]
    return (lines[:-1], lines[-1]) if lines and not lines[-1].endswith(b"\n") else (lines, b"")


def _parsed(line: bytes) -> Any:
    try:
        return parse_json(line)
    except ValueError as error:
        raise ValueError("it is not a JSON object") from error


def _damaged(path: Path, n: int, fault: object) -> OptionError:
    remedy = "restore the file, or give a new folder, whose verdicts then count from one"
    return OptionError(f"{path}, line {n}: {fault}; {remedy}")


def _line(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, allow_nan=False).encode() + b"\n"


def _sha256(line: bytes) -> str:
    return hashlib.sha256(line.removesuffix(b"\n")).hexdigest()


def _as_float(value: Any) -> Any:
    """Return a number of any kind as a float, and anything else as it is."""
    return float(value) if isinstance(value, Real) and not isinstance(value, bool) else value
