"""Strict reader of treebanks in CoNLL-U, the format of Universal Dependencies.

Format: https://universaldependencies.org/format.html (Universal Dependencies, version 2).
The package conllu (6.0) splits the columns, but it accepts missing columns, ids out of order, heads
beyond the sentence and cycles, and gives no line numbers: all checks below would remain.
"""

from __future__ import annotations

import codecs
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from interp.core.errors import OptionError
from interp.syntax.treebank import Sentence, Treebank, TreebankError

ID, FORM, UPOS, HEAD, DEPREL, DEPS, MISC = 0, 1, 3, 6, 7, 8, 9  # columns
# The marks of UTF-32 come first, because one of them begins with that of UTF-16.
_WIDE = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


def read_conllu(
    path: str | os.PathLike, *, on_error: Literal["refuse", "skip"] = "refuse"
) -> Treebank:
    """Read the treebank of a CoNLL-U file, UTF-8 with or without a byte order mark.

    Args:
        path: the file.
        on_error: `skip` excludes sentences with an error and lists them in `skipped`; `refuse`
            raises.

    Raises:
        TreebankError: the file cannot be read, contains no sentence, or has an error; the line is
            given.
        OptionError: `on_error` is not known.
    """
    if on_error not in ("refuse", "skip"):
        raise OptionError(f"on_error={on_error!r} is not known; use 'refuse' or 'skip'")
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise TreebankError(f"cannot read {path}: {error.strerror or error}") from error
    _refuse_wide(path, content)
    sentences, skipped = [], []
    for start, lines in _blocks(content.removeprefix(codecs.BOM_UTF8)):
        try:
            sentence = _sentence(
                start, [_decoded(line, start + at) for at, line in enumerate(lines)]
            )
        except _Wrong as wrong:
            text = f"{path}, line {wrong.line}: {wrong.what}"
            if on_error == "refuse":
                raise TreebankError(text) from wrong
            skipped.append(text)
            continue
        if sentence is not None:
            sentences.append(sentence)
    if not sentences:
        why = f"; {len(skipped):,} skipped, the first: {skipped[0]}" if skipped else ""
        raise TreebankError(f"{path} contains no sentence{why}; give a CoNLL-U file")
    digest = hashlib.sha256(content).hexdigest()
    return Treebank(path.stem, tuple(sentences), digest, tuple(skipped))


class _Wrong(Exception):
    def __init__(self, line: int, what: str):
        super().__init__(what)
        self.line, self.what = line, what


def _refuse_wide(path: Path, content: bytes) -> None:
    """Raise for encodings of two or four bytes per letter, whose lines cannot be counted."""
    name = next((name for mark, name in _WIDE.items() if content.startswith(mark)), None)
    if name is None and b"\0" not in content:
        return
    at = content.find(b"\0")
    line = content.count(b"\n", 0, max(at, 0)) + 1
    what = f"begins as {name} does" if name else f"has the byte 0x00 (byte {at + 1} of the file)"
    raise TreebankError(
        f"{path}, line {line}: {what}, so it is not UTF-8 text; save it as UTF-8, such as with"
        f" iconv -f {name or 'UTF-16'} -t UTF-8"
    )


def _decoded(line: bytes, number: int) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise _Wrong(
            number,
            f"byte 0x{line[error.start]:02x} (byte {error.start + 1} of the line) is not UTF-8; "
            f"save the file as UTF-8, such as with iconv -f ISO-8859-1 -t UTF-8",
        ) from error


