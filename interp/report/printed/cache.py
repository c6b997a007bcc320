"""Screen output of `interp cache`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from interp.core.result import Result
from interp.core.ties import ordered, ranked
from interp.report.printed.tables import aligned_columns

if TYPE_CHECKING:
    from interp.cache.methods import RetrievalMethods
    from interp.cache.plan_result import CachePlan
    from interp.core.result_rows import ResultRows

SHORT = {
    "trained_gates": "trained",
    "retrieval_gates": "one pass",
    "retrieval": "Wu",
    "qr_retrieval": "QR",
    "razor_induction": "Razor ind.",
    "echo": "Razor echo",
    "evaluator_mass": "EHPC",
    "cache_loss": "cut loss",
    "published": "published",
}
"""Heads of the columns of methods."""


def text_of_cache(name: str, found: Mapping[str, Result], top: int) -> str:
    """Format the results of one model, with at most `top` heads where heads are ranked."""
    parts: dict[str, Any] = dict(found)
    lines: list[str] = [name]
    if "plan" in parts:
        lines += _plan_lines(parts["plan"])
    if "cards" in parts:
        lines += _card_lines(parts["cards"], top)
    if "methods" in parts:
        lines += _method_lines(parts["methods"], top)
    if "sources" in parts:
        lines += _source_lines(parts["sources"])
    return "\n".join([*lines, ""])


def _plan_lines(plan: CachePlan) -> list[str]:
    layers: dict[tuple[str, int], list[str]] = {}
    for row in plan.to_pandas().to_dict("records"):
        layers.setdefault((row["stack"], row["layer"]), []).append(str(row["keeps"]))
    rows = [(f"{stack} {layer}", "  ".join(keeps)) for (stack, layer), keeps in layers.items()]
    return [
        f"  {plan.summary()}",
        "  kept tokens per key-value head (first + last, or all):",
        aligned_columns(rows, "    "),
    ]


def _card_lines(cards: ResultRows, top: int) -> list[str]:
    frame = ranked(cards.to_pandas(), "score")
    metric = str(frame["metric"].iloc[0]) if len(frame) else "loss"
    lines = [
        f"  cards: {metric}, nats per token on {cards.losses.shape[2]} prompts; tokens needed for "
        f"a loss of at most {cards.max_loss:g}"
    ]
    rows: list[tuple[str, ...]] = [("head", "loss", "95 %", "null", "tokens", "95 %", "attention")]
    for row in frame.head(top).to_dict("records"):
        rows.append(
            (
                f"L{row['layer']}KV{row['kv_head']}",
                _number(row["score"], "+.4f"),
                f"{row['low']:+.4f} to {row['high']:+.4f}",
                _number(row["null"], "+.4f"),
                f"{row['budget']:.0f}",
                f"{row['budget_low']:.0f} to {row['budget_high']:.0f}",
                row["keeps"],
            )
        )
    few = sum(x < cards.length for x in frame["budget"].tolist()) / max(len(frame), 1)
    return [
        *lines,
        aligned_columns(rows, "    "),
        f"    {few:.0%} of {len(frame)} key-value heads need fewer than all {cards.length} tokens",
    ]


def _method_lines(methods: RetrievalMethods, top: int) -> list[str]:
    scores = methods.scores()
    means = scores.rank().mean(axis=1)
    order = means.index[ordered(means)]
    rows = [("head", *(SHORT[m] for m in methods.methods))]
    values = dict(zip(scores.index, scores.to_numpy(float).tolist(), strict=True))
    for head in order[:top]:
        rows.append((str(head), *(f"{x:.3f}" for x in values[head])))
    lines = ["  methods side by side, highest mean rank first", aligned_columns(rows, "    ")]
    if len(methods.kv) < 3:
        return [*lines, "    fewer than three key-value heads: no rank agreement"]
    table = methods.agreement()
    rho = {(r["method"], r["other"]): r for r in table.to_dict("records")}
    rows = [("rank agreement", *(SHORT[m] for m in methods.methods[1:]))]
    for at, one in enumerate(methods.methods[:-1]):
        cells = [""] * at
        cells += [
            _number(rho[one, other]["spearman"], "+.2f") for other in methods.methods[at + 1 :]
        ]
        rows.append((SHORT[one], *cells))
    chance = float(table["chance"].iloc[0])
    lines += [aligned_columns(rows, "    "), f"    unrelated rankings stay within +-{chance:.2f}"]
    stable: list[tuple[str, ...]] = [("stability", "over", "rank correlation", "95 %")]
    for row in methods.stability().to_dict("records"):
        within = f"{_number(row['low'], '+.2f')} to {_number(row['high'], '+.2f')}"
        stable.append((SHORT[row["method"]], row["over"], _number(row["spearman"], "+.2f"), within))
    return [*lines, aligned_columns(stable, "    ")]


def _source_lines(found: ResultRows) -> list[str]:
    rows: list[tuple[str, ...]] = [
        ("way", "average precision", "95 %", "random order", "Brier", "calibration error", "heads")
    ]
    for row in found.to_pandas().to_dict("records"):
        rows.append(
            (
                row["metric"],
                f"{row['score']:.3f}",
                f"{row['low']:.3f} to {row['high']:.3f}",
                f"{row['null']:.3f}",
                f"{row['brier']:.3f}",
                f"{row['calibration_error']:.3f}",
                row["heads"],
            )
        )
    lengths = ", ".join(map(str, sorted(set(found.lengths))))
    return [
        f"  source of the answer among segments, {found.per_prompt.shape[1]} held-out prompts of "
        f"{lengths} tokens",
        aligned_columns(rows, "    "),
    ]


def _number(x: float, how: str) -> str:
    return "" if math.isnan(x) else format(x, how)
