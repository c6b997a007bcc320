"""Human rationales in the layout of ERASER: documents of words, and evidence as spans of words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.core.documents import parse_json
from interp.core.errors import PromptError
from interp.core.text_file import read_lines, require_inside
from interp.core.tokens import encoded_text

if TYPE_CHECKING:
    from interp.model.model import Model

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Rationale:
    """One annotated document.

    Args:
        name: its annotation id.
        words: words of the document.
        evidence: True for the words that annotators marked.
        label: class that the annotation gives, as text.
        document: id of the document; annotations of one document form a cluster.
    """

    name: str
    words: tuple[str, ...]
    evidence: Bool[Array, " word"]
    label: str
    document: str


def read_rationales(path: str | Path) -> list[Rationale]:
    """Read annotations in the layout of ERASER.

    The file has one JSON object per line with `annotation_id`, `evidences` (lists of spans with
    `docid`, `start_token`, `end_token` and `text`) and `classification`. Documents lie beside it,
    as files of words separated by white space in the folder `docs`, or as lines of `docs.jsonl`
    with `docid` and `document`.

    Raises:
        PromptError: a file is missing or has another layout, a document is missing, or a span lies
            outside its document or does not have the words that it quotes.
    """
    path = Path(path)
    documents = _documents(path.parent)
    rationales = []
    for at, line in enumerate(_lines(path), 1):
        where = f"{path} line {at}"
        try:
            one = parse_json(line)
            spans = [span for group in one["evidences"] for span in group]
            name, label = str(one["annotation_id"]), str(one.get("classification", ""))
            ids = {str(span["docid"]) for span in spans} or {name}
        except (ValueError, KeyError, TypeError) as error:
            raise PromptError(
                f"{where} is not an annotation in the layout of ERASER ({error!r}); it needs "
                "annotation_id, evidences with docid, start_token, end_token and text"
            ) from error
        if len(ids) > 1:
            raise PromptError(
                f"{where}: evidence from {len(ids)} documents; annotate one document per line"
            )
        [document] = ids
        if document not in documents:
            raise PromptError(
                f"{where}: document {document!r} is neither in {path.parent / 'docs'} nor in "
                "docs.jsonl"
            )
        words = documents[document]
        if not words:
            raise PromptError(f"{where}: document {document!r} has no words")
        evidence = np.zeros(len(words), dtype=bool)
        for span in spans:
            evidence[_span(span, words, where)] = True
        rationales.append(Rationale(name, words, evidence, label, document))
    if not rationales:
        raise PromptError(f"{path} holds no annotations; write one JSON object per line")
    return rationales


def _lines(path: Path) -> list[str]:
    return [x for x in read_lines(path) if x.strip()]


def _documents(folder: Path) -> dict[str, tuple[str, ...]]:
    beside = folder / "docs.jsonl"
    if beside.is_file():
        try:
            each = [parse_json(line) for line in _lines(beside)]
            return {str(one["docid"]): tuple(str(one["document"]).split()) for one in each}
        except (ValueError, KeyError, TypeError) as error:
            raise PromptError(
                f"{beside} is not a file of documents ({error!r}); each line needs docid and "
                "document"
            ) from error
    if not (folder / "docs").is_dir():
        raise PromptError(
            f"{folder} has neither a folder docs nor docs.jsonl with the annotated documents"
        )
    files = require_inside(folder, sorted(p for p in (folder / "docs").iterdir() if p.is_file()))
    return {p.name: tuple(" ".join(_lines(p)).split()) for p in files}


def _span(span: Mapping[str, Any], words: Sequence[str], where: str) -> slice:
    try:
        start, end = int(span["start_token"]), int(span["end_token"])
    except (KeyError, TypeError, ValueError) as error:
        raise PromptError(f"{where}: a span has no start_token and end_token") from error
    if not 0 <= start < end <= len(words):
        raise PromptError(
            f"{where}: the span {start} to {end} lies outside its document of {len(words)} words"
        )
    quoted, there = str(span.get("text", "")).split(), list(words[start:end])
    if quoted and quoted != there:
        raise PromptError(
            f"{where}: the rationale does not align: the span {start} to {end} quotes "
            f"{' '.join(quoted)!r}, but the document has {' '.join(there)!r} there"
        )
    return slice(start, end)


def word_tokens(
    model: Model, words: Sequence[str], name: str
) -> tuple[list[int], Int[Array, " token"]]:
    """Return the token ids of words, and the word of each token; -1 for tokens of no word."""
    tokenizer: Any = model.tokenizer
    if tokenizer is None or not getattr(tokenizer, "is_fast", False):
        raise PromptError(
            f"{model.name} has no fast tokenizer, so words and tokens cannot be aligned"
        )
    coded = encoded_text(tokenizer, " ".join(words), return_offsets_mapping=True)
    ends = np.cumsum([len(w) + 1 for w in words])  # each word with the space after it
    which = []
    for (start, stop), special in zip(
        coded["offset_mapping"],
        tokenizer.get_special_tokens_mask(coded["input_ids"], already_has_special_tokens=True),
        strict=True,
    ):
        inside = stop > start and not special
        # the last character of a token: some tokens begin with the space before their word
        which.append(int(np.searchsorted(ends, stop - 1, side="right")) if inside else -1)
    missing = sorted(set(range(len(words))) - set(which))
    if missing:
        raise PromptError(
            f"rationale {name}: word {missing[0]} ({words[missing[0]]!r}) has no token, so the "
            "rationale does not align with the model's tokens"
        )
    return list(coded["input_ids"]), np.array(which)


def word_scores(
    scores: Float[Array, " token"], which: Int[Array, " token"], n: int
) -> Float[Array, " word"]:
    """Sum the absolute scores of the tokens of each word."""
    sums = np.zeros(n)
    np.add.at(sums, which[which >= 0], np.abs(scores[which >= 0]))
    return sums
