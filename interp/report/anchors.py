"""Page of a chain with its anchors: coloured sentences, what each attends to, and agreement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from interp.draw.colours import Scale
from interp.draw.page import data_table, html_table, page, pair_list
from interp.draw.panel import colour_class
from interp.draw.svg import element

if TYPE_CHECKING:
    from interp.text.chains.anchors_result import Anchors

SHOWN = 400
"""Most sentences of one chain in colours; the table of data has all."""
_ABOUT = (
    "A sentence is an anchor if later sentences attend to it or depend on it. The colour is its "
    "score by the measure named above the text; point at a sentence for all its scores. Arrows "
    "name the earlier sentence that the receiver heads attend to most from far behind, and the one "
    "whose suppression changes the sentence most."
)


def anchors_page(found: Anchors, *, title: str = "Anchors") -> bytes:
    """Return one self-contained HTML page; the sentences are escaped."""
    parts = []
    for number, name in enumerate(found.chains):
        rows = np.flatnonzero(found.of_chain == number)
        heads = ", ".join(map(str, found.receivers[number]))
        contents = [pair_list({"sentences": len(rows), "receiver heads": heads})]
        for measure, values in found.values.items():
            if np.isfinite(values[rows]).any():
                contents.append(_coloured(found, rows, measure))
        parts.append((name, *contents))
    if len(found.measures) > 1:
        about = "Spearman's correlation over sentences, with its 95 % interval and permutation p."
        parts.append(("Agreement of the measures", about, html_table(found.agreement(n_boot=200))))
    parts.append(("All scores", data_table(found.to_pandas(), "anchors")))
    return page(
        title, None, parts, dict(found.provenance), about=_ABOUT, heading=found.first_line()
    )


def _coloured(found: Anchors, rows: np.ndarray, measure: str) -> Markup:
    values = found.values[measure]
    part = values[rows]
    known = part[np.isfinite(part)]
    signed = bool((known < 0).any())
    scale = Scale.around(float(np.abs(known).max()), signed=signed)
    bins = scale.bins(part)
    first = rows[:SHOWN]
    spans = [
        element(
            "span",
            f"{found.index[row]} {found.texts[row]}{_arrows(found, row, measure)}",
            title=_summary_of(found, row),
            class_=colour_class(bins[at], signed) if bins[at] >= 0 else None,
        )
        for at, row in enumerate(first)
    ]
    rest = len(rows) - len(first)
    more = element("p", f"{rest:,} more sentences are in the table below.") if rest else ""
    low, high = (f"{x:.3g}" for x in (scale.low, scale.high))
    return Markup("").join(
        [
            element("h3", f"{measure}, {low} to {high}"),
            element("p", *(Markup(" ").join(spans),), class_="text"),
            more,
        ]
    )


def _arrows(found: Anchors, row: int, measure: str) -> str:
    links = {"receiver": found.attended, "suppression": found.depends}.get(measure)
    return f" → {links[row]}" if links is not None and links[row] >= 0 else ""


def _summary_of(found: Anchors, row: int) -> str:
    each = (f"{name} {v[row]:.3g}" for name, v in found.values.items() if np.isfinite(v[row]))
    return f"sentence {found.index[row]}: {', '.join(each)}"
