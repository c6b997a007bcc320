"""Texts to score, one at a time: from a file of any length or an iterable, as windows of tokens."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from interp.core.errors import OptionError, PromptError, UnknownName

if TYPE_CHECKING:
    from interp.model.model import Model

Long = Literal["truncate", "windows"]
LONG = ("truncate", "windows")
SUFFIXES = (".txt", ".jsonl")


@dataclass(frozen=True)
class Text:
    """One text or list of token ids, its number from 0 on, and the name its source gives it."""

    number: int
    id: Any
    content: str | tuple[int, ...]

    @property
    def sha256(self) -> str:
        """The first 16 hexadecimal digits: tells whether a result is of this text."""
        told = self.content if isinstance(self.content, str) else repr(self.content)
        return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True)
class Cut:
    """A text as windows of token ids; `how` says what became of a long one.

    `reason` says why there is nothing to score, and then there is no window.
    """

    windows: tuple[tuple[int, ...], ...]
    n_tokens: int
    how: str = ""
    reason: str = ""


def texts_of(given: Any) -> Iterator[Text]:
    """Texts of a `Path` (.txt: one per line; .jsonl: the field `text`, and `id`) or an iterable.

    An iterable holds texts, mappings with `text` and perhaps `id`, or lists of token ids. Nothing
    is read before it is asked for.

    Raises:
        PromptError: a file without texts, or a line that holds none, with its number.
        OptionError, UnknownName: neither file nor iterable of texts, or another kind of file.
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
    """How many there are, where that can be known before they are read."""
    if isinstance(given, Path):
        jsonl = given.suffix.lower() == ".jsonl"
        return sum(1 for _, line in _lines(given) if line.strip() or not jsonl)
    return len(given) if isinstance(given, Sequence) else None


def _of_file(path: Path) -> Iterator[Text]:
    number = 0
    jsonl = path.suffix.lower() == ".jsonl"
    for at, line in _lines(path):
        if not jsonl:
            yield Text(number, at, line)
        elif not line.strip():
            continue
        else:
            yield _text(number, _parsed(line, f"{path} line {at}"), f"{path} line {at}", at)
        number += 1
    if number == 0:
        raise PromptError(f"{path} holds no text")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines with their numbers from 1 on, without the end of line."""
    at = 0
    try:
        with path.open(encoding="utf-8-sig") as lines:
            for at, line in enumerate(lines, 1):
                yield at, line.removesuffix("\n")
    except OSError as error:
        raise PromptError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PromptError(f"{path} is not UTF-8 text after line {at}: {error.reason}") from error


def _parsed(line: str, where: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise PromptError(f"{where} is no JSON: {error}") from error


def _text(number: int, given: Any, where: str, default: Any = None) -> Text:
    name = number if default is None else default
    if isinstance(given, Mapping):
        content = given.get("text")
        if not isinstance(content, str):
            have = f"its fields are {', '.join(map(str, given))}" if given else "it has no fields"
            raise PromptError(f"{where} has no text in a field 'text'; {have}")
        found = given.get("id")
        if found is not None and not isinstance(found, (str, int)):
            found = json.dumps(found)
        return Text(number, name if found is None else found, content)
    if isinstance(given, str) and default is None:
        return Text(number, name, given)
    if isinstance(given, (tuple, list)) and default is None:
        try:
            return Text(number, name, tuple(int(t) for t in given))
        except (TypeError, ValueError) as error:
            raise PromptError(f"{where} is a list of something else than token ids") from error
    raise PromptError(f"{where} is a {type(given).__name__}, not an object with a field 'text'")


def text_windows(model: Model, text: Text, limit: int | None, long: Long, bos: int | None) -> Cut:
    """The windows of a text that the model runs, each of at most `limit` tokens.

    Args:
        bos: put first in every window where the text's tokens begin with it.

    Raises:
        PromptError: text for a model without a tokenizer, or ids that it does not know.
    """
    if isinstance(text.content, str):
        if not text.content.strip():
            return Cut((), 0, reason="empty")
        if model.tokenizer is None:
            raise PromptError(f"{model.name} has no tokenizer, so it takes token ids, not text")
        if any("\ud800" <= letter <= "\udfff" for letter in text.content):
            return Cut((), 0, reason="no valid Unicode")
        # not verbose: it warns of long texts, which are cut below
        ids = tuple(model.tokenizer(text.content, verbose=False)["input_ids"])
    else:
        ids = text.content
    wrong = [t for t in ids if not 0 <= t < model.d_vocab]
    if wrong:
        raise PromptError(
            f"text {text.id!r} holds the token id {wrong[0]}; {model.name} knows 0 to "
            f"{model.d_vocab - 1}"
        )
    if len(ids) < 2:
        return Cut((), len(ids), reason="one token, nothing is predicted" if ids else "empty")
    if limit is None or len(ids) <= limit:
        return Cut((ids,), len(ids))
    if long == "truncate":
        return Cut((ids[:limit],), len(ids), f"first {limit} of {len(ids)} tokens")
    first = ids[:1] if bos is not None and ids[0] == bos else ()
    step = limit - len(first)
    body = ids[len(first) :]
    windows = [first + body[i : i + step] for i in range(0, len(body), step)]
    windows = [w for w in windows if len(w) > 1]  # a token alone has nothing that predicts it
    return Cut(tuple(windows), len(ids), f"{len(windows)} windows of at most {limit} tokens")
