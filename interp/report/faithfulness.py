"""Page and figure of a faithfulness run: warnings, and the methods that each is better than."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from interp.draw.colours import Scale
from interp.draw.page import data_table, fold, page, pair_list, table
from interp.draw.panel import bar
from interp.draw.svg import element

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from interp.attribution.evaluation.result import Faithfulness

_ABOUT = (
    "Every measure removes tokens and measures the target; one text is one observation. Means "
    "are over texts, and ± is their standard error. “Better than” lists the methods that a "
    "method beats in a paired permutation test over the texts, corrected for all pairs of the "
    "table (Holm, 5 %). Differences that are not listed are not significant. Where there are too "
    "few texts for any difference to pass the test, the table says so and lists none."
)


def faithfulness_page(
    found: Faithfulness, *, title: str = "Faithfulness of attributions", command: str | None = None
) -> str:
    """Return one HTML page without scripts; equal results give equal bytes."""
    provenance = dict(found.provenance)
    targets = list(dict.fromkeys(provenance.pop("targets", [])))
    versions = provenance.pop("versions", {})
    provenance |= versions if isinstance(versions, dict) else {}
    model = provenance.pop("model_id", "")
    more = f" and {len(targets) - 3} more" if len(targets) > 3 else ""
    provenance["targets"] = ", ".join(map(str, targets[:3])) + more
    parts = [pair_list(provenance), *_measures(found), *_failures(found), *_deceived(found)]
    warnings = [w for w in (found.warning, found.incomplete_warning) if w]
    values = {
        "command": command,
        "heading": found.first_line(),
        "about": _ABOUT,
        "warnings": warnings,
    }
    numbers = "In numbers", data_table(found.to_pandas(), "faithfulness")
    return page(title, None, [(model, *parts), numbers], None, **values).decode()


def _measures(found: Faithfulness) -> Iterator[Markup | str]:
    """Yield the heading and table of each measure, and the reason if no method can be better."""
    for measure, (what, better) in found.measures.items():
        rows = [r for r in found.summary(measure) if r[3]]
        if not rows:
            continue
        beats, limit = found.better_than(measure), found.limit(measure)
        size = max(abs(mean) + (0 if math.isnan(sem) else sem) for _, mean, sem, _ in rows)
        scale = Scale.around(size, signed=any(mean < 0 for _, mean, _, _ in rows))
        lines = [
            [
                method,
                bar(mean, scale, sem=sem),
                f"{mean:.3f}{'' if math.isnan(sem) else f' ± {sem:.3f}'}",
                n,
                _beaten(beats[method], len(rows)) if limit.can_show else "not testable",
            ]
            for method, mean, sem, n in rows
        ]
        lower = "" if better else "; lower is better"
        caption = f"{what}{lower}; bars from {scale.low:.3g} to {scale.high:.3g}"
        columns = ["method", ("", "wide"), "mean", "texts", ("better than", "token")]
        yield element("h3", measure)
        yield table(columns, lines, caption)
        if str(limit):
            yield f"{limit}."


def _beaten(names: list[str], of: int) -> Any:
    lines = Markup("<br>").join(names)
    return fold(f"{len(names)} of {of - 1}", lines) if len(names) > 4 else lines or "none"


def _failures(found: Faithfulness) -> list[Markup | str]:
    if not found.failures:
        return ["No method failed on any text."]
    lines = (f"{method} on text {text + 1}: {error}" for method, text, error in found.failures)
    return [element("h3", "Failures"), element("ul", *(element("li", line) for line in lines))]


def _deceived(found: Faithfulness) -> list[Markup]:
    rows = sorted(found.warned, key=lambda d: (math.isnan(d.rank), d.rank))
    if not rows:
        return []
    lines = [
        [d.method, d.needs]
        + ([d.error, ""] if d.error else [f"{d.rank:.2f} ± {d.sem:.2f}", f"{d.first:.0%}"])
        for d in rows
    ]
    caption = f"Mean rank of the decisive word in bundled:deceive, {rows[0].n} sentences"
    caption += f"; chance is {rows[0].chance:.1f}"
    columns = ["method", "needs", "rank", "first"]
    return [element("h3", "Can it be deceived?"), table(columns, lines, caption)]


def method_bars(found: Faithfulness) -> go.Figure:
    """Draw one bar per row of one measure, the best on top, with plus and minus one SEM."""
    import plotly.graph_objects as go

    from interp.attribution.evaluation.result import MEASURES

    frame = found.wide()
    frame = frame[frame["n"] > 0].iloc[::-1]
    measure = str(found.wide()["metric"].iloc[0])
    fooled = {d.method for d in found.warned if d.rank + d.sem >= d.chance}
    bar = go.Bar(
        x=frame["score"].tolist(),
        y=[f"{m} *" if m in fooled else m for m in frame["method"]],
        error_x={"array": frame["sem"].tolist(), "thickness": 1.2},
        orientation="h",
        marker_color="#2b7bba",
        customdata=frame["n"].tolist(),
        hovertemplate="%{y}: %{x:.3f}, %{customdata} texts<extra></extra>",
    )
    what, more = MEASURES[measure]
    beside = "* ranks a hidden cause no better than chance" if fooled else ""
    return go.Figure(bar).update_layout(
        title={"text": f"{measure}: {what}{'' if more else ' (lower is better)'}"},
        xaxis={"title": {"text": "mean and standard error over texts"}},
        yaxis={"title": {"text": beside}},
        height=140 + 22 * len(frame),
        margin={"l": 180},
    )
