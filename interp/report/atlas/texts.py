"""Statements, tables and links of the atlas as HTML that needs no script."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from markupsafe import Markup, escape

from interp.core.columns import score_text
from interp.draw.page import table
from interp.draw.svg import element
from interp.report.atlas.document import Atlas, Card, Comparison, Effect, Model, Statement
from interp.report.atlas.maps import bar_ends, statement_bar
from interp.report.atlas.signs import UNCLEAR, Sign, badge

_NAMED = 6  # heads beside a statement
_LISTED = 40  # heads with a role in the table of a model
_CHANGES = 12  # rows of a comparison


def address(model: str, label: str) -> str:
    """Return the part of a link that opens the card of a head."""
    return f"{quote(model, safe='')}/{quote(label, safe='')}"


def head_link(model: str, label: str) -> Markup:
    """Return a link to the card of a head."""
    return element("a", label, class_="head", href=f"#{address(model, label)}")


def statement_list(model: Model, signs: Mapping[str, Sign]) -> Markup:
    """Return what was found in a model, then what was not."""
    items = {True: [], False: []}
    for one in model["statements"]:
        sign = signs.get(one["role"] or "")
        mark = badge(sign) if sign else element("i", class_="badge", aria_hidden="true")
        drawn = statement_bar(one, bar_ends(model, one["metric"]))
        text = element("span", _linked(model["id"], one), _without(model, one), drawn)
        items[one["found"]].append(element("li", mark, text, data_role=one["role"]))
    positive = element("ul", *items[True], class_="said") if items[True] else ""
    if not items[False]:
        return Markup(positive)
    return Markup(positive) + element(
        "details",
        element("summary", f"Not found: {len(items[False])}"),
        element("ul", *items[False], class_="said not"),
        open="" if not items[True] else None,
    )


def _without(model: Model, one: Statement) -> Markup:
    """Return what removing the first head of a role does, where that was measured."""
    known = one["found"] and one["role"] and one["heads"]
    effects = model["cards"].get(one["heads"][0], {}).get("effects", []) if known else []
    if not effects:
        return Markup("")
    how = effects[0]["intervention"]
    text = f" Without {one['heads'][0]}: {effect_sentence(effects[0])} ({how})."
    return element("span", text, class_="without")


def _linked(model: str, one: Statement) -> Markup:
    """Return the text of a statement with links on its heads, the others behind it."""
    heads = sorted(one["heads"], key=len, reverse=True)
    if not heads:
        return Markup(escape(one["text"]))
    known = re.compile(r"(?<!\w)(" + "|".join(map(re.escape, heads)) + r")(?!\w)")
    # what was found is read first: "8 induction heads"
    start = re.match(r"[^:(]*", one["text"])[0].rstrip() if one["found"] and one["role"] else ""  # type: ignore[index]
    start = "" if known.search(start) else start
    pieces = known.split(one["text"][len(start) :])
    named = set(pieces[1::2])
    text = element("b", start) if start else Markup("")
    text += Markup("").join(
        head_link(model, piece) if at % 2 else escape(piece) for at, piece in enumerate(pieces)
    )
    rest = [label for label in one["heads"] if label not in named]
    if not rest or len(named) >= _NAMED:
        return text
    more = f" and {len(rest) - _NAMED} more" if len(rest) > _NAMED else ""
    links = Markup(", ").join(head_link(model, label) for label in rest[:_NAMED])
    return text + Markup(" ") + element("span", "(", links, more, ")", class_="heads")


def role_table(model: Model, signs: Mapping[str, Sign]) -> Markup:
    """Return the heads that have a role, those of the strongest statements first."""
    role = dict(zip((p["label"] for p in model["heads"]), model["roles"], strict=True))
    first = [label for one in model["statements"] if one["found"] for label in one["heads"]]
    order = dict.fromkeys([*first, *role])
    known = [x for x in order if role.get(x) not in (None, UNCLEAR)]
    rows = [_head_row(model, label, signs.get(role[label] or "")) for label in known[:_LISTED]]
    if not rows:
        return element("p", "No head has a role.")
    more = len(known) - len(rows)
    note = element("p", f"{more:,} more heads with a role are on the map.", class_="note")
    columns = ["head", ".role", ("evidence", "text"), ("without the head", "text")]
    return table(columns, rows, kind="roles") + (note if more > 0 else "")


def _head_row(model: Model, label: str, sign: Sign | None) -> list[Any]:
    card: Card = model["cards"].get(label, {})
    name = element("span", badge(sign), " ", sign.name) if sign else ""
    evidence = card.get("profile", {}).get("sentence") or "; ".join(
        x["text"].rstrip(".") for x in card.get("evidence", [])[:2]
    )
    effects = "; ".join(
        f"{effect_sentence(x)} ({x['intervention']})" for x in card.get("effects", [])[:2]
    )
    link = head_link(model["id"], label)
    return [
        element("th", link, scope="row", id=address(model["id"], label)),
        name,
        evidence,
        effects,
    ]


def effect_sentence(one: Effect) -> str:
    """Return an effect with its interval, as in "copy_loss +0.31 nats [0.22, 0.40]"."""
    between = ""
    if one["low"] is not None and one["high"] is not None:
        between = f" [{score_text(one['low'])}, {score_text(one['high'])}]"
    sign = "+" if one["value"] > 0 else ""
    return f"{one['task']} {sign}{score_text(one['value'])} {one['unit']}{between}"


def change_table(document: Atlas, comparison: Comparison) -> Markup:
    """Return the largest differences of a comparison, those beyond chance first."""
    models = {model["id"]: model for model in document["models"]}
    first = models[comparison["a"]]
    labels = [place["label"] for place in first["heads"]]
    changes = []
    for part in comparison["metrics"]:
        size = max((abs(v) for v in part["difference"] if v is not None), default=0) or 1.0
        for i, value in enumerate(part["difference"]):
            if value is not None and value:
                p = part["p"][i]
                changes.append(((p is None or p >= 0.05, -abs(value) / size), i, value, part))
    changes.sort(key=lambda x: x[0])
    rows = [
        [
            element("th", head_link(comparison["a"], labels[i]), scope="row"),
            part["metric"],
            f"{value:+.3f} {part['unit']}",
            _between(part["low"][i], part["high"][i]),
            "" if part["p"][i] is None else f"{part['p'][i]:.2g}",
        ]
        for _, i, value, part in changes[:_CHANGES]
    ]
    columns = ["head", ".metric", "difference", "95 % interval", "p"]
    return table(columns, rows, kind="changes") if rows else element("p", "No head differs.")


def _between(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"[{low:+.3f}, {high:+.3f}]"


def rule_table(document: Atlas, signs: Mapping[str, Sign]) -> Markup:
    """Return what each role means and what decides it."""
    roles = {role["id"]: role for model in document["models"] for role in model["legend"]}
    rows = [
        [
            element("th", badge(sign), " ", sign.name, scope="row"),
            roles[key]["text"],
            roles[key]["rule"],
        ]
        for key, sign in signs.items()
    ]
    return table(["role", ("a head of this role", "text"), ("decided by", "text")], rows)


def part_rows(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Markup:
    """Return the rows of a result as a table, texts aligned left."""
    words = [
        any(isinstance(row[at], str) for row in rows[:20] if at < len(row))
        for at in range(len(columns))
    ]
    named = [(c, "text") if w else c for c, w in zip(columns, words, strict=True)]
    shown = [["" if x is None else x for x in row] for row in rows]
    return table(named, shown, headed=False)
