"""Files of prompts, read without torch: lines of text, or JSON Lines with clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from interp.core.chat import is_chat
from interp.core.documents import parse_json
from interp.core.errors import PromptError
from interp.core.text_file import lines_of_text, read_text

_CONTENT = ("prompt", "tokens", "messages")
_FIELDS = {*_CONTENT, "cluster"}
Item = TypeVar("Item")


class FilePrompts(list):
    """Prompts of a file, texts or lists of token ids, with the cluster of each.

    Args:
        prompts: the texts or token ids.
        clusters: label of what each prompt shares with others (a template, a document), over which
            standard errors are computed; None if every prompt is its own cluster.
    """

    def __init__(self, prompts: Iterable[Any], clusters: tuple[str, ...] | None = None) -> None:
        super().__init__(prompts)
        self.clusters = clusters


def prompt_text(path: Path) -> str:
    """Return the text of a file of prompts."""
    text = read_text(path)
    if not text.strip():
        raise PromptError(f"{path} holds no text")
    return text


def read_prompt_file(path: Path) -> FilePrompts:
    """Return the prompts of a file: its lines, or the objects of a `.jsonl` file.

    Each line of a `.jsonl` file is an object with "prompt" (a text), "tokens" (token ids) or
    "messages" (a chat) and, in all lines or none, "cluster": a text or number that prompts of one
    template share.
    """
    lines = [(i, x) for i, x in enumerate(lines_of_text(prompt_text(path)), 1) if x.strip()]
    if path.suffix.lower() != ".jsonl":
        return FilePrompts(text for _, text in lines)
    rows = [_checked(path, i, text) for i, text in lines]
    kinds = {name for row in rows for name in _CONTENT if name in row}
    if len(kinds) > 1:
        raise PromptError(
            f"{path} mixes {' and '.join(map(repr, sorted(kinds)))}; give one of them in every line"
        )
    prompts = [row[name] for row in rows for name in kinds]
    bare = [i for (i, _), row in zip(lines, rows, strict=True) if "cluster" not in row]
    if len(bare) == len(rows):
        return FilePrompts(prompts)
    if bare:
        raise PromptError(
            f"{path}, line {bare[0]}: 'cluster' is missing, which other lines have; give the "
            "cluster of every prompt, or of none"
        )
    return FilePrompts(prompts, tuple(str(row["cluster"]) for row in rows))


def read_objects(path: str | Path, like: str, make: Callable[[dict[str, Any]], Item]) -> list[Item]:
    """Read a `.jsonl` file, one object a line; empty lines are passed over."""
    items = []
    for line, text in enumerate(lines_of_text(prompt_text(Path(path))), 1):
        if not text.strip():
            continue
        where = f"{path}, line {line}"
        row = object_of_line(where, text, like)
        try:
            items.append(make(row))
        except PromptError as error:
            raise PromptError(f"{where}: {error}") from error
    return items


def object_of_line(where: str, text: str, like: str) -> dict[str, Any]:
    """Return the object of one line of a `.jsonl` file."""
    try:
        row = parse_json(text)
    except ValueError as error:
        raise PromptError(f"{where}: not JSON ({error}); expected an object like {like}") from error
    if not isinstance(row, dict):
        raise PromptError(f"{where}: {type(row).__name__} found, expected an object like {like}")
    return row


def _checked(path: Path, line: int, text: str) -> dict[str, Any]:
    """Return the object of one line of a `.jsonl` file; raises PromptError."""
    like = '{"prompt": "A text", "cluster": "template 1"}'
    row = object_of_line(f"{path}, line {line}", text, like)
    expected = f"expected an object like {like}"
    if unknown := sorted(row.keys() - _FIELDS):
        raise PromptError(
            f"{path}, line {line}: unknown field {unknown[0]!r}; a prompt has 'prompt', 'tokens' "
            "or 'messages', and may have 'cluster'"
        )
    if sum(name in row for name in _CONTENT) != 1:
        raise PromptError(
            f"{path}, line {line}: give one of 'prompt', 'tokens' and 'messages'; {expected}"
        )
    if "messages" in row and not is_chat(row["messages"]):
        raise PromptError(f"{path}, line {line}: 'messages' is not a list of messages")
    if "prompt" in row and not (isinstance(row["prompt"], str) and row["prompt"].strip()):
        raise PromptError(f"{path}, line {line}: 'prompt' is not a text; {expected}")
    ids = row.get("tokens", [0])
    if not (isinstance(ids, list) and ids and all(type(x) is int for x in ids)):
        raise PromptError(f"{path}, line {line}: 'tokens' is not a list of token ids")
    if not isinstance(row.get("cluster", ""), (str, int)):
        raise PromptError(f"{path}, line {line}: 'cluster' is neither a text nor a number")
    return row
