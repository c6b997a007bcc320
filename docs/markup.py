"""Reduction of foreign markup to tables and paragraphs; all other content is dropped or text."""

from __future__ import annotations

from html import escape
from html.parser import HTMLParser

_TAGS = frozenset(
    (
        "table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td", "p", "div", "span", "b",
        "i", "em", "strong", "code", "pre", "ul", "ol", "li", "br",
    )
)  # fmt: skip
_ATTRIBUTES = frozenset(("colspan", "rowspan", "scope", "title", "style"))
_WITHOUT_END = frozenset(("br",))
_DROPPED = frozenset(("script", "style", "iframe", "template", "noscript"))  # with what is in them


class _Kept(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.out: list[str] = []
        self.open: list[str] = []
        self.dropped = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _DROPPED:
            self.dropped += 1
        elif not self.dropped and tag in _TAGS:
            given = "".join(
                f' {name}="{escape(value or "")}"' for name, value in attrs if name in _ATTRIBUTES
            )
            self.out.append(f"<{tag}{given}>")
            if tag not in _WITHOUT_END:
                self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in _DROPPED:
            self.dropped = max(0, self.dropped - 1)
        elif not self.dropped and tag in self.open:
            while True:  # what was left open inside ends with it
                closed = self.open.pop()
                self.out.append(f"</{closed}>")
                if closed == tag:
                    return

    def handle_data(self, data: str) -> None:
        if not self.dropped:
            self.out.append(escape(data))


def kept(html: str) -> str:
    """Return the tables, paragraphs and texts of `html`, well nested, without active content.

    Addresses, handlers, classes and ids are removed. The page's policy blocks what styles could
    load.
    """
    parser = _Kept()
    parser.feed(html)
    parser.close()
    return "".join([*parser.out, *(f"</{tag}>" for tag in reversed(parser.open))])
