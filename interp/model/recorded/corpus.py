"""Corpus of a recording: prompts read one at a time, so that it may be larger than memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from interp.core.errors import PromptError
from interp.core.prompts import Prompts
from interp.core.text_file import iter_lines
from interp.model.model import Model

Corpus = Path | Prompts | Tensor | Iterable[Any]
"""A text file with one prompt per line, prompts, or any iterable of texts or lists of token ids."""


def corpus_ids(corpus: Corpus, model: Model, max_length: int | None) -> Iterator[tuple[int, ...]]:
    """Yield the token ids of a corpus, prompt by prompt."""
    items = _lines(corpus) if isinstance(corpus, Path) else iter(_items(corpus))
    for number, item in enumerate(items):
        if isinstance(item, (int, np.integer)):
            raise PromptError(
                "the corpus is a list of token ids; give a list of such lists, one per prompt"
            )
        [whole] = Prompts.of([item], model).ids
        ids = whole[:max_length]
        try:
            Prompts((ids,)).check(model)
        except PromptError as error:
            raise PromptError(
                str(error)
                .replace("prompt 0", f"prompt {number}", 1)
                .replace("shorten it", "give max_length (--max-length) to cut long prompts")
            ) from error
        yield ids


def number_of_prompts(corpus: Corpus) -> int | None:
    """Return the number of prompts, or None where only reading the corpus would tell."""
    if isinstance(corpus, Path):
        return sum(1 for _ in _lines(corpus))
    return len(corpus) if hasattr(corpus, "__len__") else None  # type: ignore[arg-type]


def _items(corpus: Any) -> Iterable[Any]:
    if isinstance(corpus, Prompts):
        return corpus.ids
    if isinstance(corpus, str):
        raise PromptError(
            "the corpus is a single text; give a list of texts, or a pathlib.Path of a text file"
        )
    return corpus.tolist() if isinstance(corpus, Tensor) else corpus


def _lines(path: Path) -> Iterator[str]:
    return (line for line in iter_lines(path) if line.strip())
