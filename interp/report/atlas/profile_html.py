"""Sentences and examples of heads on text as HTML that needs no script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from interp.core.ties import ordered_by
from interp.core.tokens import shown
from interp.draw.svg import element
from interp.report.atlas.document import HeadProfile, Model, TextExample
from interp.report.atlas.signs import Sign, badge
from interp.report.atlas.texts import head_link, statement_list

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
