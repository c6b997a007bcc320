"""Attributions as coloured text: one page that opens anywhere, offline, without scripts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.draw.colours import BINS, Scale, Theme, palette

if TYPE_CHECKING:
    from interp.attribution.result import Attribution

_BAR = 160  # units wide
_FIRST = ("model_id", "content_hash", "revision", "dtype", "attention")  # of the provenance
_READING = (
    "A token's colour is its score: blue speaks for the number that is explained, orange against"
    " it; methods without signs have one colour. The scale ends at the largest score of the tokens"
    " that are not special; those are set in italics and may lie beyond it. Point at a token for"
    " its number."
)
STYLE = """
.text { line-height: 2.1; max-width: 75ch; white-space: pre-wrap; overflow-wrap: anywhere; }
.text span {
  display: inline-block; max-width: 100%; line-height: 1.4;
  padding: .1rem .18rem; margin: 0 .06rem; border-radius: .2rem;
}
.stored pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: 12px; }
.text .special { font-style: italic; outline: 1px dotted var(--soft); }
.warning { border-left: .3rem solid #c4661c; padding: .3rem .8rem; max-width: 75ch; }
svg.bars { display: block; width: 162px; height: 14px; }
td.token, th.token { text-align: left; font-family: ui-monospace, monospace; }
td.token { white-space: pre-wrap; overflow-wrap: break-word; min-width: 6rem; max-width: 24rem; }
"""


def render(
    found: Sequence[Attribution],
    *,
    title: str = "Attribution",
    command: str | None = None,
    warning: str = "",
    top: int = 10,
) -> str:
    """One HTML page with a section per attribution; the same results give the same bytes."""
    parts = [f"<p>{_READING}</p></header>\n<main>"]
    if warning:
        parts.append(f'<p class="warning" role="note">{escape(warning)}</p>')
    for one in found:
        parts.append(_section(one, top))
    return page(title, "\n".join(parts) + "</main>", command=command, style=STYLE + colours())


def page(title: str, body: str, *, command: str | None = None, style: str = "") -> str:
    """A whole page around `body`, which closes the header and brings its own main."""
    from interp.report import _hash, _style

    style = _style() + style
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            # Tokens are text of strangers: nothing is fetched and nothing runs, whatever they say.
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\';'
            f" style-src '{_hash(style)}'\">",
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>",
            f"<header><h1>{escape(title)}</h1>",
            f"<p>Command: <code>{escape(command)}</code></p>" if command else "",
            body,
            "</body>\n</html>\n",
        ]
    )


def spans(one: Attribution) -> str:
    """The tokens as coloured, escaped spans with their numbers on hover."""
    scale = scale_of(one)
    letter = "d" if scale.signed else "q"
    out = []
    bins = scale.bins(one.scores)
    for i, (token, score) in enumerate(zip(one.tokens, one.scores, strict=True)):
        special = " special" if one.special[i] else ""
        hover = f"{i}: {token!r} {score:.4g} {one.unit}"
        out.append(
            f'<span class="{letter}b{bins[i]}{special}" title="{escape(hover)}">'
            f"{escape(shown(token))}</span>"
        )
    return f'<p class="text">{"".join(out)}</p>'


def inline(one: Attribution) -> str:
    """The coloured tokens with their colours in place, for a notebook, where no style sheet is."""
    scale = scale_of(one)
    steps = palette(scale.signed, "light")
    out = []
    for i, (token, at) in enumerate(zip(one.tokens, scale.bins(one.scores), strict=True)):
        ink = "#fff" if _luminance(steps[at]) < 0.22 else "#111"
        hover = f"{i}: {token!r} {one.scores[i]:.4g} {one.unit}"
        out.append(
            f'<span title="{escape(hover)}" style="background:{steps[at]};color:{ink};'
            'padding:.15rem .18rem;border-radius:.2rem;white-space:pre-wrap">'
            f"{escape(shown(token))}</span>"
        )
    heading = f"{one.method} of {one.target} = {one.value:.4g}"
    return (
        f'<p>{escape(heading)}</p><p style="line-height:2.1">{" ".join(out)}</p>'
        f"<p>{escape(scale_text(one))} {escape(residual_text(one))}</p>"
    )


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


def colours() -> str:
    """Backgrounds of the palette's colours with an ink that can be read on each, both themes."""
    rules: dict[Theme, list[str]] = {"light": [], "dark": []}
    for theme, lines in rules.items():
        for letter, signed in (("q", False), ("d", True)):
            for at, colour in zip(range(BINS), palette(signed, theme), strict=True):
                ink = "#fff" if _luminance(colour) < 0.22 else "#111"
                lines.append(f".{letter}b{at}{{background:{colour};color:{ink}}}")
    dark = f"@media screen and (prefers-color-scheme:dark){{{''.join(rules['dark'])}}}"
    return f"{''.join(rules['light'])}\n{dark}\n"


def _luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2), 0 to 1."""
    srgb = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in srgb)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _section(one: Attribution, top: int) -> str:
    made: Mapping[str, Any] = {
        **{k: one.provenance[k] for k in _FIRST if k in one.provenance},
        "target": one.target,
        "value": f"{one.value:.6g} {one.provenance.get('unit', '')}",
        "unit of scores": one.unit,
        **{k: v for k, v in one.notes.items() if not isinstance(v, (list, tuple, dict))},
    }
    about = "".join(
        f"<div><dt>{escape(str(k))}</dt><dd>{escape(told(v))}</dd></div>" for k, v in made.items()
    )
    made_by = escape(json.dumps(dict(one.provenance), indent=1, ensure_ascii=False, default=str))
    return (
        f"<section><h2>{escape(one.method)}</h2><dl>{about}</dl>{spans(one)}"
        f'<p class="note">{escape(scale_text(one))}</p>'
        f"{_residual(one)}{_top(one, top)}"
        f"<details><summary>Every token as a table ({len(one.tokens):,})</summary>{_every(one)}"
        '</details><details class="stored"><summary>How it was made</summary>'
        f"<pre>{made_by}</pre></details></section>"
    )


def _residual(one: Attribution) -> str:
    flag = ' class="warning" role="note"' if one.incomplete else ""
    return f"<p{flag}>{escape(residual_text(one))}</p>"


def _every(one: Attribution) -> str:
    from interp.draw.page import data_table

    frame = one.to_pandas().filter(["position", "token", "score"])
    name = "".join(c if c.isalnum() or c in "-_" else "-" for c in one.method)[:60]
    return data_table(frame, f"attribution-{name}")


def told(value: Any) -> str:
    """A setting for people: four digits, and a word where there is none."""
    if value is None:
        return "none"
    return f"{value:.4g}" if isinstance(value, float) and math.isfinite(value) else str(value)


def _top(one: Attribution, k: int) -> str:
    rows = one.top(k)
    scale = scale_of(one)
    size = max((abs(score) for _, _, score in rows), default=0.0) or 1.0
    body = "".join(
        f'<tr><th scope="row">{i}</th><td class="token">{escape(shown(token))}</td>'
        f"<td>{bar(score, size, scale.signed)}</td><td>{score:.4g}</td></tr>"
        for i, token, score in rows
    )
    return (
        f'<div class="scroll" tabindex="0"><table><caption>Largest {len(rows)} '
        f'<span class="unit">{escape(one.unit)}; bars from {-size if scale.signed else 0:.3g} to'
        f" {size:.3g}</span></caption>"
        '<thead><tr><th scope="col">position</th><th scope="col" class="token">token</th>'
        '<th scope="col" aria-label="bar"></th><th scope="col">score</th></tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def bar(value: float, size: float, signed: bool, sem: float = math.nan) -> str:
    """A bar from zero, with one standard error either way where there is one."""

    def x(v: float) -> float:
        part = (v / size + 1) / 2 if signed else v / size
        return round(_BAR * min(max(part, 0.0), 1.0), 1)

    left, right = sorted((x(0.0), x(value)))
    colour = ("d26" if value >= 0 else "d6") if signed else "q18"
    out = f'<rect x="{left:g}" y="3" width="{right - left:g}" height="8" class="{colour}"/>'
    if math.isfinite(sem):
        low, high = x(value - sem), x(value + sem)
        out += f'<path class="error" d="M{low:g} 7H{high:g}M{low:g} 4v6M{high:g} 4v6"/>'
    return f'<svg class="bars" viewBox="-1 0 {_BAR + 2} 14" aria-hidden="true">{out}</svg>'
