"""Several models side by side: one metric, one scale, layers aligned by relative depth."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from interp.core.columns import with_error
from interp.draw.colours import Scale
from interp.draw.page import table
from interp.draw.panel import colour_bar, colour_class
from interp.draw.svg import element

if TYPE_CHECKING:
    import pandas as pd

_WIDTH, _HEIGHT = 320, 14  # of a strip
_ROWS = 60  # strips of one metric


def side_by_side(
    frame: pd.DataFrame, scales: Mapping[str, Scale], low: Collection[str] = ()
) -> Markup:
    """Return a strip per model and stack with the best head of every layer, from first to last.

    The best head has the highest score, or the lowest score of a metric whose meaningful end is
    low; of a signed metric, it has the largest distance from its null. All strips are equally wide,
    so that equal positions are equal relative depths. Metrics of only one model are omitted.

    Args:
        frame: The scores.
        scales: The colours of each metric.
        low: The metrics whose lowest scores are meaningful.
    """
    out = []
    groups: Any = frame.groupby("metric", sort=False)
    for metric, rows in groups:
        if rows["model"].nunique() < 2:
            continue
        scale, lowest = scales[str(metric)], metric in low
        sites: Any = list(rows.groupby(["model", "stack"], sort=False))
        several = rows.groupby("model")["stack"].nunique().max() > 1
        lines = [
            _strip(f"{model} {stack}" if several else str(model), site, scale, lowest)
            for (model, stack), site in sites[:_ROWS]
        ]
        apart = "head farthest from its null" if scale.signed else "best head"
        notes = [f"{'lowest head' if lowest else apart} of each layer", _prompts(rows), scale.note]
        notes += [f"{len(sites) - _ROWS} more not drawn"] * (len(sites) > _ROWS)
        depth = element("div", element("span", "first layer"), element("span", "last layer"),
                        class_="depth")  # fmt: skip
        columns: list[Any] = ["model", depth, "best head", "score", "null"]
        strips = table(columns, lines, str(metric), rows["unit"].iloc[0], kind="side")
        note = element("p", "; ".join(filter(None, notes)), class_="note")
        out.append(element("figure", strips, colour_bar(scale), note))
    return Markup("\n").join(out)


def _prompts(rows: Any) -> str:
    """Return the numbers of prompts behind the scores."""
    counts = sorted(set(rows.loc[rows["n"] > 0, "n"]))
    return f"n {' to '.join(map(str, dict.fromkeys(counts[:1] + counts[-1:])))}" if counts else ""


def _strip(name: str, rows: Any, scale: Scale, lowest: bool) -> list[Any]:
    scored = rows[rows["n"] > 0]
    if not len(scored):
        return [name, Markup('<td colspan="4">no head has a score</td>')]
    size = -scored["score"] if lowest else scored["score"]
    if scale.signed and not lowest:
        size = (size - scored["null"].fillna(0.0)).abs()
    n_layers = int(rows["layer"].max()) + 1
    width = _WIDTH / n_layers
    cells = []
    # the first of equal scores, as in the tables of top heads
    for layer, index in size.groupby(scored["layer"]).idxmax().items():
        row = scored.loc[index]
        told = f"L{row['layer']}H{row['head']}: {with_error(row['score'], row['sem'])}"
        at = int(scale.bins(np.array([row["score"]]))[0])
        cells.append(
            element("rect", element("title", told), x=int(layer) * width, y=0, width=width,
                    height=_HEIGHT, class_=colour_class(at, scale.signed))
        )  # fmt: skip
    strip = element(
        "svg", *cells, class_="strip", preserveAspectRatio="none", width=130, height=_HEIGHT,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img",
        aria_label=f"best head of each of {n_layers} layers",
    )  # fmt: skip
    best = scored.loc[size.idxmax()]
    return [
        name, strip, f"L{best['layer']}H{best['head']}", with_error(best["score"], best["sem"]),
        with_error(best["null"], best["null_sem"]),
    ]  # fmt: skip
