"""The atlas as one HTML file, which needs no network and can be read without scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from interp.bundled import attention_warning
from interp.core.calibration import measured_error
from interp.core.csv_rows import csv_of_rows
from interp.core.errors import OptionError
from interp.draw.page import asset, csv_link, render, stored
from interp.draw.svg import element
from interp.report.atlas.answer import answer_line
from interp.report.atlas.document import Atlas, Comparison, Model, Part
from interp.report.atlas.figures import figure_of
from interp.report.atlas.maps import difference_map, has_roles, legend_list, map_width, role_maps
from interp.report.atlas.metric_table import metric_table
from interp.report.atlas.pack import CUTS, ModelView, packed
from interp.report.atlas.profile_html import text_summary
from interp.report.atlas.signs import Sign, sign_rules, signs
from interp.report.atlas.texts import (
    change_table,
    head_link,
    part_rows,
    role_table,
    rule_table,
    statement_list,
)

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
