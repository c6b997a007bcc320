"""The running texts of a view, piece by piece, and the sentence with which its page opens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from interp.core.running_text import TextPiece, pieces
from interp.heads.patterns.result import View
from interp.heads.patterns.stack import Largest


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
