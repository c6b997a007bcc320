"""Measures of token importance as text: how faithful each is, and its ranks of a text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from interp.core.tokens import shown

if TYPE_CHECKING:
    import pandas as pd

    from interp.attribution.evaluation.result import Faithfulness

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
