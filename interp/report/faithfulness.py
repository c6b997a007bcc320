"""The page of a faithfulness run: the warning first, then what is better than what."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Any

from interp.report.tokens import STYLE, bar, page, told

if TYPE_CHECKING:
    from interp.attribution.evaluation.result import Faithfulness

_READING = (
    "Every measure takes tokens away and looks at the target, one text being one observation;"
    " means are over texts, ± is their standard error. “Better than” lists what a method beats in a"
    " paired permutation test over the texts, corrected for all pairs of the table (Holm, 5 %)."
    " Differences that are not listed are not told from chance. Where there are too few texts for"
    " any difference to pass the test, the table says so and lists none."
)


def render(
    found: Faithfulness, *, title: str = "Faithfulness of attributions", command: str | None = None
) -> str:
    """One HTML page, offline and without scripts; the same result gives the same bytes."""
    parts = [f"<p>{_READING}</p></header>\n<main>"]
    if found.warning:
        parts.append(f'<p class="warning" role="note">{escape(found.warning)}</p>')
    if found.incomplete_warning:
        parts.append(f'<p class="warning" role="note">{escape(found.incomplete_warning)}</p>')
    made = dict(found.provenance)
    targets = dict.fromkeys(made.pop("targets", []))
    versions = made.pop("versions", {})
    made |= versions if isinstance(versions, dict) else {}
    parts.append(f"<h2>{escape(str(made.pop('model_id', '')))}</h2><dl>")
    parts += [f"<div><dt>{escape(k)}</dt><dd>{escape(told(v))}</dd></div>" for k, v in made.items()]
    some = ", ".join(list(targets)[:3])
    more = f" and {len(targets) - 3} more" if len(targets) > 3 else ""
    parts.append(f"<div><dt>targets</dt><dd>{escape(some + more)}</dd></div></dl>")
    for measure, (what, better) in found.measures.items():
        parts.append(_table(found, measure, what, better))
    parts.append(_failures(found) + _deceived(found))
    return page(title, "\n".join(parts) + "</main>", command=command, style=STYLE)


def _table(found: Faithfulness, measure: str, what: str, better: bool) -> str:
    rows = [r for r in found.summary(measure) if r[3]]
    if not rows:
        return ""
    beats, limit = found.better_than(measure), found.limit(measure)
    size = max(abs(mean) + (0 if math.isnan(sem) else sem) for _, mean, sem, _ in rows) or 1.0
    signed = any(mean < 0 for _, mean, _, _ in rows)

    def told_beaten(method: str) -> str:
        return _beaten(beats[method], len(rows)) if limit.can_show else "not testable"

    body = "".join(
        f'<tr><th scope="row">{escape(method)}</th><td class="wide">{bar(mean, size, signed, sem)}'
        f"</td><td>{mean:.3f}{'' if math.isnan(sem) else f' ± {sem:.3f}'}</td><td>{n}</td>"
        f'<td class="token">{told_beaten(method)}</td></tr>'
        for method, mean, sem, n in rows
    )
    lower = "" if better else "; lower is better"
    lower += f"; bars from {-size if signed else 0:.3g} to {size:.3g}"
    return (
        f'<h3>{escape(measure)}</h3><div class="scroll"><table><caption>{escape(what)}{lower}'
        '</caption><thead><tr><th scope="col">method</th><th scope="col" class="wide"></th>'
        '<th scope="col">mean</th><th scope="col">texts</th>'
        f'<th scope="col" class="token">better than</th></tr></thead><tbody>{body}</tbody></table>'
        f"</div>{f'<p>{escape(str(limit))}.</p>' if str(limit) else ''}"
    )


def _beaten(names: list[str], of: int) -> str:
    if len(names) > 4:
        return f"<details><summary>{len(names)} of {of - 1}</summary>{_lines(names)}</details>"
    return _lines(names) or "none"


def _lines(names: list[str]) -> str:
    return "<br>".join(map(escape, names))


def _failures(found: Faithfulness) -> str:
    if not found.failures:
        return "<p>No method failed on any text.</p>"
    items = "".join(
        f"<li>{escape(method)} on text {text + 1}: {escape(error)}</li>"
        for method, text, error in found.failures
    )
    return f"<h3>Failures</h3><ul>{items}</ul>"


def _deceived(found: Faithfulness) -> str:
    if not found.warned:
        return ""
    rows: list[Any] = sorted(found.warned, key=lambda d: (math.isnan(d.rank), d.rank))
    body = "".join(
        f'<tr><th scope="row">{escape(d.method)}</th><td>{escape(d.needs)}</td>'
        + (
            f'<td colspan="2">{escape(d.error)}</td></tr>'
            if d.error
            else f"<td>{d.rank:.2f} ± {d.sem:.2f}</td><td>{d.first:.0%}</td></tr>"
        )
        for d in rows
    )
    return (
        '<h3>Can it be deceived?</h3><div class="scroll" tabindex="0"><table>'
        "<caption>Mean rank of the word that decides in "
        f"bundled:deceive, {rows[0].n} sentences; chance is {rows[0].chance:.1f}</caption><thead>"
        '<tr><th scope="col">method</th><th scope="col">needs</th><th scope="col">rank</th>'
        f'<th scope="col">first</th></tr></thead><tbody>{body}</tbody></table></div>'
    )


def svg(found: Faithfulness, measure: str) -> str:
    """One measure as a picture of its own: bars in order, with one standard error either way."""
    rows = [r for r in found.summary(measure) if r[3]]
    what, better = found.measures[measure]
    ends = [(mean - sem, mean + sem) for _, mean, sem, _ in rows if math.isfinite(sem)]
    low = min([0.0, *(a for a, _ in ends), *(m for _, m, _, _ in rows)])
    high = max([0.0, *(b for _, b in ends), *(m for _, m, _, _ in rows)])
    left, width, step = 190, 420, 20

    def x(value: float) -> float:
        return round(left + width * (value - low) / ((high - low) or 1.0), 1)

    size = 40 + step * len(rows)
    title = f"{measure}: {what}{'' if better else ' (lower is better)'}; {len(found.texts)} texts"
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 690 {size}" width="690" '
        f'height="{size}" font-family="system-ui, sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="690" height="{size}" fill="#ffffff"/>',
        f'<text x="10" y="18" font-weight="600" fill="#1b1f23">{escape(title)}</text>',
    ]
    for at, (method, mean, sem, _) in enumerate(rows):
        y = 32 + step * at
        a, b = sorted((x(0.0), x(mean)))
        out.append(f'<text x="{left - 8}" y="{y + 11}" text-anchor="end">{escape(method)}</text>')
        out.append(f'<rect x="{a}" y="{y}" width="{round(b - a, 1)}" height="13" fill="#2b7bba"/>')
        if math.isfinite(sem):
            path = f"M{x(mean - sem)} {y + 6.5}H{x(mean + sem)}"
            out.append(f'<path d="{path}" stroke="#06264f" stroke-width="1.5"/>')
        out.append(f'<text x="{left + width + 14}" y="{y + 11}" fill="#5b6570">{mean:.3f}</text>')
    return "\n".join([*out, "</svg>", ""])
