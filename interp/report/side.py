"""Several models beside each other: one metric, one scale, layers aligned by relative depth."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.columns import with_error
from interp.draw.plot import Scale, scale_ends

if TYPE_CHECKING:
    import pandas as pd

_WIDTH, _HEIGHT = 320, 14  # of a strip
_ROWS = 60  # strips of one metric


def side_by_side(frame: pd.DataFrame, scales: Mapping[str, Scale]) -> str:
    """A strip per model and stack: the best head of every layer, from first layer to last.

    The best has the highest score; of a signed metric, it is farthest from its null either way, as
    in the tables of top heads. A strip is as wide for 2 layers as for 48, so that what lies above
    each other is at the same part of the depth. Metrics that only one model has are left out. All
    names are escaped.
    """
    out = []
    groups: Any = frame.groupby("metric", sort=False)
    for metric, rows in groups:
        if rows["model"].nunique() < 2:
            continue
        scale = scales[str(metric)]
        sites: Any = list(rows.groupby(["model", "stack"], sort=False))
        several = rows.groupby("model")["stack"].nunique().max() > 1
        lines = [
            _strip(str(model), str(stack), site, scale, several)
            for (model, stack), site in sites[:_ROWS]
        ]
        low, high = scale_ends(scale)
        unit = escape(str(rows["unit"].iloc[0]))
        left = f"; {len(sites) - _ROWS} more not drawn" if len(sites) > _ROWS else ""
        body = "".join(lines)
        what = "head farthest from its null" if scale.signed else "best head"
        family = "d" if scale.signed else "q"
        out.append(
            '<figure><div class="scroll" tabindex="0"><table class="side">'
            f'<caption>{escape(str(metric))} <span class="unit">{unit}</span></caption>'
            '<thead><tr><th scope="col">model</th><th scope="col"><div class="depth">'
            "<span>first layer</span><span>last layer</span></div></th>"
            '<th scope="col">best head</th><th scope="col">score</th><th scope="col">null</th>'
            f"</tr></thead><tbody>{body}</tbody></table></div>"
            f'<div class="scale"><span>{low}</span><i class="bar bar-{family}"></i>'
            f"<span>{high}</span></div>"
            f'<p class="note">{what} of each layer{_prompts(rows)}{_scale(scale)}{left}</p>'
            "</figure>"
        )
    return "\n".join(out)


def _scale(scale: Scale) -> str:
    return f"; {escape(scale.note)}" if scale.note else ""


def _prompts(rows: Any) -> str:
    """How many prompts the scores are means of, once for all of them."""
    counts = sorted(set(rows.loc[rows["n"] > 0, "n"]))
    ends_of = dict.fromkeys(counts[:1] + counts[-1:])
    return f"; n {' to '.join(map(str, ends_of))}" if counts else ""


def _strip(model: str, stack: str, rows: Any, scale: Scale, several: bool) -> str:
    scored = rows[rows["n"] > 0]
    name = escape(model) + (f" {escape(stack)}" if several else "")
    if not len(scored):
        return f'<tr><th scope="row">{name}</th><td colspan="4">no head has a score</td></tr>'
    size = scored["score"]
    if scale.signed:
        size = (size - scored["null"].fillna(0.0)).abs()
    # the first of equals, as in the tables of top heads
    at = size.groupby(scored["layer"]).idxmax()
    n_layers = int(rows["layer"].max()) + 1
    width = _WIDTH / n_layers
    family = "d" if scale.signed else "q"
    cells = []
    for layer, index in at.items():
        row = scored.loc[index]
        colour = int(scale.bins(np.array([row["score"]]))[0])
        label = f"L{row['layer']}H{row['head']}: {with_error(row['score'], row['sem'])}"
        cells.append(
            f'<rect x="{int(str(layer)) * width:.4g}" y="0" width="{width:.4g}" height="{_HEIGHT}"'
            f' class="{family}{colour}"><title>{escape(label)}</title></rect>'
        )
    best = scored.loc[size.idxmax()]
    return (
        f'<tr><th scope="row">{name}</th><td><svg class="strip"'
        f' preserveAspectRatio="none" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        f' role="img" aria-label="best head of each of {n_layers} layers">{"".join(cells)}</svg>'
        f"</td><td>L{best['layer']}H{best['head']}</td>"
        f"<td>{with_error(best['score'], best['sem'])}</td>"
        f"<td>{with_error(best['null'], best['null_sem'])}</td></tr>"
    )
