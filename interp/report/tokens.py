"""Attributions as coloured text: one page that opens anywhere, offline, without scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from interp.draw.colours import Scale, ink, palette
from interp.draw.page import Table, data_table, fold, pair_list
from interp.draw.page import render as fill
from interp.draw.panel import bar, colour_class
from interp.draw.svg import element

if TYPE_CHECKING:
    from interp.attribution.result import Attribution

_FIRST = ("model_id", "content_hash", "revision", "dtype", "attention")  # of the provenance


def attribution_page(
    found: Sequence[Attribution],
    *,
    title: str = "Attribution",
    command: str | None = None,
    warning: str = "",
    top: int = 10,
) -> str:
    """Make one HTML page with a section per attribution; the same results give the same bytes."""
    sections = [_section(one, top) for one in found]
    return fill("attribution", title, command=command, sections=sections, warning=warning)


token_page = attribution_page


def _section(one: Attribution, top: int) -> dict[str, Any]:
    made: Mapping[str, Any] = {
        **{k: one.provenance[k] for k in _FIRST if k in one.provenance},
        "target": one.target,
        "value": f"{one.value:.6g} {one.provenance.get('unit', '')}",
        "unit of scores": one.unit,
        **{k: v for k, v in one.notes.items() if not isinstance(v, (list, tuple, dict))},
    }
    name = "".join(c if c.isalnum() or c in "-_" else "-" for c in one.method)[:60]
    frame = one.wide().filter(["position", "token", "score"])
    rows = one.largest(top)
    size = max((abs(score) for _, _, score in rows), default=0.0) or 1.0
    signed = scale_of(one).signed
    scale = Scale(-size if signed else 0.0, size, signed)
    return {
        "method": one.method, "about": pair_list(made), "text": spans(one),
        "scale": scale_text(one), "residual": residual_text(one), "incomplete": one.incomplete,
        "top": Table(
            ["position", ("token", "token"), "", "score"],
            [[i, shown(token), bar(score, scale), f"{score:.4g}"] for i, token, score in rows],
            f"Largest {len(rows)}", f"{one.unit}; bars from {scale.low:.3g} to {scale.high:.3g}",
        ),
        "every": fold(f"Every token as a table ({len(one.tokens):,})",
                      data_table(frame, f"attribution-{name}")),
        "made": dict(one.provenance),
    }  # fmt: skip


def spans(one: Attribution) -> Markup:
    """The tokens as coloured spans with their numbers on hover."""
    scale = scale_of(one)
    bins = scale.bins(one.scores)
    return element("p", *(
        element("span", shown(token), title=_told(one, i),
                class_=colour_class(bins[i], scale.signed) + " special" * bool(one.special[i]))
        for i, token in enumerate(one.tokens)
    ), class_="text")  # fmt: skip


def inline(one: Attribution) -> str:
    """The coloured tokens with their colours in place, for a notebook, where no style sheet is."""
    scale = scale_of(one)
    steps = palette(scale.signed, "light")
    out = []
    for i, (token, at) in enumerate(zip(one.tokens, scale.bins(one.scores), strict=True)):
        style = f"background:{steps[at]};color:{ink(steps[at])};padding:.15rem .18rem;"
        style += "border-radius:.2rem;white-space:pre-wrap"
        out.append(element("span", shown(token), title=_told(one, i), style=style))
    heading = f"{one.method} of {one.target} = {one.value:.4g}"
    coloured = element("p", Markup(" ").join(out), style="line-height:2.1")
    said = f"{scale_text(one)} {residual_text(one)}"
    return element("p", heading) + coloured + element("p", said)


def _told(one: Attribution, i: int) -> str:
    return f"{i}: {one.tokens[i]!r} {one.scores[i]:.4g} {one.unit}"


def shown(token: str) -> str:
    """A token that can be seen: line ends and nothing at all are written as signs."""
    return token.replace("\n", "⏎").replace("\t", "⇥") or "∅"


def scale_of(one: Attribution) -> Scale:
    """Colours from zero to the largest score of tokens that are not special, or of all."""
    kept = one.scores[~one.special] if not one.special.all() else one.scores
    size = float(np.abs(kept).max(initial=0.0)) or 1.0
    signed = one.signed and bool((one.scores < 0).any())
    return Scale(-size if signed else 0.0, size, signed)


def scale_text(one: Attribution) -> str:
    """The ends of the colours as a sentence, and how many tokens lie beyond them."""
    scale = scale_of(one)
    every = bool(one.special.all())
    of = "a token" if every or not one.special.any() else "a token that is not special"
    beyond = scale.beyond(one.scores)
    more = f" Special tokens beyond it: {beyond}." if beyond else ""
    if not one.scores.any():
        return "Colours: every score is 0."
    return (
        f"Colours from {scale.low:.3g} to {scale.high:.3g} {one.unit}, the largest score of {of}"
        f"{' either way' if scale.signed else ''}.{more}"
    )


def residual_text(one: Attribution) -> str:
    """The completeness residual as a sentence, also where none is promised, and its flag."""
    if one.residual is None:
        return (
            f"The scores sum to {one.scores.sum():.4g}; this method promises no completeness, "
            "so there is no residual."
        )
    share = f" ({abs(one.residual / one.total):.1%})" if one.total else ""
    return (
        f"Completeness: the scores sum to {one.scores.sum():.6g} of {one.total:.6g}; "
        f"residual {one.residual:.2g}{share}. {one.warning}"
    ).rstrip()
