"""Attributions as coloured text, on a page without scripts and in a notebook, and their files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from interp.bundled import attention_warning
from interp.core.csv_rows import csv_text
from interp.core.files import write_atomically
from interp.core.json_document import json_document
from interp.core.registry import ATTRIBUTION_METHODS
from interp.core.tokens import shown
from interp.draw.colours import Scale, ink, palette
from interp.draw.page import data_table, fold, page, pair_list, stored, table
from interp.draw.panel import bar, colour_class
from interp.draw.svg import element

if TYPE_CHECKING:
    import pandas as pd

    from interp.attribution.declaration import BoundMethod
    from interp.attribution.evaluation.result import Faithfulness
    from interp.attribution.result import Attribution

_ABOUT = (
    "The colour of a token is its score: blue increases the explained number, orange decreases "
    "it; methods without signs have one colour. The scale ends at the largest score of the "
    "tokens that are not special; special tokens are set in italics and may exceed it. Point at "
    "a token for its score."
)
_FIRST = ("model_id", "content_hash", "revision", "dtype", "attention")  # of the provenance


def attribution_page(
    found: Sequence[Attribution],
    *,
    title: str = "Attribution",
    command: str | None = None,
    warning: str = "",
    top: int = 10,
) -> str:
    """Return one HTML page with a section per attribution; equal results give equal bytes."""
    parts = [(one.method, *_contents(one, top)) for one in found]
    warnings = [warning] if warning else []
    if any(_reads_attention(one) for one in found):
        warnings.append(attention_warning())
    values = {
        "command": command,
        "about": _ABOUT,
        "warnings": warnings,
        "heading": _first_line(found),
    }
    return page(title, None, parts, None, **values).decode()


def page_of(one: Attribution, *, title: str | None = None) -> str:
    """Return the page of one attribution."""
    return attribution_page([one], title=title or "Attribution")


def _first_line(found: Sequence[Attribution]) -> str:
    """Return the answer: the largest tokens, or the largest of each of several attributions."""
    if len(found) == 1:
        return found[0].first_line()
    largest = [
        f"{shown(token)} {score:.3g} {one.unit} by {one.method}"
        for one in found
        for _, token, score in one.largest(1)
    ]
    return f"Largest token for {found[0].target}: {', '.join(largest)}" if largest else ""


def _reads_attention(one: Attribution) -> bool:
    name = str(one.provenance.get("method", ""))  # a user's own method is not registered
    known = name in ATTRIBUTION_METHODS
    return known and ATTRIBUTION_METHODS[name].about["needs"] == "patterns"


def _contents(one: Attribution, top: int) -> list[Markup]:
    about: Mapping[str, Any] = {
        **{k: one.provenance[k] for k in _FIRST if k in one.provenance},
        "target": one.target,
        "value": f"{one.value:.6g} {one.provenance.get('unit', '')}",
        "unit of scores": one.unit,
        **{k: v for k, v in one.notes.items() if not isinstance(v, (list, tuple, dict))},
    }
    name = "".join(c if c.isalnum() or c in "-_" else "-" for c in one.method)[:60]
    frame, largest = one.wide().filter(["position", "token", "score"]), one.largest(top)
    size = max((abs(score) for _, _, score in largest), default=0.0)
    scale = Scale.around(size, signed=scale_of(one).signed)
    lines = [[i, shown(token), bar(score, scale), f"{score:.4g}"] for i, token, score in largest]
    unit = f"{one.unit}; bars from {scale.low:.3g} to {scale.high:.3g}"
    columns = ["position", ("token", "token"), "", "score"]
    flag = {"class_": "warning", "role": "note"} if one.incomplete else {}
    text = str(one.provenance.get("prompt", ""))
    return [
        *([element("p", text, class_="prompt")] if text else []),
        pair_list(about),
        spans(one),
        element("p", scale_text(one), class_="note"),
        element("p", one.completeness, **flag),
        table(columns, lines, f"Largest {len(lines)}", unit),
        fold(
            f"Every token as a table ({len(one.tokens):,})",
            data_table(frame, f"attribution-{name}"),
        ),
        stored(dict(one.provenance)),
    ]


def spans(one: Attribution) -> Markup:
    """Return the tokens as coloured spans with their scores as titles."""
    scale = scale_of(one)
    bins = scale.bins(one.scores)
    return element(
        "p",
        *(
            element(
                "span",
                shown(token),
                title=_summary_of(one, i),
                class_=colour_class(bins[i], scale.signed) + " special" * bool(one.special[i]),
            )
            for i, token in enumerate(one.tokens)
        ),
        class_="text",
    )


def inline(one: Attribution) -> str:
    """Return the tokens with their colours as attributes, for a notebook without a style sheet."""
    scale, out = scale_of(one), []
    steps = palette(scale.signed, "light")
    for i, (token, at) in enumerate(zip(one.tokens, scale.bins(one.scores), strict=True)):
        style = f"background:{steps[at]};color:{ink(steps[at])};padding:.15rem .18rem;"
        style += "border-radius:.2rem;white-space:pre-wrap"
        out.append(element("span", shown(token), title=_summary_of(one, i), style=style))
    heading = element("p", f"{one.method} of {one.target} = {one.value:.4g}")
    legend = element("p", f"{scale_text(one)} {one.completeness}")
    return heading + element("p", Markup(" ").join(out), style="line-height:2.1") + legend


def _summary_of(one: Attribution, i: int) -> str:
    return f"{i}: {one.tokens[i]!r} {one.scores[i]:.4g} {one.unit}"


def scale_of(one: Attribution) -> Scale:
    """Return a scale up to the largest score of the tokens that are not special, or of all."""
    scores = one.scores[~one.special] if not one.special.all() else one.scores
    signed = one.signed and bool((one.scores < 0).any())
    return Scale.around(np.abs(scores).max(initial=0.0), signed=signed)


def scale_text(one: Attribution) -> str:
    """Return a sentence with the ends of the colours and the number of tokens beyond them."""
    if not one.scores.any():
        return "Colours: every score is 0."
    scale = scale_of(one)
    kind = " that is not special" if one.special.any() and not one.special.all() else ""
    beyond = scale.beyond(one.scores)
    more = f" Special tokens beyond it: {beyond}." if beyond else ""
    return (
        f"Colours from {scale.low:.3g} to {scale.high:.3g} {one.unit}, the largest score of a token"
        f"{kind}{' either way' if scale.signed else ''}.{more}"
    )


def write_attributions(
    found: Sequence[Attribution],
    out: Mapping[str, Path],
    *,
    title: str,
    command: str,
    warning: str,
) -> None:
    """Write the requested files, each atomically."""
    import pandas as pd

    if html := out.get(".html"):
        text = attribution_page(found, title=title, command=command, warning=warning)
        write_atomically(html, text.encode())
    if json_file := out.get(".json"):
        whole: dict[str, Any] = {"warning": warning, "attributions": [f.to_dict() for f in found]}
        write_atomically(json_file, json_document(whole, 1, str))
    if csv := out.get(".csv"):
        frames = [f.wide().assign(text=f.provenance.get("text", 0)) for f in found]
        write_atomically(csv, csv_text(pd.concat(frames)).encode())


def standing_warning(chosen: Sequence[BoundMethod]) -> str:
    """Return the warning from `bundled:deceive` about the chosen pattern-based methods."""
    from interp.attribution.evaluation.deceived import deceived

    reading = [c for c in chosen if c.method.needs == "patterns"]
    return deceived(reading, 8).warning if reading else ""


def write_tables(found: Faithfulness, frame: pd.DataFrame, out: Mapping[str, Path]) -> None:
    """Write the tokens of a text and the judgement of the methods, each atomically."""
    if csv := out.get(".csv"):
        write_atomically(csv, csv_text(frame).encode())
    if json_file := out.get(".json"):
        rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
        whole = {"tokens": rows, "against_random": found.against_random(), **found.to_dict()}
        write_atomically(json_file, json_document(whole, 1, str))
