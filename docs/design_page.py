"""Every part of the pages once, drawn by the code of the pages, and the numbers of its colours."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from interp.draw.colours import _TO_LMS, COLOURS, Scale, _linear, ink
from interp.draw.page import asset, csv_link, data_table, fold, page, table
from interp.draw.panel import bar, colour_bar, head_map, interval, interval_axis, sparkline
from interp.draw.svg import element
from interp.report.atlas.signs import _COLOURS, _SEVERAL, _UNCLEAR, Sign, badge, sign_rules

# Machado, Oliveira and Fernandes 2009: what is left of linear RGB without one kind of cone.
VISIONS = {
    "normal": np.eye(3),
    "protan": [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.052]],
    "deutan": [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]],
    "tritan": [[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]],
}
OKLAB = [[0.2105, 0.7936, -0.0041], [1.978, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]
ROLES = {**_COLOURS, "several": _SEVERAL, "unclear": _UNCLEAR}
SIZES = {
    "title": "the answer, first line of a page",
    "part": "headings of sections",
    "table": "tables, controls, lists of names with values",
    "small": "notes, units, code and tokens",
}
INKS = {
    "ink": "text",
    "soft": "notes, axes, units",
    "link": "links and the focus, the one accent",
    "mark": "the outline of what is chosen",
    "above": "a number above zero, the first line",
    "below": "a number below zero, a warning, the second line",
    "hit": "an edge that is right",
    "wrong": "an edge that is wrong",
}


def distances(colours: Sequence[str], vision: str) -> np.ndarray:
    """Return the distances in OKLab of colours as an eye of this kind sees them."""
    linear = np.array([_linear(colour) for colour in colours])
    seen = np.clip(linear @ np.transpose(VISIONS[vision]), 0, 1)
    lab = np.cbrt(seen @ np.transpose(_TO_LMS)) @ np.transpose(OKLAB)
    return np.linalg.norm(lab[:, None] - lab, axis=-1)


def contrast(a: str, b: str) -> float:
    """Return the contrast of two colours (WCAG 2.2), from 1 to 21."""
    whole = [f"#{''.join(2 * c for c in x[1:])}" if len(x) == 4 else x for x in (a, b)]
    light = sorted(np.array([_linear(x) for x in whole]) @ [0.2126, 0.7152, 0.0722])
    return float((light[1] + 0.05) / (light[0] + 0.05))


def variables(theme: str) -> dict[str, str]:
    """Return the variables of the style sheet in the light or the dark theme."""
    light, dark = re.findall(r":root \{(.*?)\}", asset("style.css"), re.DOTALL)[:2]
    found = dict(re.findall(r"--([\w-]+): ([^;]+);", light))
    return found if theme == "light" else found | dict(re.findall(r"--([\w-]+): ([^;]+);", dark))


def markdown(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Format a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def page_text() -> Iterator[str]:
    """Yield the tables of sizes and colours, as Markdown."""
    light, dark = variables("light"), variables("dark")
    yield "### Sizes of letters"
    yield markdown(["name", "size", "of"], [[f"`--{k}`", light[k], v] for k, v in SIZES.items()])
    yield "### Colours, with their contrast to the page"
    rows = [
        [f"`--{k}`", what] + [f"{x[k]} ({contrast(x[k], x['page']):.1f})" for x in (light, dark)]
        for k, what in INKS.items()
    ]
    yield markdown(["name", "of", "light", "dark"], rows)
    yield "### Roles, with the contrast of their letter, and the nearest other role"
    rows = []
    names = list(ROLES)
    nearest = [
        min(
            float((distances([ROLES[n][at] for n in names], v) + 9 * np.eye(len(names)))[i].min())
            for v in VISIONS
            for at in (0, 1)
        )
        for i in range(len(names))
    ]
    for name, near in zip(names, nearest, strict=True):
        both = [f"{c} ({contrast(c, ink(c)):.1f})" for c in ROLES[name]]
        rows.append([name.replace("_", " "), *both, f"{near:.2f}"])
    yield markdown(["role", "light", "dark", "distance, the least of 4 visions"], rows)
    yield (
        "The distance is that in OKLab, in both themes, for normal, protan, deutan and tritan "
        "vision (Machado, Oliveira and Fernandes 2009); a test keeps it above 0.1. A role always "
        "has its letter too."
    )
    rows = [
        [f"{i + 1}", c, *(f"{contrast(c, x['page']):.1f}" for x in (light, dark))]
        for i, c in enumerate(COLOURS[:6])
    ]
    yield "### Lines of figures, which differ in their dashes too"
    yield markdown(["line", "colour (Okabe and Ito 2008)", "contrast light", "dark"], rows)


def tables() -> str:
    """Return the tables of the page on the design, as Markdown."""
    return "\n\n".join(page_text())


def _signs() -> list[Sign]:
    letters = iter("IPDCRSOYE+ ")
    return [
        Sign(name, name.replace("_", " "), next(letters).strip(), f"role{at}", colours)
        for at, (name, colours) in enumerate(ROLES.items())
    ]


def _map() -> Markup:
    scale = Scale.around(0.9, signed=True)
    grid = np.linspace(-0.9, 0.9, 24).reshape(3, 8)
    grid[1, 3] = math.nan
    titles = {(y, x): f"L{y}H{x}: {grid[y, x]:+.2f}" for y in range(3) for x in range(8)}
    drawn = head_map(
        scale.bins(grid), "Map of a score, layers by heads", signed=True, titles=titles, role="img"
    )
    caption = element("figcaption", "A score around zero; a grey cell has none")
    return element("figure", caption, drawn, colour_bar(scale))


def _rows() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "head": ["L1H0", "L0H3", "L0H1"],
            "score": [0.93, 0.61, 0.05],
            "low": [0.9, 0.5, math.nan],
            "high": [0.95, 0.7, math.nan],
            "n": 12,
            "null": math.nan,
            "unit": "share of attention",
        }
    )


def _intervals() -> Markup:
    rows = [("L1H0", 0.4, 0.3, 0.5), ("L0H3", -0.6, -0.8, -0.4), ("L0H1", 0.1, math.nan, math.nan)]
    axis = element("span", "B \u2212 A, share of the range", interval_axis(0.8))
    return table(
        ["head", "B \u2212 A [95 %]", (axis, "words")],
        [
            [
                name,
                f"{x:+.2g}" + ("" if low != low else f" [{low:+.2g}, {high:+.2g}]"),  # noqa: PLR0124
                element("td", interval(x, low, high, 0.8)),
            ]
            for name, x, low, high in rows
        ],
    )


def parts() -> bytes:
    """Return the page of all parts, each once, as UTF-8."""
    found = _signs()
    scale = Scale(0.0, 1.0, False)
    legend = [element("li", badge(sign), f" {sign.name}") for sign in found]
    sections = [
        (
            "A paragraph, a note, a warning",
            "A paragraph says what was measured and how. It is at most 75 letters wide.",
            element("p", "A note explains a detail, in a small size.", class_="note"),
            element(
                "p", "A warning says what the numbers cannot show.", class_="warning", role="note"
            ),
        ),
        (
            "A table with units",
            data_table(_rows(), "rows"),
            element(
                "p",
                "Columns that are equal in every row are said above it; a cell without a "
                "value is empty, and the note says so.",
                class_="note",
            ),
        ),
        ("Intervals on one axis", _intervals()),
        (
            "A score with its error and its null",
            element("div", bar(0.7, scale, sem=0.08, null=0.1)),
            element("p", "The bar begins at zero; the upright line is the null.", class_="note"),
        ),
        (
            "An estimate",
            element("p", element("span", "12.3 logits, an estimate", class_="soft")),
            element(
                "p",
                "An estimate is called so beside its number, has no interval, and its edge "
                "is dashed.",
                class_="note",
            ),
        ),
        (
            "Checkpoints in a row",
            element(
                "p",
                "induction ",
                sparkline(
                    [(1, 0.02), (100, 0.1), (1000, 0.8), (5000, 0.95)], "induction", (0.0, 1.0)
                ),
            ),
        ),
        ("A map", _map()),
        ("Roles", element("ul", *legend, class_="legend")),
        (
            "Text with scores",
            element(
                "p",
                *(
                    element("span", word, class_=f"q{at}", title=f"{at / 32:.2f}")
                    for word, at in (("The", 2), (" cat", 12), (" sat", 24), (" on", 32))
                ),
                class_="text",
            ),
        ),
        (
            "What is unfolded",
            fold("More", "What most readers do not need is folded."),
            element("p", csv_link("head,score\nL1H0,0.93\n", "rows")),
        ),
    ]
    heading = f"The {len(sections)} parts of a page, each drawn once"
    styles = asset("atlas.css") + sign_rules(found)
    return page("Design", None, sections, None, heading=heading, styles=styles)


if __name__ == "__main__":
    sys.stdout.buffer.write(parts())