def _blocks(content: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the lines between empty lines, with the number of the first."""
    start, block = 1, []
    # Split as bytes: as text, a line would also end at characters that may occur in a word, such as
    # U+2028.
    for number, line in enumerate(content.splitlines(), 1):
        if line.strip():
            if not block:
                start = number
            block.append(line)
        elif block:
            yield start, block
            block = []
    if block:
        yield start, block


def _sentence(start: int, lines: list[str]) -> Sentence | None:
    """Return the sentence of a block; None if it contains only comments."""
    comments: dict[str, str] = {}
    rows: list[list[str]] = []
    numbers: list[int] = []
    tokens: list[
        tuple[int, int, str, bool]
    ] = []  # first word, last word, surface form, whether a space follows
    covered = empty = 0
    enhanced = False
    for number, line in enumerate(lines, start):
        if line.startswith("#"):
            key, _, value = line[1:].partition("=")
            comments.setdefault(key.strip(), value.strip())
            continue
        cells = _cells(number, line)
        kind, first, last = _place(number, cells[ID], len(rows), covered)
        spaced = "SpaceAfter=No" not in cells[MISC].split("|")
        if kind == "empty":
            empty += 1
            continue
        if kind == "range":
            tokens.append((first, last, cells[FORM], spaced))
            covered = last
            continue
        if first >= covered:
            tokens.append((first, last, cells[FORM], spaced))
        enhanced |= cells[DEPS] != "_"
        rows.append(cells)
        numbers.append(number)
    if not rows:
        if not tokens and not empty:
            return None
        raise _Wrong(start, "the sentence has no words")
    if covered > len(rows):
        raise _Wrong(
            numbers[-1],
            f"the multi-word token ends at word {covered}, but the sentence has {len(rows)}",
        )
    heads = _heads(rows, numbers)
    stated = bool(comments.get("text"))
    text = comments["text"] if stated else _joined(tokens)
    return Sentence(
        words=tuple(r[FORM] for r in rows),
        heads=heads,
        relations=tuple(r[DEPREL] for r in rows),
        upos=tuple(r[UPOS] for r in rows),
        text=text,
        spans=_spans(text, tokens),
        sent_id=comments.get("sent_id", ""),
        line=start,
        multiword=tuple((a, b) for a, b, _, _ in tokens if b - a > 1),
        empty_nodes=empty,
        enhanced=enhanced,
        text_from_file=stated,
    )


def _cells(number: int, line: str) -> list[str]:
    cells = line.split("\t")
    if len(cells) != 10:
        hint = "; they are separated by tabs, not spaces" if len(cells) == 1 else ""
        raise _Wrong(number, f"{len(cells)} columns; a line of CoNLL-U has 10{hint}")
    blank = next((at + 1 for at, cell in enumerate(cells) if not cell.strip()), None)
    if blank:
        raise _Wrong(number, f"column {blank} is empty; write _ for an unknown value")
    return cells


def _place(number: int, given: str, n_words: int, covered: int) -> tuple[str, int, int]:
    """Return the kind of a line, and the words from 0 (start, end) that it covers."""
    match = re.fullmatch(r"([0-9]+)(?:([-.])([0-9]+))?", given)
    if match is None:
        raise _Wrong(number, f"{given!r} is not an id; ids are 1, 2, ... or 2-3, or 2.1")
    first, sign, last = int(match[1]), match[2], int(match[3] or 0)
    if sign == ".":
        if first != n_words:
            raise _Wrong(number, f"empty node {given} follows word {n_words}, not {first}")
        return "empty", first, first
    if first != n_words + 1:
        raise _Wrong(number, f"id {given}, but {n_words + 1} is expected; ids count up from 1")
    if sign is None:
        return "word", first - 1, first
    if last <= first:
        raise _Wrong(number, f"multi-word token {given} has fewer than two words")
    if first <= covered:
        raise _Wrong(number, f"multi-word token {given} overlaps the previous one")
    return "range", first - 1, last


def _heads(rows: list[list[str]], numbers: list[int]) -> tuple[int, ...]:
    heads = []
    for at, (row, number) in enumerate(zip(rows, numbers, strict=True)):
        head_text, word = row[HEAD], f"word {at + 1} ({row[FORM]!r})"
        if head_text == "_" or row[DEPREL] == "_":
            missing = "head" if head_text == "_" else "relation"
            raise _Wrong(
                number, f"{word} has no {missing} (_); use a treebank with dependency trees"
            )
        if not re.fullmatch(r"[0-9]+", head_text):
            raise _Wrong(
                number, f"{word} has head {head_text!r}; a head is a word's id, 0 for the root"
            )
        if int(head_text) > len(rows) or int(head_text) == at + 1:
            what = "itself" if int(head_text) == at + 1 else f"{head_text}, of {len(rows)} words"
            raise _Wrong(number, f"{word} has as head {what}; a head is another word's id, or 0")
        heads.append(int(head_text) - 1)
    roots = [at for at, head in enumerate(heads) if head == -1]
    if len(roots) > 1:
        listed = ", ".join(str(at + 1) for at in roots)
        raise _Wrong(
            numbers[roots[1]], f"words {listed} are roots; a tree has exactly one word with head 0"
        )
    ring = _ring(heads)
    if ring:
        listed = " -> ".join(str(at + 1) for at in [*ring, ring[0]])
        none = "" if roots else ", and no word has head 0"
        raise _Wrong(numbers[min(ring)], f"not a tree: the heads of {listed} form a cycle{none}")
    return tuple(heads)


def _ring(heads: list[int]) -> list[int]:
    """Return words whose heads lead back to themselves; none in a tree."""
    good = {-1}
    for start in range(len(heads)):
        path: list[int] = []
        seen: set[int] = set()
        at = start
        while at not in good and at not in seen:
            path.append(at)
            seen.add(at)
            at = heads[at]
        if at in seen:
            return path[path.index(at) :]
        good |= seen
    return []


def _joined(tokens: list[tuple[int, int, str, bool]]) -> str:
    return "".join(form + " " * spaced for _, _, form, spaced in tokens).rstrip(" ")


def _spans(
    text: str, tokens: list[tuple[int, int, str, bool]]
) -> tuple[tuple[int, int], ...] | None:
    """Return each word's characters; None unless the text is these tokens with white space."""
    out: list[tuple[int, int]] = []
    at = 0
    for first, last, form, _ in tokens:
        while text[at : at + 1].isspace():
            at += 1
        if not text.startswith(form, at):
            return None
        out += [(at, at + len(form))] * (last - first)
        at += len(form)
    return None if text[at:].strip() else tuple(out)
