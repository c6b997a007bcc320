"""The running texts of a view, piece by piece, and the sentence with which its page opens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from interp.core.head import Head
from interp.core.running_text import TextPiece, pieces
from interp.core.tokens import shown
from interp.heads.patterns.result import View
from interp.heads.patterns.stack import Stack


class PageText(NamedTuple):
    """One text of a page: a piece per token, or per block of a long prompt."""

    name: str
    pieces: list[TextPiece]

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(piece.text for piece in self.pieces)


def readings(view: View) -> tuple[list[PageText], list[list[int] | None]]:
    """Return the texts of a view, and for each stack the places of those of queries and keys.

    A stack over an image, or whose queries are not tokens of a text, has none.
    """
    known = view.provenance.get("prompts")
    texts = known.get("text") if isinstance(known, Mapping) else None
    texts = texts if isinstance(texts, Mapping) else {}
    page_texts: dict[tuple[str, ...], PageText] = {}
    of_stacks: list[list[int] | None] = []
    for stack in view.stacks:
        if stack.picture is not None:
            of_stacks.append(None)
            continue
        reads = "target" if stack.name in ("decoder", "cross") and "target" in texts else "source"
        sides = []
        whole = getattr(view, "tokens", {}).get(stack.name, (stack.queries, stack.keys))
        for tokens, role in zip(
            whole, (reads, "source" if stack.name == "cross" else reads), strict=True
        ):
            if tokens not in page_texts:
                placed = pieces(tokens, str(texts.get(role, "")))
                page_texts[tokens] = PageText(role, _in_blocks(placed, stack.block))
            sides.append(list(page_texts).index(tokens))
        of_stacks.append(sides)
    return list(page_texts.values()), of_stacks


def _in_blocks(placed: Sequence[TextPiece], block: int) -> list[TextPiece]:
    """Join the pieces that begin in each block of tokens."""
    if block == 1:
        return list(placed)
    texts: dict[int, str] = {}
    at = 0
    for piece in placed:
        texts[at // block] = texts.get(at // block, "") + piece.text
        at += piece.n_tokens
    return [TextPiece(1, texts.get(i, ""), True) for i in range(-(-at // block))]


class Largest(NamedTuple):
    """The largest weight of a head, if possible between tokens that are not neighbours."""

    weight: float
    far: bool
    stack: int
    head: Head
    query: str
    key: str


def largest_of_view(view: View) -> Largest:
    """Return the largest weight of the first named head, or of all heads, of a view.

    The first query, the first key and, within one sequence, the query itself and the tokens beside
    it are left out, since they receive large weights in all models; where nothing else is left,
    they count.
    """
    chosen = view.named[:1]
    candidates = [one for one in _candidates(view) if not chosen or one.head in chosen]
    return max(candidates, key=lambda one: (one.far, one.weight))


def _candidates(view: View) -> Iterator[Largest]:
    for at, stack in enumerate(view.stacks):
        for head, weights in stack.weights.items():
            if links := stack.links.get(head):
                link = links[0]
                query = _token(link.query_token, link.query)
                key = _token(link.key_token, link.key)
                yield Largest(link.weight, True, at, head, query, key)
                continue
            far, row, column = _distant(stack, weights)
            sides = _named(stack, "query", row), _named(stack, "key", column)
            yield Largest(float(weights[row, column]), far, at, head, *sides)


def _distant(stack: Stack, weights: np.ndarray) -> tuple[bool, int, int]:
    """Return the query and key of the largest weight, and True if they are not neighbours."""
    rows, columns = np.arange(weights.shape[0])[:, None], np.arange(weights.shape[1])
    far = (rows > 0) & (columns > 0)
    if stack.queries == stack.keys:
        far = far & (np.abs(rows - columns) > 1)
    distant = bool((far & (weights > 0)).any())
    allowed = np.where(far, weights, -1.0) if distant else weights
    query, key = np.unravel_index(int(allowed.argmax()), weights.shape)
    return distant, int(query), int(key)


def _named(stack: Stack, side: str, at: int) -> str:
    """Return a row or column of a stack in words."""
    token = (stack.queries if side == "query" else stack.keys)[at]
    if stack.picture is not None:
        return f"patch {token}" if at >= stack.picture.skip else f"token {token}"
    if stack.block > 1:
        last = min((at + 1) * stack.block, stack.n_queries if side == "query" else stack.n_keys)
        return f"tokens {at * stack.block:,} to {last - 1:,}"
    return _token(token, at)


def _token(token: str, at: int) -> str:
    return f"“{shown(token).strip() or shown(token)}” (token {at:,})"


def opening_sentence(view: View, one: Largest) -> str:
    """Return the sentence with which the page of a view opens, on its largest weight."""
    name = view.stacks[one.stack].name
    head = f"{one.head} of {name}" if len(view.stacks) > 1 else str(one.head)
    n = sum(len(stack.weights) for stack in view.stacks)
    of = "its largest weight" if view.named or n == 1 else f"the largest weight of {n:,} heads"
    far = " between tokens that are not neighbours" if one.far else ""
    return f"{head} gives {one.weight:.2f} of the attention of {one.query} to {one.key}: {of}{far}"


def as_data(found: Sequence[PageText]) -> list[dict[str, Any]]:
    """Return texts as the scripts read them: number of tokens, text, and 1 if a word begins."""
    return [
        {"name": one.name, "pieces": [[p.n_tokens, p.text, int(p.starts_word)] for p in one.pieces]}
        for one in found
    ]
