"""The page of a comparison of models: what changed, how sure that is, and where."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from interp.core.columns import score_text
from interp.core.head import Head
from interp.core.tokens import shown
from interp.draw.colours import Scale
from interp.draw.page import data_table, fold, page, table
from interp.draw.panel import colour_bar, colour_class, head_map, interval, interval_axis
from interp.draw.svg import element
from interp.heads.special import LEVEL

if TYPE_CHECKING:
    from interp.heads.between_models.answer import ComparisonAnswer
    from interp.heads.between_models.result import ModelDifferences

HEADS = 20  # in the table of changed heads
ABOUT = (
    "B minus A, on the same prompts. p_holm, corrected over all heads and metrics, controls the "
    "probability of any false finding; p_bh the expected share of false ones. A change is claimed "
    f"where p_holm is below {LEVEL:g}."
)


def differences_page(found: ModelDifferences, *, title: str | None = None) -> bytes:
    """Return the page of differences as UTF-8.

    Args:
        found: The differences.
        title: The title of the page.
    """
    name = title or f"{found.provenance.get('model', 'Models')}: differences of heads"
    parts: list[tuple[Any, ...]] = []
    line = found.first_line()
    if found.answer is not None:
        line = found.answer.sentence.rstrip(".")
        parts += _changes(found, found.answer)
    maps = [_maps(found, metric) for metric in found.metrics]
    parts.append(("Where", element("div", *maps, class_="panels")))
    if found.patterns:
        parts.append(("The same text in both", *_patterns(found.patterns)))
    tables = [
        fold(metric, element("p", found.summary(metric)), _largest(found, metric))
        for metric in found.metrics
    ]
    parts.append(("Largest differences by metric", *tables))
    parts.append(("In numbers", data_table(found.to_pandas(), "differences")))
    provenance = dict(found.provenance)
    return page(name, None, parts, provenance, about=ABOUT, heading=line)


def _changes(found: ModelDifferences, answer: ComparisonAnswer) -> Iterable[tuple[Any, ...]]:
    """Yield the sections on roles, heads and the loss."""
    if answer.roles:
        rows = [
            [x.role, len(x.before), len(x.after)]
            + [", ".join(heads) or "none" for heads in (x.lost, x.gained, x.open)]
            for x in answer.roles
        ]
        heads = ["role", "in A", "in B", ".lost", ".gained", ".in one only, which may be chance"]
        yield "Roles", table(heads, rows)
    else:
        why = answer.why_no_roles or "no head has a role in either model, by the compared metrics"
        yield "Roles", element("p", f"{why[0].upper()}{why[1:]}.")
    sure = [x for x in answer.heads if x.differs]
    text = f"{len(sure)} of {answer.tested} heads differ"
    text += f"; the first {HEADS} are listed." if len(sure) > HEADS else "."
    yield ("Heads that changed", text, *([_heads(found, sure[:HEADS])] if sure else []))
    loss = "Not compared: " + answer.why_no_loss
    if answer.loss is not None:
        loss = f"{answer.loss.summary()}, p {answer.loss.p:.2g}"
    yield "Loss on the prompts", element("p", f"{loss}.")


def _heads(found: ModelDifferences, changes: Sequence[Any]) -> Markup:
    """Return a row per changed head, its intervals on one axis as shares of the metric's range."""
    frame = found.to_pandas()
    by_row = {
        (r["stack"], f"L{r['layer']}H{r['head']}", r["metric"]): r for r in frame.to_dict("records")
    }
    ends = []
    for x in changes:
        row = by_row[x.stack, x.head, x.metric]
        width = abs(row["score"]) / x.share if x.share else math.inf
        ends.append([row[k] / width for k in ("score", "low", "high")])
    most = float(np.nanmax(np.abs(ends))) or 1.0
    rows = []
    for x, (middle, low, high) in zip(changes, ends, strict=True):
        row = by_row[x.stack, x.head, x.metric]
        name = x.head if x.head == x.head_b else f"{x.head} \u2192 {x.head_b}"
        within = "" if math.isnan(row["low"]) else f" [{row['low']:+.3g}, {row['high']:+.3g}]"
        p = "exact" if math.isnan(x.p_holm) else f"{x.p_holm:.2g}"
        rows.append(
            [
                name,
                element("td", x.metric, class_="words"),
                score_text(x.a),
                score_text(x.b),
                f"{row['score']:+.3g}{within}",
                element("td", interval(middle, low, high, most)),
                p,
                element("td", ", ".join(x.also), class_="words"),
            ]
        )
    axis = element("span", "share of the metric's range", interval_axis(most))
    change = "B \u2212 A [95 %]"
    heads = ["head", ".metric", "A", "B", change, (axis, "words"), "p_holm", ".also changed in"]
    return table(heads, rows)


