"""Page of a view: pictures and tables, and the data with which scripts show one head."""

from __future__ import annotations

import json
from typing import Any

from markupsafe import Markup

from interp.bundled import attention_warning
from interp.core.errors import OptionError
from interp.draw.colours import palette
from interp.draw.page import phrased
from interp.draw.page import render as fill
from interp.heads.patterns.coding import resolution
from interp.heads.patterns.detail import (
    LetterBlocks,
    add_terms,
    add_zooms,
    details,
    stacks_written,
)
from interp.heads.patterns.result import View
from interp.heads.patterns.stack import opening_weight
from interp.report.view_parts import scale_image, static_section
from interp.report.view_texts import as_data, opening_sentence, readings

SCRIPTS = ("root", "decode", "draw", "text", "lines", "pair", "page", "start")
ZOOMING = ("zoom", "tiles")
"""Scripts of a page that zooms into heads of a long prompt, before the last of `SCRIPTS`."""
SHOWN = 20_000
"""Characters of a text that a page shows without scripts."""


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
    ways = details(view, frame.opened)
    for detail in ways:
        store = LetterBlocks()
        written = stacks_written(view, detail, store, budget - frame.size)
        if written is None:
            continue
        left = add_zooms(view, store, written, budget - frame.size)
        terms = add_terms(view, store, written, budget - frame.size, frame.opened)
        step, coarser = f"{resolution(detail.bits):.1g}", detail.bits < ways[0].bits
        size = f"{budget / 1e6:g}", detail.block, len(detail.kept), coarser
        sentence = phrased("precision", detail.bits, step, *size, *terms, ", ".join(left))
        page = frame.filled(written, store, sentence)
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


class _Frame:
    """Parts of a page that do not depend on the detail of its numbers."""

    def __init__(self, view: View, title: str):
        self.view, self.title = view, title
        texts, self.of_stacks = readings(view)
        self.texts = as_data(texts)
        one = opening_weight(view.stacks, view.named)
        self.opened = view.stacks[one.stack].name, one.head
        self.first = [one.stack, list(view.stacks[one.stack].weights).index(one.head)]
        self.fixed = {
            "sections": [static_section(at, stack) for at, stack in enumerate(view.stacks)],
            "blocks": any(stack.block > 1 for stack in view.stacks),
            "scale": scale_image(),
            "made": dict(view.provenance),
            "heading": opening_sentence(view, one),
            "texts": [(one.name, _shortened(one.text)) for one in texts],
        }
        self.words = _words(view)
        parts = (*SCRIPTS[:-1], *ZOOMING, SCRIPTS[-1]) if self.words else SCRIPTS
        self.scripts = [f"view_{name}" for name in parts]
        self.size = len(self.filled([], LetterBlocks(), "").encode()) + 4_000
        self.size += sum(len(json.dumps([s.queries, s.keys])) for s in view.stacks)
        self.size += sum(120 * (len(s.weights) + len(s.tiles)) for s in view.stacks)

    def filled(self, written: list[dict], store: LetterBlocks, text: str) -> str:
        """Return the complete page."""
        data = {"palette": palette(False), "signed": palette(True), "stacks": written}
        of_stacks = zip(written, self.of_stacks, strict=False)
        data["stacks"] = [stack | {"reading": sides} for stack, sides in of_stacks]
        data |= {"open": self.first, "texts": self.texts, "words": self.words}
        return fill(
            "view",
            self.title,
            scripts=self.scripts,
            notes=[*self.view.notes, attention_warning()],
            precision=text,
            data=as_json(data),
            blobs=store.blobs,
            **self.fixed,
        )


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} ... ({len(text):,} characters)"


def _words(view: View) -> dict[str, list[Any]]:
    """Return all tokens of the stacks of a long prompt that can be zoomed, by stack.

    Keys that are the queries are None.
    """
    words: dict[str, list[Any]] = {}
    for stack in view.stacks:
        if stack.zooms:
            queries, keys = getattr(view, "tokens", {})[stack.name]
            words[stack.name] = [queries, None if keys == queries else keys]
    return words


def as_json(data: object) -> Markup:
    """Return JSON in which no text can end the script element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for sign in "<\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)
