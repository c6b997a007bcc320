"""The page of a view: pictures and tables first, then what a script needs to show one head."""

from __future__ import annotations

import json

from markupsafe import Markup

from interp.core.errors import OptionError
from interp.draw.colours import palette
from interp.draw.page import render as fill
from interp.heads.patterns.coding import quantised, resolution, triangular
from interp.heads.patterns.detail import (
    Detail,
    LetterBlocks,
    details,
    heads_written,
    order,
    terms_size,
    terms_written,
)
from interp.heads.patterns.result import View
from interp.heads.patterns.stack import Tile
from interp.report.view_parts import scale_image, static_section

SCRIPTS = tuple(f"view_{name}" for name in ("decode", "draw", "lines", "pair", "page"))


def assembled(view: View, title: str, budget: int) -> str:
    """The page with the most detail that `budget` bytes hold.

    Raises:
        OptionError: none does.
    """
    frame = _Frame(view, title)
    least = 0
    ways = details(view)
    for detail in ways:
        store = LetterBlocks()
        written = _written(view, detail, store, budget - frame.size)
        if written is None:
            continue
        kept = _add_terms(view, detail, store, written, budget - frame.size)
        page = frame.filled(written, store, _told(view, detail, ways[0], kept, budget))
        least = len(page.encode())
        if least <= budget:
            return page
    if not least:  # not even the last one was written to its end
        least = frame.size + 1
    raise OptionError(
        f"a page of {sum(len(s.weights) for s in view.stacks):,} heads takes more than "
        f"{budget / 1e6:g} MB with the least detail; give one stack, fewer tokens or a larger "
        "budget"
    )


def _written(view: View, detail: Detail, store: LetterBlocks, room: float) -> list[dict] | None:
    """Every stack as the script reads it; None where it takes more than `room` bytes."""
    stacks = []
    for stack in view.stacks:
        heads = heads_written(stack, detail, store, room)
        if heads is None:
            return None
        item: dict[str, object] = {
            "name": stack.name,
            "queries": stack.queries,
            "keys": stack.keys,
            "second": stack.second,
            "block": stack.block,
            "tokens": [stack.n_queries, stack.n_keys],
            "heads": heads,
            "why": stack.without_terms,
            "tiles": [_tile(tile, store) for tile in stack.tiles],
        }
        if stack.picture is not None:
            item["picture"] = {
                "grid": stack.picture.grid,
                "skip": stack.picture.skip,
                "size": stack.picture.pixels.shape[:2],
            }
        stacks.append(item)
    return stacks


def _tile(tile: Tile, store: LetterBlocks) -> dict[str, object]:
    return {
        "name": tile.name,
        "of": str(tile.head),
        "first": [tile.queries.start, tile.keys.start],
        "queries": tile.query_tokens,
        "keys": tile.key_tokens,
        "bits": 16,
        "w": store.put(quantised(tile.weights, 16), triangle=triangular(tile.weights)),
    }


def _add_terms(
    view: View, detail: Detail, store: LetterBlocks, written: list[dict], room: float
) -> tuple[int, int]:
    """Add queries and keys of as many heads as fit; how many have them, and how many could."""
    by_name = {stack.name: stack for stack in view.stacks}
    items = {(stack["name"], item["name"]): item for stack in written for item in stack["heads"]}
    could = done = 0
    for name, head in order(view):
        terms = by_name[name].terms.get(head)
        if terms is None:
            continue
        could += 1
        item = items[name, str(head)]
        if item["block"] == 1 and store.size + terms_size(terms) < room - 20_000:
            item["terms"] = terms_written(terms, store)
            done += 1
    return done, could


def _told(
    view: View, detail: Detail, best: Detail, terms: tuple[int, int], budget: int
) -> list[str]:
    """What the page says about the numbers in it."""
    step = resolution(detail.bits)
    told = [
        f"Weights are stored in {detail.bits} bits as the square root: each is within "
        f"{step:.1g} of the weight of the run, small ones within much less."
    ]
    if detail.block > 1:
        kept = len(detail.kept)
        told.append(
            f"With all tokens of all heads the page would be larger than {budget / 1e6:g} MB: "
            f"{kept or 'no'} head{' is' if kept == 1 else 's are'} in full, and in the others a "
            f"row and a column stand for {detail.block} tokens (the mean over the queries of what "
            "they give to the keys together)."
        )
    elif detail.bits < best.bits:
        told.append(f"In 16 bits the page would be larger than {budget / 1e6:g} MB.")
    done, could = terms
    if could:
        each = "every head" if done == could else f"{done:,} of {could:,} heads"
        told.append(
            f"Queries and keys of {each} are stored, in 16 bits per number relative to the largest "
            "of each vector."
        )
    return told


class _Frame:
    """The parts of a page that do not depend on how much detail its numbers have."""

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
        """The whole page."""
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
    """The stack and place of the head that a page opens with, if there is a reason for one."""
    for at, stack in enumerate(view.stacks):
        heads = list(stack.weights)
        for head in view.named:
            if head in stack.weights:
                return [at, heads.index(head)]
        if len(view.stacks) == len(heads) == 1:
            return [0, 0]
    return None


def _json(data: object) -> Markup:
    """JSON that no text in it can end or comment out."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for sign in "<\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)
