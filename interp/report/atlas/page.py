"""The atlas as one HTML file, which needs no network and can be read without scripts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from interp.bundled import attention_warning
from interp.core.calibration import measured_error
from interp.core.columns import score_text
from interp.core.csv_rows import csv_of_rows
from interp.core.errors import OptionError
from interp.core.files import write_atomically
from interp.core.intervals import TOO_FEW
from interp.core.order import first
from interp.core.ties import ordered_by
from interp.core.tokens import shown
from interp.draw.colours import Range, declared_range
from interp.draw.page import asset, csv_link, render, stored, table
from interp.draw.svg import element
from interp.report.atlas.answer import answer_line
from interp.report.atlas.document import Atlas, Comparison, HeadProfile, Model, Part, TextExample
from interp.report.atlas.figures import figure_of
from interp.report.atlas.maps import (
    difference_map,
    has_roles,
    legend_list,
    map_width,
    metric_ends,
    role_maps,
    statement_bar,
)
from interp.report.atlas.pack import CUTS, ModelView, packed
from interp.report.atlas.signs import Sign, badge, sign_rules, signs
from interp.report.atlas.texts import (
    change_table,
    head_link,
    part_rows,
    role_table,
    rule_table,
    statement_list,
)

if TYPE_CHECKING:
    from interp.core.table import HeadTable
    from interp.report.atlas.document import Metric

BUDGET = 10_000_000  # bytes of a page that browsers open and mail servers accept
ROWS = 60  # of a result's table on the page
_BROAD = 450  # pixels of a map that gets two columns beside other models
_CSV = 200_000  # bytes of a result's rows as a link
SCRIPTS = (
    "text_example",
    "atlas_data",
    "atlas_map",
    "atlas_profile",
    "atlas_card",
    "atlas_scatter",
    "atlas_find",
    "atlas_compare",
    "atlas_graph",
)
ON_TEXT = ("view_decode", "view_draw", "view_text", "atlas_text")
"""Further scripts of a page that holds the attention of heads on a text."""


def atlas_page(
    document: Atlas,
    *,
    budget: int = BUDGET,
    beside: Sequence[str] = (),
    views: Mapping[str, ModelView] | None = None,
    scripts: Sequence[str] = (),
    live: Mapping[str, Markup] | None = None,
    sections: Sequence[tuple[str, Sequence[Markup]]] = (),
) -> str:
    """Return the atlas as one HTML page. Equal documents give equal bytes."""
    heads = any(model["heads"] for model in document["models"])
    if not heads and not document["pages"]:
        raise OptionError("The atlas has nothing to show. Give a table with at least one score.")
    role_signs = signs(document)
    shown: dict[str, Any] = {
        "command": document["command"],
        "beside": beside,
        "many": len(document["models"]) > 1,
        "notes": [*document.get("notes", []), *([attention_warning()] if heads else [])],
        "legend": legend_list(role_signs, document["models"]),
        "rules": rule_table(document, role_signs) if heads else "",
        "error": measured_error(),
        "models": [_model(model, role_signs) for model in document["models"]],
        "comparisons": [_comparison(document, one) for one in document["comparisons"]],
        "pages": [_part(part) for part in document["pages"]],
    }
    styles = asset("atlas.css") + sign_rules(role_signs.values())
    styles += asset("explore.css") if live else ""
    page = patterns = ""
    views = dict(views or {})
    for cut, left in enumerate(CUTS):
        on_text = any("texts" in one for one in views.values())
        if cut == 1 and on_text:
            views = {model: {"file": one["file"]} for model, one in views.items()}
            patterns, on_text = "the attention of heads on a text, ", False
        used: list[Any] = [*SCRIPTS[:2], *[ON_TEXT] * on_text, *SCRIPTS[2:], *scripts]
        page = render(
            "atlas",
            document["title"],
            heading=answer_line(document),
            scripts=used,
            styles=styles,
            left=left and patterns + left,
            budget=f"{budget / 1e6:g}",
            data=Markup(packed(document, role_signs, cut, views)),
            live=live,
            sections=sections,
            **shown,
        )
        if len(page.encode()) <= budget:
            return page
    raise OptionError(
        f"This atlas takes {len(page.encode()) / 1e6:.3g} MB with the least detail, more than"
        f" {budget / 1e6:g} MB. Give fewer models or metrics, or a larger budget."
    )


def _model(model: Model, found: Mapping[str, Sign]) -> dict[str, Any]:
    n = len(model["heads"])
    return {
        "id": model["id"],
        "name": model["name"],
        "about": f"{n:,} head{'' if n == 1 else 's'}",
        "maps": role_maps(model, found),
        "statements": statement_list(model, found),
        "roles": role_table(model, found),
        "profile": text_summary(model, found),
        "scored": bool(model["statements"]),
        "metrics": metric_table(model),
        "n_metrics": len(model["metrics"]),
        "judged": has_roles(model),
        "results": [_part(part, _signs(model, found)) for part in model["results"]],
        "made": stored(model["provenance"]),
        "broad": map_width(model) > _BROAD,
    }


def _comparison(document: Atlas, one: Comparison) -> dict[str, Any]:
    models = {model["id"]: model for model in document["models"]}
    a, b = models[one["a"]], models[one["b"]]
    several = len(a["stacks"]) > 1
    maps = [
        element(
            "figure",
            element("figcaption", stack["name"]) if several else "",
            difference_map(one, a, at),
            element("output", aria_live="polite"),
        )
        for at, stack in enumerate(a["stacks"])
    ]
    return {
        "id": one["id"],
        "title": f"{a['name']} and {b['name']}",
        "text": one["text"],
        "said": [(head_link(one["a"], label), sentence) for label, sentence in one.get("said", [])],
        "maps": maps if one["metrics"] else [],
        "table": change_table(document, one),
        "metric": one["metrics"][0]["metric"] if one["metrics"] else "",
        "b": b["name"],
        "a": a["name"],
    }


def _signs(model: Model, found: Mapping[str, Sign]) -> dict[str, Sign]:
    """Return the sign of the role of each head, by label."""
    pairs = zip(model["heads"], model["roles"], strict=True)
    return {
        place["label"]: found[role] for place, role in pairs if role is not None and role in found
    }


def _part(part: Part, signs: Mapping[str, Sign] | None = None) -> dict[str, Any]:
    rows, provenance = part["rows"], part.get("provenance")
    drawn = figure_of(part, signs)
    listed = part_rows(part["columns"], rows[:ROWS]) if rows else ""
    return {
        "id": part["id"],
        "kind": part["kind"],
        "title": part["title"],
        "text": part["text"],
        "figure": drawn,
        "rows": listed,
        "n": len(rows),
        "more": max(len(rows) - ROWS, 0),
        "csv": _csv(part) if len(rows) > ROWS else "",
        "made": stored(provenance) if provenance else "",
    }


def _csv(part: Part) -> Markup | str:
    """Return all rows of a result as a link, or nothing where they are too many."""
    content = csv_of_rows([part["columns"], *part["rows"]])
    return csv_link(content, part["id"]) if len(content.encode()) <= _CSV else ""


HEADS = 3  # of each metric
_COLUMNS = (".metric", ".head", "", "score", "95 % interval", "null", "p", "n")


def metric_table(model: Model, heads: int = HEADS) -> Markup:
    """Return the first heads of each metric, in the order of `HeadTable.top`."""
    rows = [row for metric in model["metrics"] for row in _rows(model, metric, heads)]
    return table(_COLUMNS, rows, kind="metrics", headed=False)


def _rows(model: Model, metric: Metric, heads: int) -> list[list[Any]]:
    import pandas as pd

    columns = {"score": metric["score"], "null": metric["null_score"], "n": metric["n"]}
    frame = pd.DataFrame(columns, dtype=float)
    scored: Any = frame[frame["score"].notna() & (frame["n"] > 0)]
    order = [int(at) for at in first(scored, heads, "end", metric["end"]).index]
    ends = metric_ends(metric)
    rows = [_row(model, metric, at, ends) for at in order]
    if not rows:
        none = element("td", "no head has a score: no prompt had a row", colspan=len(_COLUMNS) - 1)
        rows = [[none]]
    unit = element("span", metric["unit"], class_="unit")
    rows[0].insert(0, element("th", metric["name"], " ", unit, scope="rowgroup", rowspan=len(rows)))
    return rows


def _row(model: Model, metric: Metric, at: int, ends: tuple[float, float]) -> list[Any]:
    low, high = (metric.get(name, [])[at : at + 1] for name in ("score_low", "score_high"))
    low, high = (x[0] if x else None for x in (low, high))
    score, null, p = metric["score"][at], metric["null_score"][at], metric["p"][at]
    why = "".join(metric.get("why_no_interval", [])[at : at + 1])
    few = element("span", TOO_FEW, title=why) if why.startswith(TOO_FEW) else ""
    known: Any = {"score": score, "low": low, "high": high, "null": null, "found": True}
    return [
        element("td", head_link(model["id"], model["heads"][at]["label"]), class_="words"),
        statement_bar(known, ends, 90),
        score_text(score or 0.0),
        few if low is None or high is None else f"[{score_text(low)}, {score_text(high)}]",
        "" if null is None else score_text(null),
        "" if p is None else f"{p:.1g}",
        f"{int(metric['n'][at] or 0)}",
    ]


SHADES = 32  # of the colours of attention


def text_summary(model: Model, signs: Mapping[str, Sign]) -> dict[str, Any] | None:
    """Return what the page says first of the heads of a model on text; None without a profile."""
    about = model.get("profile")
    if about is None:
        return None
    roles = dict(zip((p["label"] for p in model["heads"]), model["roles"], strict=True))
    opening = [
        _head(model, label, profile, signs.get(roles[label] or ""))
        for label in about["opening"]
        if (profile := model["cards"].get(label, {}).get("profile")) is not None
    ]
    on_text: Any = {**model, "statements": about["statements"]}
    return {
        "corpus": about["corpus"],
        "text": about["text"],
        "opening": element("ol", *opening, class_="opening") if opening else "",
        "statements": statement_list(on_text, signs),
    }


def _head(model: Model, label: str, found: HeadProfile, sign: Sign | None) -> Markup:
    first = [example_html(one) for one in found["examples"][:1]]
    mark = badge(sign) if sign else ""
    sentence = element("p", mark, " ", head_link(model["id"], label), " ", found["sentence"])
    return element("li", sentence, *first)


def example_html(one: TextExample) -> Markup:
    """Return one example: the query outlined, its keys shaded, the largest with its share."""
    keys = dict(one["keys"])
    most = ordered_by(keys, keys.__getitem__)[0] if keys else None
    parts: list[Any] = []
    for at, token in enumerate(one["tokens"]):
        if at in one["gaps"]:
            parts.append(element("i", " … ", class_="gap"))
        text = shown(token)
        if at not in keys and at != one["query"]:
            parts.append(text)
            continue
        share = f"{100 * keys.get(at, 0):.0f} %"
        names = [f"key q{round(SHADES * min(keys[at], 1))}"] if at in keys else []
        names += ["query"] if at == one["query"] else []
        title = f"{share} of the query's attention" if at in keys else "the query"
        parts.append(element("mark", text, class_=" ".join(names), title=title))
        parts.append(element("sub", share) if at == most else "")
    return element("p", *parts, class_="text example")


def write_report(
    table: HeadTable,
    path: str | os.PathLike,
    *,
    ranges: Mapping[str, Range] | None = None,
    title: str = "Attention heads",
    command: str | None = None,
    beside: Sequence[str] = (),
    budget: int = BUDGET,
) -> int:
    """Write the atlas of one table completely or not at all, and return its size in bytes.

    Equal tables give equal bytes. `build_atlas` and `atlas_page` make the same page of several
    tables, folders and models.

    Args:
        table: the scores, or the effects of ablations.
        path: the file of the page.
        ranges: the colour range of metrics (low, high), None for an end without bound; by default
            those that the metrics declare.
        title: the title of the page.
        command: the command line that made the table.
        beside: names of files in the same folder that the page links to.
        budget: the largest size in bytes. A larger page leaves out details, and states which.

    Raises:
        StoreError: the file cannot be written.
        OptionError: the table is empty, or the page exceeds its budget.
    """
    from interp.report.atlas.build import build_atlas

    if not len(table):
        raise OptionError("The table has no rows to show. Give a table with at least one score.")
    atlas = build_atlas(table, title=title, command=command)
    for model in atlas["models"]:
        for metric in model["metrics"]:
            bounds = declared_range(ranges or {}, metric["name"])
            if bounds is not None:
                metric["low"], metric["high"] = bounds
    page = atlas_page(atlas, beside=beside, budget=budget).encode()
    write_atomically(Path(path), page)
    return len(page)
