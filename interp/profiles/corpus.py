"""A corpus as a model reads it: random windows of random documents, split in two parts."""

from __future__ import annotations

import hashlib
import heapq
import operator
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.chat import as_read, is_chat, tell_reading
from interp.core.errors import OptionError, PromptError
from interp.core.resources import folder
from interp.core.tokens import encoded_text
from interp.model.segments import special_ids
from interp.profiles.sources import BUNDLED, Document, documents_of

if TYPE_CHECKING:
    from jaxtyping import Int

    from interp.model.model import Model

SHORTEST = 6  # tokens; a query of a shorter document has hardly a choice of keys
FEWEST = 8  # distinct documents: four to fit and four to judge on
UNKNOWN = 0.5  # share of unknown tokens from which the tokenizer does not know the language
_CHARACTERS = 12  # of a text per token of the window: a longer text is cut before it is tokenized


class DocumentCorpus:
    """Documents from files, texts or token ids, read as a stream.

    Args:
        source: a path or several, a list of texts, of chats or of lists of token ids, or None for
            the corpus that comes with the package (short texts of several kinds, written for it).
        field: the field of JSON lines, or the column of Parquet and Arrow files, that holds the
            text, the chat or the token ids.

    Raises:
        PromptError: the source is empty.
    """

    def __init__(self, source: Any = None, *, field: str = "text") -> None:
        self.field = field
        if source is None or source == BUNDLED:
            source = folder("data") / "corpus.jsonl"
        if isinstance(source, (str, os.PathLike)):
            source = [Path(source)]
        if not isinstance(source, Iterable) or isinstance(source, (bytes, Mapping)):
            raise PromptError(
                f"{type(source).__name__} is not a corpus; give files, or a list of texts, of "
                "chats or of lists of token ids"
            )
        self.items = list(source)
        if not self.items:
            raise PromptError("the corpus is empty; give files, texts or lists of token ids")
        self.of_files = all(isinstance(item, os.PathLike) for item in self.items)

    @property
    def name(self) -> str:
        """Name of the corpus in tables and pages."""
        if self.of_files:
            return ", ".join(Path(item).name for item in self.items)
        return f"{len(self.items)} given documents"

    def __iter__(self) -> Iterator[Document]:
        """Yield all documents in order; raises PromptError for what cannot be read."""
        for at, item in enumerate(self.items):
            if isinstance(item, os.PathLike):
                yield from documents_of(Path(item), self.field)
            elif isinstance(item, str):
                if len(item) < 256 and os.path.isfile(item):
                    raise PromptError(
                        f"text {at} of the corpus is the name of a file, {item!r}; give "
                        f"Path({item!r}) to read it"
                    )
                yield Document(f"text {at}", item)
            elif is_chat(item):
                yield Document(f"chat {at}", chat=tuple(item))
            else:
                yield Document(f"document {at}", ids=_ids(at, item))


def _ids(at: int, item: Any) -> tuple[int, ...]:
    try:
        return tuple(operator.index(x) for x in item)
    except TypeError as error:
        raise PromptError(
            f"document {at} of the corpus is {item!r:.60}; give a path, a text, a chat or a list "
            "of token ids"
        ) from error


@dataclass(frozen=True, eq=False)
class TextWindow:
    """Part of a document that the model reads.

    Args:
        name: file and place of the document.
        ids: token ids, with the tokenizer's first token (BOS or CLS), if it adds one.
        offset: characters of the document before the window; tokens, for a document of ids.
        queries: sampled positions whose attention is read, in order.
        cluster: number of the cluster of near-duplicates.
        part: 0 or 1, the side of the split.
        content: hash of the whole document, whatever the seed and the window.
    """

    name: str
    ids: tuple[int, ...]
    offset: int
    queries: Int[np.ndarray, " row"]
    cluster: int
    part: int
    content: str = ""


@dataclass(frozen=True, eq=False)
class Sample:
    """Random windows of a corpus, and what was left out.

    Args:
        windows: the windows, in random order.
        facts: counts and policies, for provenance.
        hash: sha256 of all ids and queries.
        written: token ids of the documents, of texts that the model wrote itself.
    """

    windows: tuple[TextWindow, ...]
    facts: dict[str, Any]
    hash: str
    written: tuple[Int[np.ndarray, " token"], ...] = ()


