"""Texts to score, one at a time: from a file of any length or an iterable, as windows of tokens."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from interp.core.documents import parse_json
from interp.core.errors import OptionError, PromptError, UnknownName
from interp.core.text_file import iter_lines
from interp.core.tokens import encoded_text

if TYPE_CHECKING:
    from interp.model.model import Model

Long = Literal["truncate", "windows"]
LONG = ("truncate", "windows")
SUFFIXES = (".txt", ".jsonl")


@dataclass(frozen=True)
class Text:
    """Text or list of token ids, with its number from 0 and the name given by its source."""

    number: int
    id: Any
    content: str | tuple[int, ...]

    @property
    def sha256(self) -> str:
        """First 16 hexadecimal digits of the digest, which identify the text of a result."""
        stated = self.content if isinstance(self.content, str) else repr(self.content)
        return hashlib.sha256(stated.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True)
class Cut:
    """Text as windows of token ids; `how` describes the cut of a long one.

    If nothing can be scored, `reason` gives the cause and there are no windows.
    """

    windows: tuple[tuple[int, ...], ...]
    n_tokens: int
    how: str = ""
    reason: str = ""


def texts_of(given: Any) -> Iterator[Text]:
    """Yield texts of a `Path` (.txt or .jsonl) or an iterable.

    A .txt file has one text per line; a .jsonl file has the field `text`, and perhaps `id`.

    An iterable contains texts, mappings with `text` and perhaps `id`, or lists of token ids. Texts
    are read lazily.
    """
    if isinstance(given, (str, Mapping)) or not isinstance(given, (Path, Iterable)):
        raise OptionError(
            f"texts is {given!r:.60}; give a pathlib.Path to a file, or an iterable of texts"
        )
    if not isinstance(given, Path):
        return (_text(i, x, f"text {i}") for i, x in enumerate(given))
    if given.suffix.lower() not in SUFFIXES:
        raise UnknownName("kind of text file", given.suffix or given.name, SUFFIXES)
    return _of_file(given)


def count_texts(given: Any) -> int | None:
    """Count the texts, if that is possible before they are read."""
    if isinstance(given, Path):
        jsonl = given.suffix.lower() == ".jsonl"
        return sum(1 for line in iter_lines(given) if line.strip() or not jsonl)
    return len(given) if isinstance(given, Sequence) else None


def _of_file(path: Path) -> Iterator[Text]:
    number = 0
    jsonl = path.suffix.lower() == ".jsonl"
    for at, line in enumerate(iter_lines(path), 1):
        if not jsonl:
            yield Text(number, at, line)
        elif not line.strip():
            continue
        else:
            yield _text(number, _parsed(line, f"{path} line {at}"), f"{path} line {at}", at)
        number += 1
    if number == 0:
        raise PromptError(f"{path} contains no text")


def _parsed(line: str, where: str) -> Any:
    try:
        return parse_json(line)
    except (ValueError, RecursionError) as error:
        raise PromptError(f"{where} is not valid JSON: {error}") from error


def _text(number: int, given: Any, where: str, default: Any = None) -> Text:
    name = number if default is None else default
    if isinstance(given, Mapping):
        content = given.get("text")
        if not isinstance(content, str):
            have = f"its fields are {', '.join(map(str, given))}" if given else "it has no fields"
            raise PromptError(f"{where} has no text in a field 'text'; {have}")
        identifier = given.get("id")
        if identifier is not None and not isinstance(identifier, (str, int)):
            identifier = json.dumps(identifier)
        return Text(number, name if identifier is None else identifier, content)
    if isinstance(given, str) and default is None:
        return Text(number, name, given)
    if isinstance(given, (tuple, list)) and default is None:
        try:
            return Text(number, name, tuple(int(t) for t in given))
        except (TypeError, ValueError) as error:
            raise PromptError(f"{where} is a list with elements other than token ids") from error
    raise PromptError(f"{where} is a {type(given).__name__}, not an object with a field 'text'")


def text_windows(model: Model, text: Text, limit: int | None, long: Long, bos: int | None) -> Cut:
    """Split a text into the windows that the model runs, each of at most `limit` tokens."""
    if isinstance(text.content, str):
        if not text.content.strip():
            return Cut((), 0, reason="empty")
        if model.tokenizer is None:
            raise PromptError(f"{model.name} has no tokenizer; give token ids instead of text")
        if any("\ud800" <= letter <= "\udfff" for letter in text.content):
            return Cut((), 0, reason="no valid Unicode")
        # not verbose: the tokenizer warns of long texts, which are cut below
        ids = tuple(encoded_text(model.tokenizer, text.content, verbose=False)["input_ids"])
    else:
        ids = text.content
    wrong = [t for t in ids if not 0 <= t < model.d_vocab]
    if wrong:
        raise PromptError(
            f"text {text.id!r} holds the token id {wrong[0]}; {model.name} knows 0 to "
            f"{model.d_vocab - 1}"
        )
    if len(ids) < 2:
        return Cut((), len(ids), reason="one token, so nothing is predicted" if ids else "empty")
    if limit is None or len(ids) <= limit:
        return Cut((ids,), len(ids))
    if long == "truncate":
        return Cut((ids[:limit],), len(ids), f"first {limit} of {len(ids)} tokens")
    first = ids[:1] if bos is not None and ids[0] == bos else ()
    step = limit - len(first)
    body = ids[len(first) :]
    windows = [first + body[i : i + step] for i in range(0, len(body), step)]
    windows = [w for w in windows if len(w) > 1]  # a single token has no context that predicts it
    return Cut(tuple(windows), len(ids), f"{len(windows)} windows of at most {limit} tokens")
