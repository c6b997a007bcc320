"""Files of labelled texts: JSONL with spans, CoNLL-U, CoNLL-2012, columns of BIO tags, code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from interp.core.documents import parse_json
from interp.core.errors import PromptError
from interp.core.prompt_file import prompt_text
from interp.core.text_file import lines_of_text, require_inside
from interp.syntax.align import refined
from interp.syntax.categories._source import SUFFIXES, code_texts
from interp.syntax.categories._texts import LabelledText, Span
from interp.syntax.conllu import read_conllu
from interp.syntax.treebank import Treebank

SENTENCES = 4  # of a treebank, in one text
EXAMPLE = '{"text": "Ann sleeps.", "spans": [[0, 3, "name", "ann"]], "document": "a"}'
_NAMED, _WORD, _TAG, _LEAST = 10, 3, 4, 12  # columns of CoNLL-2012


def read_labelled_texts(path: str | Path) -> list[LabelledText]:
    """Read texts with labelled spans from a file, or from the files of a folder.

    By suffix and content:

    `.jsonl`: an object per line with "text", "spans" as `[start, end, label]` or
    `[start, end, label, group]` in characters, and optionally "document", which texts that are not
    independent share.
    `.conllu`: universal parts of speech as labels; four sentences are a text.
    CoNLL-2012 (`#begin document`): part of speech and type of entity as labels, and `mention` with
    the entity as group; a document is a text, its words are joined by spaces.
    Source code (`.py`, and with tree-sitter others): kinds of tokens; see `code_spans`.
    Other files: columns, the word first and a tag (`B-PER`, `I-PER`, `O`) last; empty lines end a
    sentence and a text.

    Raises:
        PromptError: the file does not exist, or a line is wrong; its number is given.
        TreebankError: a `.conllu` file has an error.
        OptionError: the grammar of a programming language is not installed.
    """
    path = Path(path)
    if path.is_dir():
        inner = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
        if not inner:
            raise PromptError(f"{path} holds no files; give a file of labelled texts")
        return [text for p in require_inside(path, inner) for text in read_labelled_texts(p)]
    suffix = path.suffix.lower()
    if suffix == ".conllu":
        return texts_of_treebank(read_conllu(path))
    content = prompt_text(path)
    if suffix in SUFFIXES:
        return code_texts(content, SUFFIXES[suffix], path.name)
    lines = lines_of_text(content)
    if suffix == ".jsonl":
        texts = [_jsonl(f"{path}, line {i}", x) for i, x in enumerate(lines, 1) if x.strip()]
    elif content.lstrip().startswith("#begin document"):
        texts = list(_conll_2012(path, lines))
    else:
        texts = list(_columns(path, lines))
    if not any(text.spans for text in texts):
        raise PromptError(f"{path} has no labelled spans; give at least one")
    return texts


def texts_of_treebank(treebank: Treebank) -> list[LabelledText]:
    """Return the sentences of a treebank, some in a text, with parts of speech as spans.

    Sentences whose text does not consist of their words are left out. The group of a word is its
    part of speech.
    """
    sentences = [s for s in treebank if s.spans is not None]
    texts = []
    for first in range(0, len(sentences), SENTENCES):
        text, spans = "", []
        for sentence in sentences[first : first + SENTENCES]:
            text += " " * bool(text)
            for (start, end), tag in zip(refined(sentence), sentence.upos, strict=True):
                if end > start and tag != "_":
                    spans.append(Span(len(text) + start, len(text) + end, tag, tag))
            text += sentence.text
        texts.append(LabelledText(text, tuple(spans), f"{treebank.name} {first}"))
    if not any(t.spans for t in texts):
        raise PromptError(f"{treebank.name} has no parts of speech with character offsets")
    return texts


def _jsonl(where: str, line: str) -> LabelledText:
    try:
        row = parse_json(line)
    except ValueError as error:
        raise PromptError(f"{where}: not JSON ({error}); expected {EXAMPLE}") from error
    if not isinstance(row, dict) or not isinstance(row.get("text"), str) or not row["text"].strip():
        raise PromptError(f"{where}: no text; expected an object such as {EXAMPLE}")
    if unknown := sorted(row.keys() - {"text", "spans", "document"}):
        raise PromptError(f"{where}: unknown field {unknown[0]!r}; expected {EXAMPLE}")
    entries = row.get("spans", [])
    if not isinstance(entries, list):
        raise PromptError(f"{where}: 'spans' is not a list; expected {EXAMPLE}")
    spans = tuple(_span(where, x, len(row["text"])) for x in entries)
    return LabelledText(row["text"], spans, str(row.get("document", "")))


def _span(where: str, given: Any, length: int) -> Span:
    right = isinstance(given, list) and len(given) in (3, 4)
    right = right and all(type(x) is int for x in given[:2])
    right = right and all(isinstance(x, str) for x in given[2:]) and bool(given[2])
    if not right:
        raise PromptError(
            f"{where}: {given!r} is not a span; expected [start, end, label] or "
            "[start, end, label, group]"
        )
    if not 0 <= given[0] < given[1] <= length:
        raise PromptError(
            f"{where}: the span {given[0]} to {given[1]} is empty or outside the {length} "
            f"characters of the text"
        )
    return Span(*given)


class _Growing:
    """A text that grows word by word, joined by spaces."""

    def __init__(self, document: str):
        self.document, self.text, self.spans = document, "", []
        self.open: dict[str, list[int]] = {}

    def word(self, word: str) -> tuple[int, int]:
        self.text += " " * bool(self.text) + word
        return len(self.text) - len(word), len(self.text)

    def done(self) -> LabelledText:
        return LabelledText(self.text, tuple(self.spans), self.document)


def _conll_2012(path: Path, lines: list[str]) -> Iterator[LabelledText]:
    text: _Growing | None = None
    for number, line in enumerate(lines, 1):
        where = f"{path}, line {number}"
        if line.startswith("#begin document"):
            text = _Growing(line.removeprefix("#begin document").strip() or f"document {number}")
        elif line.startswith("#end document"):
            if text is None:
                raise PromptError(f"{where}: a document ends that has not begun")
            if still := [name for name, starts in text.open.items() if starts]:
                raise PromptError(f"{where}: {still[0]} is opened and never closed")
            yield text.done()
            text = None
        elif line.strip() and not line.startswith("#"):
            if text is None:
                raise PromptError(f"{where}: a word outside of a document; write #begin document")
            _word_2012(where, line.split(), text)
    if text is not None:
        raise PromptError(f"{path}: {text.document} has no #end document")


def _word_2012(where: str, cells: list[str], text: _Growing) -> None:
    if len(cells) < _LEAST:
        raise PromptError(
            f"{where}: {len(cells)} columns; CoNLL-2012 has at least {_LEAST}, the coreference last"
        )
    start, end = text.word(cells[_WORD])
    if cells[_TAG] not in ("-", "_"):
        text.spans.append(Span(start, end, cells[_TAG], cells[_TAG]))
    named = re.findall(r"\(([^()*]+)", cells[_NAMED])
    for label in named:
        text.open.setdefault("an entity", []).append(start)
        text.open.setdefault(f"label {label}", []).append(start)
    for _ in range(cells[_NAMED].count(")")):
        begun = text.open.get("an entity", [])
        if not begun:
            raise PromptError(f"{where}: an entity is closed that is not open")
        begin = begun.pop()
        label = next(n for n, s in reversed(text.open.items()) if n[:6] == "label " and begin in s)
        text.open[label].remove(begin)
        text.spans.append(Span(begin, end, label.removeprefix("label ")))
    for part in cells[-1].split("|") if cells[-1] not in ("-", "_") else ():
        match = re.fullmatch(r"(\()?(\w+)(\))?", part)
        if match is None or not (match[1] or match[3]):
            raise PromptError(f"{where}: {part!r} is not a coreference such as (3), (3 or 3)")
        begun = text.open.setdefault(f"mention {match[2]}", [])
        if match[1]:
            begun.append(start)
        if match[3]:
            if not begun:
                raise PromptError(f"{where}: mention {match[2]} is closed that is not open")
            text.spans.append(Span(begun.pop(), end, "mention", match[2]))


def _columns(path: Path, lines: list[str]) -> Iterator[LabelledText]:
    text = _Growing("")
    for number, line in enumerate([*lines, ""], 1):
        cells = line.split()
        if not cells or cells[0] == "-DOCSTART-":
            if text.text:
                yield text.done()
            text = _Growing("")
            continue
        where = f"{path}, line {number}"
        if len(cells) < 2:
            raise PromptError(f"{where}: one column; give a word and its tag, such as Ann B-PER")
        start, end = text.word(cells[0])
        place, _, label = cells[-1].partition("-")
        if place == "O":
            continue
        if place not in ("B", "I", "E", "S") or not label:
            raise PromptError(f"{where}: {cells[-1]!r} is not a tag such as B-PER, I-PER or O")
        last = text.spans[-1] if text.spans else None
        joined = last and last.label == label and text.text[last.end : start].isspace()
        if place in ("I", "E") and last and joined:
            text.spans[-1] = last._replace(end=end)
        else:
            text.spans.append(Span(start, end, label))
