"""Page of features: a card each with examples in colour, effects on logits, and heads."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from interp.core.tokens import shown
from interp.draw.colours import Scale
from interp.draw.page import data_table, page, pair_list, table
from interp.draw.panel import bar, colour_class
from interp.draw.svg import element

if TYPE_CHECKING:
    from interp.dictionaries.card_result import FeatureCard, FeatureCards, FeatureExample

_ABOUT = (
    "The colour of a token is the feature's code there, from 0 to its largest example; point at a "
    "token for the number. The strongest position of each example is in italics with an outline. "
    "Effects on logits are those of one unit of code on the direct path to the unembedding: the "
    "gain and centring of the final norm are folded in, its division and all later layers are left "
    "out, and the mean over the vocabulary is subtracted."
)


def cards_page(found: FeatureCards, *, title: str = "Features") -> bytes:
    """Return one self-contained HTML page; all tokens are escaped."""
    rows = found.wide()
    parts: list[tuple[Any, ...]] = [
        (f"Feature {card.feature}", *_card(card, rows[rows["feature"] == card.feature], found))
        for card in found.kept_cards()
    ]
    parts.append(("In numbers", data_table(found.to_pandas(), "features")))
    about = " ".join([_ABOUT, *found.notes])
    return page(title, None, parts, dict(found.provenance), about=about, heading=found.first_line())


def _card(card: FeatureCard, rows: Any, found: FeatureCards) -> list[Markup]:
    contents = [pair_list({row.metric: _value(row) for row in rows.itertuples()})]
    if card.examples:
        scale = Scale.around(card.examples[0].activation, signed=False)
        contents.append(element("h3", f"Largest codes, colours from 0 to {scale.high:.3g}"))
        contents += [_example(x, scale) for x in card.examples]
    else:
        contents.append(element("p", "The feature is active at no position of these prompts."))
    if card.promoted:
        null = f"largest of a random direction {card.logit_null:.3g}, mean"
        for name, pairs in (
            ("Logits it raises", card.promoted),
            ("Logits it lowers", card.suppressed),
        ):
            scale = Scale.around(card.logit_effect, signed=True)
            lines = [[shown(t), bar(x, scale), f"{x:+.3g}"] for t, x in pairs]
            contents.append(table([("token", "token"), "", "effect"], lines, name, null))
    if card.heads:
        lines = [
            [
                f"L{found.layer}H{h}",
                f"{share:.1%}",
                f"{card.of_examples[h]:.1%}" if card.of_examples else "",
            ]
            for h, share in enumerate(card.heads)
        ]
        null = f"largest share of a random direction {card.head_null:.1%}, mean"
        columns = ["head", "decoder row", "examples"]
        contents.append(table(columns, lines, "Heads that write it", null))
    return contents


def _value(row: Any) -> str:
    error = "" if math.isnan(row.sem) else f" ± {row.sem:.2g}"
    null = "" if math.isnan(row.null) else f", null {row.null:.3g}"
    p = "" if math.isnan(row.p) else f", p {row.p:.2g}"
    return f"{row.score:.3g}{error} {row.unit}{null}{p}"


def _example(one: FeatureExample, scale: Scale) -> Markup:
    bins = scale.bins(np.array(one.codes))
    spans = []
    for i, (token, code) in enumerate(zip(one.tokens, one.codes, strict=True)):
        peak = " special" if one.start + i == one.position else ""
        text = "left out" if math.isnan(code) else f"{code:.4g}"
        spans.append(
            element(
                "span",
                shown(token),
                title=f"{one.start + i}: {token!r} {text}",
                class_=colour_class(bins[i], False) + peak,
            )
        )
    where = element("small", f"prompt {one.prompt}, position {one.position}: {one.activation:.3g}")
    return element("p", *spans, class_="text") + element("p", where)
