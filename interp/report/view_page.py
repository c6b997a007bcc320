"""Page of a view: pictures and tables, and the data with which scripts show one head."""

from __future__ import annotations

import json

from markupsafe import Markup

from interp.core.errors import OptionError
from interp.draw.colours import palette
from interp.draw.page import render as fill
from interp.heads.patterns.coding import resolution
from interp.heads.patterns.detail import Detail, LetterBlocks, add_terms, details, stacks_written
from interp.heads.patterns.result import View
from interp.report.view_parts import scale_image, static_section

SCRIPTS = tuple(f"view_{name}" for name in ("decode", "draw", "lines", "pair", "page"))


def assembled(view: View, title: str, budget: int) -> str:
    """Return the page with the most detail that `budget` bytes hold.

    Args:
        view: The patterns.
        title: The title of the page.
        budget: The largest size of the page in bytes.

    Raises:
        OptionError: The page exceeds the budget with the least detail.
    """
    frame = _Frame(view, title)
    least = 0
    ways = details(view)
    for detail in ways:
        store = LetterBlocks()
        written = stacks_written(view, detail, store, budget - frame.size)
        if written is None:
            continue
        kept = add_terms(view, store, written, budget - frame.size)
        page = frame.filled(written, store, _told(view, detail, ways[0], kept, budget))
        least = len(page.encode())
        if least <= budget:
            return page
    if not least:  # not even the last one was written to its end
        least = frame.size + 1
    raise OptionError(
        f"A page of {sum(len(s.weights) for s in view.stacks):,} heads takes more than "
        f"{budget / 1e6:g} MB with the least detail. Give one stack, fewer tokens or a larger "
        "budget."
    )


def _told(
    view: View, detail: Detail, best: Detail, terms: tuple[int, int], budget: int
) -> list[str]:
    """Return sentences about the precision and the detail of the numbers."""
    step = resolution(detail.bits)
    told = [
        f"Weights are stored in {detail.bits} bits as the square root: each differs from the "
        f"computed weight by at most {step:.1g}, small weights by much less."
    ]
    if detail.block > 1:
        kept = len(detail.kept)
        told.append(
            f"With all tokens of all heads the page would be larger than {budget / 1e6:g} MB: "
            f"{kept or 'no'} head{' is' if kept == 1 else 's are'} in full, and in the others a "
            f"row and a column stand for {detail.block} tokens (the mean over the queries of "
            "their total weight on the keys)."
        )
    elif detail.bits < best.bits:
        told.append(f"In 16 bits the page would be larger than {budget / 1e6:g} MB.")
    done, could = terms
    if could:
        each = "every head" if done == could else f"{done:,} of {could:,} heads"
        told.append(
            f"Queries and keys of {each} are stored, in 16 bits per number relative to the largest "
            "number of each vector."
        )
    return told


class _Frame:
    """Parts of a page that do not depend on the detail of its numbers."""

    def __init__(self, view: View, title: str):
        self.view, self.title = view, title
        self.fixed = {
            "sections": [static_section(at, stack) for at, stack in enumerate(view.stacks)],
            "blocks": any(stack.block > 1 for stack in view.stacks),
            "scale": scale_image(), "made": dict(view.provenance),
        }  # fmt: skip
        self.size = len(self.filled([], LetterBlocks(), []).encode()) + 4_000
        self.size += sum(len(json.dumps([s.queries, s.keys])) for s in view.stacks)
        self.size += sum(120 * (len(s.weights) + len(s.tiles)) for s in view.stacks)

    def filled(self, written: list[dict], store: LetterBlocks, told: list[str]) -> str:
        """Return the complete page."""
        data = {
            "palette": palette(False),
            "signed": palette(True),
            "stacks": written,
            "open": _first(self.view),
        }
        notes = (*self.view.notes, *told)
        return fill(
            "view", self.title, scripts=SCRIPTS, notes=notes, data=_json(data), blobs=store.blobs,
            **self.fixed,
        )  # fmt: skip


def _first(view: View) -> list[int] | None:
    """Return the stack and place of the head that the page opens first, if there is one."""
    for at, stack in enumerate(view.stacks):
        heads = list(stack.weights)
        for head in view.named:
            if head in stack.weights:
                return [at, heads.index(head)]
        if len(view.stacks) == len(heads) == 1:
            return [0, 0]
    return None


def _json(data: object) -> Markup:
    """Return JSON in which no text can end the script element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for sign in "<\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)
