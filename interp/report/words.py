"""The readable half of a report: the top heads of each metric, and how the scores were made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from interp.core.columns import with_error
from interp.draw.plot import Scale, scale_ends
from interp.report.catalogue import prompts

if TYPE_CHECKING:
    from interp.core.table import HeadTable

# Shown first and in this order; what else was recorded follows, and what is missing is said.
_FIRST = ("model_id", "content_hash", "revision", "dtype", "attention", "seed", "prompts", "null")
_EXPECTED = ("model_id", "content_hash", "dtype", "seed", "prompts", "null", "versions")
_BAR = 120  # units wide


def top_heads(table: HeadTable, scales: Mapping[str, Scale], k: int, by: str = "end") -> str:
    """One small table per metric of one model, in the order of `HeadTable.top`."""
    several = len(table.stacks) > 1
    out = []
    for metric in table.metrics:
        scale = scales[metric]
        best = table.top(k, metric, by=by).to_pandas()
        unit = escape(str(best["unit"].iloc[0])) if len(best) else ""
        low, high = scale_ends(scale)
        lines = [
            f'<table><caption>{escape(metric)} <span class="unit">{unit}</span></caption>'
            '<thead><tr><th scope="col">head</th>'
            '<th scope="col" class="wide">score with its error, null;'
            f" bars from {low} to {high}</th>"
            '<th scope="col">score</th><th scope="col">null</th><th scope="col">n</th></tr></thead>'
            "<tbody>"
        ]
        for row in best.to_dict("records"):
            name = f"L{row['layer']}H{row['head']}"
            name += f" {escape(row['stack'])}" if several else ""
            score = with_error(row["score"], row["sem"])
            null = with_error(row["null"], row["null_sem"])
            lines.append(
                f'<tr><th scope="row">{name}</th><td class="wide">{_bar(row, scale)}</td>'
                f"<td>{score}</td><td>{null}</td><td>{prompts(row['n'], row['clusters'])}</td></tr>"
            )
        if not len(best):
            lines.append('<tr><td colspan="5">no head has a score: no prompt had a row</td></tr>')
        out.append("".join(lines) + "</tbody></table>")
    return "\n".join(out)


def provenance(made: Mapping[str, Mapping[str, Any]]) -> str:
    """What all metrics of a model share, as a list; what differs, as a table by metric."""
    fields = list(dict.fromkeys([*_FIRST, *(field for each in made.values() for field in each)]))
    fields = [field for field in fields if any(field in each for each in made.values())]
    spelled = {
        field: {metric: _plain(each.get(field, "not recorded")) for metric, each in made.items()}
        for field in fields
    }
    missing = [field for field in _EXPECTED if field not in fields]
    shared = [field for field in fields if len(set(spelled[field].values())) == 1]
    differing = [field for field in fields if field not in shared]
    pairs = [(field, next(iter(spelled[field].values()))) for field in shared]
    if missing:
        pairs.append(("not recorded", ", ".join(missing)))
    out = "".join(
        f"<div><dt>{escape(field)}</dt><dd>{escape(text) or 'none'}</dd></div>"
        for field, text in pairs
    )
    if not differing:
        return f"<dl>{out}</dl>"
    head = "".join(f'<th scope="col">{escape(field)}</th>' for field in differing)
    rows = "".join(
        f'<tr><th scope="row">{escape(metric)}</th>'
        + "".join(f"<td>{escape(spelled[field][metric])}</td>" for field in differing)
        + "</tr>"
        for metric in made
    )
    return (
        f"<dl>{out}</dl><details><summary>What differs between metrics</summary>"
        '<div class="scroll" tabindex="0"><table class="made"><thead><tr>'
        f'<th scope="col">metric</th>{head}</tr></thead><tbody>{rows}</tbody></table>'
        "</div></details>"
    )


def _bar(row: Mapping[str, Any], scale: Scale) -> str:
    """The score as a bar from zero (or the low end), one standard error either way, the null."""

    def x(value: float) -> float:
        part = (value - scale.low) / (scale.high - scale.low)
        return round(_BAR * min(max(part, 0.0), 1.0), 1)

    zero = x(max(scale.low, min(0.0, scale.high)))
    end = x(row["score"])
    colour = "d4" if scale.signed and row["score"] < 0 else ("d26" if scale.signed else "q18")
    left, width = min(zero, end), abs(end - zero)
    out = [f'<rect x="{left:g}" y="3" width="{width:g}" height="8" class="{colour}"/>']
    if not math.isnan(row["sem"]):
        left, right = x(row["score"] - row["sem"]), x(row["score"] + row["sem"])
        out.append(f'<path class="error" d="M{left:g} 7H{right:g}M{left:g} 4v6M{right:g} 4v6"/>')
    if math.isfinite(row["null"]):
        out.append(f'<path class="null" d="M{x(row["null"]):g} 0v14"/>')
    return (
        f'<svg class="score" viewBox="-1 0 {_BAR + 2} 14" aria-hidden="true">{"".join(out)}</svg>'
    )


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_plain(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(_plain(item) for item in value)
    return "none" if value is None else str(value)