def sample_corpus(
    corpus: DocumentCorpus,
    model: Model,
    *,
    n_documents: int | None = 400,
    n_queries: int | None = 32,
    max_length: int = 256,
    seed: int = 0,
) -> Sample:
    """Draw random documents, a random window of each, and random queries of each window.

    Documents are drawn by a hash of the seed and their content, so that neither the order of files
    nor their number changes the choice, and exact copies count once. Memory is that of the sample.
    """
    for name, value, least in (
        ("n_documents", n_documents, FEWEST),
        ("n_queries", n_queries, 1),
        ("max_length", max_length, SHORTEST),
    ):
        if value is not None and value < least:
            raise OptionError(f"{name}={value} is too small; give at least {least}")
    limit = window_limit(model, max_length)
    drawn, counts = _drawn(corpus, n_documents, limit, seed)
    windows = []
    unknown = Counter()
    for key, document in drawn:
        ids_and_offset = _window(
            document, model, limit, np.random.default_rng([seed, key % 2**63]), unknown
        )
        if ids_and_offset is None:
            counts["short"] += 1
        else:
            windows.append((key, document, *ids_and_offset))
    if unknown["tokens"] and unknown["unknown"] > UNKNOWN * unknown["tokens"]:
        share = unknown["unknown"] / unknown["tokens"]
        raise PromptError(
            f"{share:.0%} of the tokens of {corpus.name} are unknown to the tokenizer of "
            f"{model.name}; give text in a language and script that it knows"
        )
    clusters = copy_clusters([ids for *_, ids, _ in windows])
    distinct = len(set(clusters))
    if distinct < FEWEST:
        raise PromptError(
            f"{corpus.name} has {distinct} distinct documents of at least {SHORTEST} tokens "
            f"({counts['read']} were read, {counts['copies']} are exact copies, "
            f"{len(windows) - distinct} near-duplicates, {counts['short']} too short); at least "
            f"{FEWEST} are needed, to describe heads on one half and judge on the other; a text "
            "file is one document, a line of a .jsonl file too: give several, or a folder"
        )
    order = sorted(set(clusters))
    parts = {cluster: at % 2 for at, cluster in enumerate(order)}
    special = special_ids(model)
    sampled = []
    for (key, document, ids, offset), cluster in zip(windows, clusters, strict=True):
        rng = np.random.default_rng([seed, key % 2**63, 1])
        queries, part = _queries(len(ids), n_queries, rng), parts[cluster]
        window = TextWindow(document.name, ids, offset, queries, cluster, part, document.content)
        sampled.append(window)
    firsts = {window.ids[0] in special for window in sampled}
    facts = {
        "corpus": corpus.name,
        "documents_read": counts["read"],
        "documents_used": len(sampled),
        "distinct_documents": distinct,
        "exact_copies": counts["copies"],
        "too_short": counts["short"],
        "tokens": sum(len(window.ids) for window in sampled),
        "queries": sum(len(window.queries) for window in sampled),
        "max_length": max(len(window.ids) for window in sampled),
        "first_token": "special" if firsts == {True} else "text" if firsts == {False} else "mixed",
        "packing": "one document per sequence",
        "seed": seed,
    }
    digest = hashlib.sha256(repr([(w.ids, w.queries.tolist(), w.part) for w in sampled]).encode())
    return Sample(tuple(sampled), facts, digest.hexdigest())


def window_limit(model: Model, max_length: int) -> int:
    """Return the longest window in tokens: that asked for, or as much as the model reads."""
    return min(x for x in (max_length, model.limit, model.context) if x)


def _drawn(
    corpus: Iterable[Document], n: int | None, limit: int, seed: int
) -> tuple[list[tuple[int, _Cut]], Counter]:
    """Return the documents with the smallest hashes, in the order of these, and counts."""
    counts: Counter = Counter()
    heap: list[tuple[int, int, _Cut]] = []  # the largest hash first
    held: set[int] = set()
    for document in corpus:
        counts["read"] += 1
        other = document.ids if document.chat is None else document.chat
        content = document.text if other is None else repr(other)
        if not content.strip():
            counts["short"] += 1
            continue
        stated = f"{seed}\n{content}".encode(errors="surrogatepass")
        key = int.from_bytes(hashlib.blake2b(stated, digest_size=12).digest(), "big")
        if key in held:
            counts["copies"] += 1
            continue
        if n is not None and len(heap) >= n:
            if -key < heap[0][0]:
                continue
            held.discard(-heapq.heappop(heap)[0])
        held.add(key)
        digest = hashlib.blake2b(content.encode(errors="surrogatepass"), digest_size=12)
        cut = replace(_cut(document, key, limit), content=digest.hexdigest())
        heapq.heappush(heap, (-key, counts["read"], cut))
    return sorted(((-k, document) for k, _, document in heap), key=lambda x: x[0]), counts


@dataclass(frozen=True)
class _Cut(Document):
    """Document whose text was cut to a random window of characters, and the hash of it all."""

    offset: int = 0
    content: str = ""