def _maps(found: ModelDifferences, metric: str) -> Markup:
    """Return a diverging map per stack of one metric; what is claimed is outlined."""
    frame: Any = found[metric].to_pandas()
    size = float(frame["score"].abs().max()) or 1.0
    scale = Scale.around(size, signed=True)
    figures = []
    groups: Any = frame.groupby("stack", sort=False)
    for stack, mine in groups:
        shape = int(mine["layer"].max()) + 1, int(mine["head"].max()) + 1
        grid, titles = np.full(shape, math.nan), {}
        for row in mine.to_dict("records"):
            at = int(row["layer"]), int(row["head"])
            grid[at] = row["score"]
            within = "" if math.isnan(row["low"]) else f" [{row['low']:+.3g}, {row['high']:+.3g}]"
            p = "" if math.isnan(row["p_holm"]) else f", p_holm {row['p_holm']:.2g}"
            titles[at] = f"{Head(*at)}: {row['score']:+.3g}{within}{p}"
        drawn = head_map(
            scale.bins(grid),
            f"Map of B minus A, {metric}, {stack}",
            signed=True,
            titles=titles,
            role="img",
        )
        caption = element("figcaption", _caption(metric, stack, frame))
        figures.append(element("figure", caption, drawn))
    unit = str(frame["unit"].iloc[0])
    return element("div", *figures, element("div", colour_bar(scale), Markup(f" {unit}")))


def _caption(metric: str, stack: Any, frame: Any) -> str:
    several = frame["stack"].nunique() > 1
    sure = int((frame["p_holm"] < LEVEL).sum())
    return f"{metric}{f', {stack}' * several}: {sure} of {len(frame)} heads differ"


def _patterns(places: Sequence[Mapping[str, Any]]) -> Iterable[Markup]:
    """Yield, for the place where each head changed most, its attention in A and in B."""
    yield element(
        "p",
        "The query (outlined) at which the attention of a head changed most, on the same text "
        "in A and in B. The change is the total variation distance of the two rows: 0 same, 1 "
        "disjoint; these are examples, chosen because they are large.",
    )
    seen = set()
    for place in places:
        name = " \u2192 ".join(place[k] for k in ("head", "head_b") if k in place)
        if name in seen or "tokens" not in place:
            continue
        seen.add(name)
        mean = place["mean_change"]
        yield element("h3", f"{name}: {place['change']:.2f} here, {mean:.2f} on average")
        for side in ("A", "B"):
            yield _row(side, place["tokens"], place["before" if side == "A" else "after"])
        yield element(
            "p",
            f"{shown(place['lost_token'])} loses {-place['lost_weight']:.2f}, "
            f"{shown(place['gained_token'])} gains {place['gained_weight']:.2f}.",
            class_="note",
        )


def _row(side: str, tokens: Sequence[str], weights: Sequence[float]) -> Markup:
    bins = Scale.around(1.0, signed=False).bins(np.array(weights, dtype=float))
    spans = [
        element(
            "span",
            shown(token),
            title=f"{weight:.3f}",
            class_=colour_class(int(at), False) + " query" * (i == len(tokens) - 1),
        )
        for i, (token, weight, at) in enumerate(zip(tokens, weights, bins, strict=True))
    ]
    return element("p", element("b", f"{side} "), *spans, class_="text")


def _largest(found: ModelDifferences, metric: str) -> Markup:
    """Return the heads with the largest differences of one metric."""
    rows = []
    for row in found[metric].top(10).to_pandas().to_dict("records"):
        within = "" if math.isnan(row["low"]) else f" [{row['low']:+.3g}, {row['high']:+.3g}]"
        sides = [score_text(row[k]) for k in ("score_a", "score_b")]
        p = [row[k] for k in ("p", "p_holm", "p_bh")]
        name = f"L{row['layer']}H{row['head']}"
        rows.append([name, *sides, f"{row['score']:+.3g}{within}", *p])
    unit = str(found[metric].to_pandas()["unit"].iloc[0])
    heads = ["head", f"A, {unit}", "B", "B \u2212 A [95 %]", "p", "p_holm", "p_bh"]
    return table(heads, rows)
