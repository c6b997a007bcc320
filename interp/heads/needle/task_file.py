"""Needles and haystack from a JSONL file.

    {"haystack_file": "essays/"}
    {"needle": "The code of the vault is seven.", "question": "What is the code of the vault?",
     "answer": "seven"}

One line gives the haystack (`haystack`: a text or token ids; `haystack_file`: a `.txt` file or a
folder of them, relative to the JSONL), every other line is a needle. Its fields are all texts, or
all token ids. If the question is missing, the prompt ends with the needle's beginning, up to the
answer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from interp.core.documents import parse_json
from interp.core.errors import PromptError
from interp.core.text_file import read_lines
from interp.heads.needle.text import Needle

FIELDS = ("needle", "question", "answer")
HAYSTACKS = ("haystack", "haystack_file")


def read_task(path: str | Path) -> tuple[list[Needle], Any]:
    """Read the needles of a file and its haystack.

    Raises:
        PromptError: the file does not exist, a line is neither a needle nor a haystack (its number
            is given), there are no needles, or not exactly one haystack.
    """
    path = Path(path)
    needles, haystacks = [], []
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        row = _row(line, f"{path} line {number}")
        if set(row) <= set(HAYSTACKS):
            haystacks.append(_haystack(row, path, number))
        else:
            needles.append(_needle(row, f"{path} line {number}"))
    if not needles:
        raise PromptError(f"{path} contains no needles; a needle is a line {{{', '.join(FIELDS)}}}")
    if len(haystacks) != 1:
        raise PromptError(
            f"{path} names {len(haystacks)} haystacks; give exactly one line with 'haystack' "
            f"(text or "
            "ids) or 'haystack_file'"
        )
    return needles, haystacks[0]


def _row(line: str, where: str) -> dict[str, Any]:
    try:
        row = parse_json(line)
    except ValueError as error:
        raise PromptError(f"{where} is not valid JSON: {error}") from error
    if not isinstance(row, dict) or not row:
        raise PromptError(f"{where} is not an object with the fields {', '.join(FIELDS)}")
    return row


def _haystack(row: dict[str, Any], path: Path, number: int) -> Any:
    if len(row) != 1:
        raise PromptError(f"{path} line {number} names two haystacks; give only one")
    (name, value), *_ = row.items()
    if name == "haystack_file":
        if not isinstance(value, str) or not (path.parent / value).exists():
            raise PromptError(
                f"{path} line {number}: the haystack file {value!r} does not exist; "
                f"give a .txt file or a folder of them"
            )
        return path.parent / value
    if not (isinstance(value, str) or _ids(value)):
        raise PromptError(f"{path} line {number}: a haystack must be a text or a list of token ids")
    return value


def _needle(row: dict[str, Any], where: str) -> Needle:
    missing = [name for name in FIELDS if name not in row and name != "question"]
    strange = sorted(set(row) - set(FIELDS))
    if missing or strange:
        wrong = f"has no {missing[0]!r}" if missing else f"has the field {strange[0]!r}"
        raise PromptError(f"{where} {wrong}; a needle has {', '.join(FIELDS)}")
    names = [name for name in FIELDS if name in row]
    values = [row[name] for name in names]
    if not (all(isinstance(v, str) and v.strip() for v in values) or all(map(_ids, values))):
        raise PromptError(
            f"{where}: {', '.join(FIELDS)} must all be texts, or all lists of token ids"
        )
    return Needle(**({"question": ""} | dict(zip(names, values, strict=True))))


def _ids(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(t, int) and not isinstance(t, bool) and t >= 0 for t in value)
    )