def _cut(document: Document, key: int, limit: int) -> _Cut:
    """Keep a random window of characters that is longer than the window of tokens."""
    room = _CHARACTERS * limit
    if not document.text or len(document.text) <= room:
        return _Cut(document.name, document.text, document.ids, document.chat)
    rng = np.random.default_rng([key % 2**63, 2])
    start = int(rng.integers(0, len(document.text) - room + 1))
    if start:  # begin with a word, where words are parted by spaces
        space = document.text.find(" ", start, start + 100)
        start = space + 1 if space >= 0 else start
    return _Cut(document.name, document.text[start : start + room], offset=start)


def _window(
    document: Any, model: Model, limit: int, rng: np.random.Generator, unknown: Counter
) -> tuple[tuple[int, ...], int] | None:
    """Return ids and offset of a random window; None for a document that is too short."""
    if document.ids is not None:
        ids, first, places = list(document.ids), [], None
        bad = [i for i in ids if not 0 <= i < model.d_vocab]
        if bad:
            raise PromptError(
                f"{document.name} holds the token id {bad[0]}; {model.name} knows 0 to "
                f"{model.d_vocab - 1}"
            )
    else:
        if model.tokenizer is None:
            raise PromptError(
                f"{model.name} has no tokenizer, and {document.name} is text; give documents as "
                "lists of token ids"
            )
        fast = bool(getattr(model.tokenizer, "is_fast", False))
        if document.chat is None:
            tell_reading(model)
        text, options = as_read(model, document.chat or document.text)
        encoding = encoded_text(
            model.tokenizer, text, verbose=False, return_offsets_mapping=fast, **options
        )
        ids = list(encoding["input_ids"])
        places = encoding["offset_mapping"] if fast else None
        unk = getattr(model.tokenizer, "unk_token_id", None)
        unknown["tokens"] += len(ids)
        unknown["unknown"] += 0 if unk is None else ids.count(unk)
        special = set(getattr(model.tokenizer, "all_special_ids", None) or ())
        first = ids[:1] if ids and ids[0] in special else []
        last = len(ids) > 1 and ids[-1] in special and len(ids) > limit
        ids = ids[len(first) : len(ids) - last]
        places = None if places is None else places[len(first) :]
    room = limit - len(first)
    start = int(rng.integers(0, len(ids) - room + 1)) if len(ids) > room else 0
    ids = [*first, *ids[start : start + room]]
    if len(ids) < SHORTEST:
        return None
    if document.ids is not None:
        return tuple(ids), start
    return tuple(ids), document.offset + (int(places[start][0]) if places is not None else 0)


def _queries(n: int, n_queries: int | None, rng: np.random.Generator) -> Int[np.ndarray, " row"]:
    """Draw query positions; the first two have no choice of keys beside the first token."""
    all_queries = np.arange(2, n)
    if n_queries is None or n_queries >= len(all_queries):
        return all_queries
    return np.sort(rng.choice(all_queries, n_queries, replace=False))


SHINGLE = 8  # tokens of a run that two documents share
SHARED = 0.5  # share of the shorter document's runs, from which two documents are near-duplicates
_POSTING = 64  # documents of a run that are compared; a run of more is a phrase of the corpus


def copy_clusters(documents: Sequence[Sequence[int]]) -> list[int]:
    """Return the cluster of every document: the number of the first of its near-duplicates.

    Two documents are near-duplicates if at least half of the runs of 8 tokens of the shorter one
    are also in the other one. Counts are exact; only runs that more than 64 documents share are not
    used to find pairs.
    """
    shingles = [_shingles(ids) for ids in documents]
    holders: dict[int, list[int]] = {}
    for at, mine in enumerate(shingles):
        for run in mine:
            holders.setdefault(run, []).append(at)
    cluster = [*range(len(documents))]

    def root(at: int) -> int:
        while cluster[at] != at:
            at = cluster[at]
        return at

    for at, mine in enumerate(shingles):
        near: dict[int, int] = {}
        for run in mine:
            posting = holders[run]
            if len(posting) <= _POSTING or len(mine) == 1:
                for other in posting:
                    if other < at:
                        near[other] = near.get(other, 0) + 1
        for other, shared in near.items():
            if shared >= SHARED * min(len(mine), len(shingles[other])):
                a, b = sorted((root(at), root(other)))
                cluster[b] = a
    return [root(at) for at in range(len(documents))]


def _shingles(ids: Sequence[int]) -> set[int]:
    n = max(len(ids) - SHINGLE + 1, 1)
    return {hash(tuple(ids[at : at + SHINGLE])) for at in range(n)}
