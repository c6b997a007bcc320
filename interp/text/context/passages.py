"""Files of passages with a question and an answer, a `.jsonl` object a line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.errors import PromptError
from interp.core.prompt_file import read_objects
from interp.text.chains.chain import Chain

if TYPE_CHECKING:
    from interp.model.model import Model

_LIKE = '{"passages": ["A. ", "B. ", "C. "], "question": "Q?", "answer": " B", "sources": [1]}'
_FIELDS = ("passages", "question", "answer", "sources")


@dataclass(frozen=True)
class Passages:
    """Passages as texts, the question and answer after them, and those that hold the answer."""

    passages: tuple[str, ...]
    question: str
    answer: str
    sources: tuple[int, ...]

    def chain(self, model: Model) -> Chain:
        """Return the passages as the sentences of a chain."""
        ends = [sum(map(len, self.passages[: i + 1])) for i in range(len(self.passages))]
        spans = list(zip([0, *ends[:-1]], ends, strict=True))
        result = Chain.of_text(
            model,
            "".join(self.passages),
            question=self.question,
            answer=self.answer,
            spans=spans,
            name="passages",
        )
        return replace(result, sources=self.sources)


def read_passages(path: str | Path) -> list[Passages]:
    """Read a file of passages."""
    return read_objects(path, _LIKE, _passages)


def _passages(row: Mapping[str, Any]) -> Passages:
    if unknown := sorted(row.keys() - set(_FIELDS)):
        raise PromptError(f"unknown field {unknown[0]!r}; known: {', '.join(_FIELDS)}")
    texts, sources = row.get("passages"), row.get("sources", [])
    if not isinstance(texts, list) or not all(isinstance(x, str) and x for x in texts):
        raise PromptError("'passages' is not a list of texts")
    rest = [row.get(name, "") for name in ("question", "answer")]
    if not all(isinstance(x, str) for x in rest):
        raise PromptError("'question' and 'answer' are texts")
    if (
        not isinstance(sources, list)
        or not sources
        or any(type(i) is not int or not 0 <= i < len(texts) for i in sources)
    ):
        raise PromptError("'sources' is not a list of passages that hold the answer, from 0")
    question, answer = map(str, rest)
    return Passages(tuple(texts), question, answer, tuple(sources))
