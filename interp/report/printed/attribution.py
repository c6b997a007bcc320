"""Attributions, their faithfulness, and measures of token importance as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from interp.core.tokens import shown

if TYPE_CHECKING:
    import pandas as pd

    from interp.attribution.evaluation.result import Faithfulness
    from interp.attribution.result import Attribution


def attribution_text(results: Sequence[Attribution], *, top: int = 5) -> str:
    """Format attributions; tokens are coloured where standard output is a terminal.

    Args:
        results: the attributions.
        top: number of largest scores to print.
    """
    return "\n".join(_one(result, top) for result in results)


def _one(one: Attribution, top: int) -> str:
    """Format the target, the coloured tokens, the largest scores, and the residual."""
    from rich.console import Console
    from rich.text import Text

    from interp.core.tokens import coloured, shown, visible
    from interp.draw.colours import palette
    from interp.report.tokens import scale_of

    text = one.provenance.get("prompt")
    lines = [f"text: {shown(str(text))}"] if text else []
    console = Console(highlight=False, soft_wrap=True)
    scale = scale_of(one)
    colours = palette(scale.signed, "light")
    unit = one.provenance.get("unit", "")
    lines.append(visible(f"{one.method}: {one.target} = {one.value:.4g} {unit}").rstrip())
    line = Text("  ")
    for token, at, special in zip(one.tokens, scale.bins(one.scores), one.special, strict=True):
        dark = abs(at - (16 if scale.signed else 0)) > (9 if scale.signed else 18)
        ink = "white" if dark else "black"
        line.append(shown(token), style=f"{'italic ' if special else ''}{ink} on {colours[at]}")
        line.append(" ")
    with console.capture() as drawn:
        console.print(line)
    lines.append(coloured(drawn.get().removesuffix("\n")))
    for i, token, score in one.largest(top):
        lines.append(f"  {i:>4}  {score:>+11.4g}  {shown(token)}")
    for key, value in one.notes.items():
        if isinstance(value, (str, int, float)):
            lines.append(f"  {key}: {f'{value:.4g}' if isinstance(value, float) else value}")
    return "\n".join([*lines, f"  {one.completeness}", ""])


PRINTED = ("spearman", "aopc", "aopc_signed", "soft_comprehensiveness", "soft_sufficiency")


def faithfulness_text(results: Sequence[Faithfulness]) -> str:
    """Format the measures that are printed."""
    return "\n".join(measure_table(result, name) for result in results for name in PRINTED)


def measure_table(found: Faithfulness, measure: str) -> str:
    """Format one measure: methods, the best first, with the methods that each beats."""
    rows = [r for r in found.summary(measure) if r[3]]
    what, more = found.measures[measure]
    lines = [f"{measure}: {what}{'' if more else ' (lower is better)'}; {len(found.texts)} texts"]
    if not rows:
        return f"{lines[0]}\n  not measured\n"
    beats, limit = found.better_than(measure), found.limit(measure)
    width = max(len(r[0]) for r in rows)
    for method, mean, sem, n in rows:
        left_out = "" if n == len(found.texts) else f" ({n} texts)"
        error = "" if math.isnan(sem) else f" ± {sem:.3f}"
        beaten = beats[method]
        text = "all others" if len(beaten) == len(rows) - 1 > 0 else ", ".join(beaten) or "none"
        text = f"  beats {text}" if limit.can_show else ""
        lines.append(f"  {method:<{width}}  {mean:>7.3f}{error}{left_out}{text}")
    if not limit.can_show and limit.pairs:
        lines.append(f"  {limit}")
    return "\n".join([*lines, ""])


LEVEL = 0.05


def judged_text(found: Faithfulness, how: str) -> str:
    """Format the faithfulness of each measure, the best first, with a letter for each."""
    from interp.core.statistics import least_sign_flip_p

    frame: Any = found.interval()
    frame = frame[frame["metric"] == "spearman"]
    against = found.against_random()
    enough = len(against) * least_sign_flip_p(len(found.texts)) < LEVEL
    letters = _letters(found.methods)
    width = max(map(len, found.methods))
    lines = [
        f"faithfulness: rank correlation with the effect (how={how}), {len(found.texts)} text(s)"
    ]
    for row in frame.to_dict("records"):
        method, mean = str(row["method"]), float(row["score"])
        ends = f" [{row['low']:+.2f}, {row['high']:+.2f}]" if not math.isnan(row["low"]) else ""
        p = against.get(method)
        says = "random order" if method == "random_scores" else ""
        says = "the effect itself" if method.startswith("occlusion") else says
        if not says and p is not None and enough:
            says = f"p {p:.2g} against random"
        fewer = f" ({row['n']} texts)" if row["n"] != len(found.texts) else ""
        mark = letters.get(method, " ")
        lines.append(f"  {mark} {method:<{width}}  {mean:+.3f}{ends}{fewer}  {says}".rstrip())
    if len(found.texts) > 1 and not enough:
        lines.append("  too few texts for a significant difference from random order")
    lost = [m for m in found.methods if m not in set(frame["method"])]
    lines += [f"  {letters.get(m, ' ')} {m:<{width}}  not measured" for m in lost]
    return "\n".join([*lines, ""])


def ranks_text(frame: pd.DataFrame, text: str) -> str:
    """Format the rank of each token by each measure; 1 is the most important."""
    measures = [c for c in frame.columns if c not in ("position", "token", "special", "effect")]
    letters = _letters(measures)
    real: Any = frame[~frame["special"]]
    ranks: Any = real[[*measures, "effect"]].abs().rank(ascending=False, method="min")
    width = max([len("token"), *(len(shown(t)) for t in real["token"])])
    head = "".join(f"{letters[m]:>5}" for m in measures)
    lines = [f"rank of each token, 1 is the most important: {text[:60]}"]
    lines.append(f"  {'':>4}  {'token':<{width}}{head}     effect (rank)")
    for at, row in ranks.iterrows():
        cells = "".join(f"{'-' if math.isnan(row[m]) else int(row[m]):>5}" for m in measures)
        place, token, effect = real.loc[at, ["position", "token", "effect"]]
        end = f"{effect:>+12.3g} ({int(row['effect'])})"
        lines.append(f"  {place:>4}  {shown(token):<{width}}{cells}{end}")
    return "\n".join([*lines, ""])


def _letters(methods: list[str]) -> dict[str, str]:
    """Return a letter for each measure that is not a baseline."""
    named = [m for m in methods if m not in ("random_scores", "input_norm")]
    named = [m for m in named if not m.startswith("occlusion")]
    return {m: chr(ord("a") + i % 26) * (1 + i // 26) for i, m in enumerate(named)} | {
        m: "-" for m in methods if m not in named
    }
