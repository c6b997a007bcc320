"""Alignments as text: words of translations, translation heads, times of spoken words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from interp.core.ties import ranked
from interp.report.printed.tables import aligned_table

if TYPE_CHECKING:
    from interp.alignment.result import HeadAlignments
    from interp.core.result_rows import ResultRows


def alignments_text(found: HeadAlignments, top: int) -> str:
    """Format the heads whose attention aligns words best."""
    table = [
        (
            "head",
            "row",
            "error",
            "95 % interval",
            "null",
            "p (Holm)",
            "precision",
            "recall",
            "coverage",
            "forward",
            "best",
        )
    ]
    for r in found.top(top).to_pandas().to_dict("records"):
        table.append(
            (
                f"L{r['layer']}H{r['head']}",
                r["rows"],
                f"{r['score']:.3f}",
                f"{r['low']:.3f} to {r['high']:.3f}",
                f"{r['null']:.3f}",
                f"{r['p_holm']:.2g}",
                f"{r['precision']:.3f}",
                f"{r['recall']:.3f}",
                f"{r['coverage']:.3f}",
                f"{r['monotonicity']:.3f}",
                "of layer" if r["best_of_layer"] else "",
            )
        )
    about = (
        f"alignment error rate (share of links), interval over {found.counts.shape[1]} judged "
        "pairs; coverage: share of source words with a link; forward: share of neighbouring target "
        "words that do not go back"
    )
    return f"{found}\n  {about}\n{aligned_table(table)}"


def translation_heads_text(found: ResultRows, top: int) -> str:
    """Format the heads whose ablation raises the loss most."""
    from interp.alignment import rank_agreement

    table = [("head", "loss without it", "error", "null", "confidence", "position variance")]
    for r in found.top(top).to_pandas().to_dict("records"):
        table.append(
            (
                f"{r['stack']}.L{r['layer']}H{r['head']}",
                f"{r['score']:+.3g}",
                f"{r['sem']:.2g}",
                f"{r['null']:+.3g}",
                f"{r['confidence']:.3f}",
                f"{r['position_variance']:.3f}",
            )
        )
    ranks = [("heads", "statistic", "Spearman with the loss", "95 % interval")]
    for r in rank_agreement(found).to_dict("records"):
        ranks.append(
            (
                f"{r['stack']} ({r['heads']})",
                r["statistic"],
                f"{r['spearman']:+.2f}",
                f"{r['low']:+.2f} to {r['high']:+.2f}",
            )
        )
    about = (
        f"rise of the loss in nats per target token without the head, standard error over "
        f"{found.per_prompt.shape[1]} pairs, null: random weights; confidence: mean largest "
        "weight; position variance in squared tokens"
    )
    ranked = "Spearman's correlation over heads, interval over pairs; 0 without a relation"
    return f"{found}\n  {about}\n{aligned_table(table)}\n  {ranked}\n{aligned_table(ranks)}"


def simultaneous_text(found: ResultRows) -> str:
    """Format quality and latency of simultaneous translation."""
    table = [("policy", "value", "right", "error", "AL", "LAAL", "AP", "DAL")]
    for r in found.to_pandas().to_dict("records"):
        value = "" if math.isnan(r["value"]) else f"{r['value']:g}"
        table.append(
            (
                r["policy"],
                value,
                f"{r['score']:.3f}",
                f"{r['sem']:.2g}",
                f"{r['lagging']:.2f}",
                f"{r['adaptive_lagging']:.2f}",
                f"{r['proportion']:.2f}",
                f"{r['differentiable_lagging']:.2f}",
            )
        )
    about = (
        f"right: share of the reference's tokens written at their place, mean over "
        f"{found.per_prompt.shape[1]} pairs; latencies in source words, AP as a share of them"
    )
    return f"Simultaneous translation\n  {about}\n{aligned_table(table)}"


def errors_text(found: ResultRows, top: int) -> str:
    """Format the errors of the heads with the lowest ones, and of all sets of heads."""
    frame: Any = ranked(found.to_pandas(), "score", lowest=True)
    frame = frame[frame["layer"].isna() | frame.index.isin(frame.index[:top])]
    table = [("heads", "error", "95 % interval", "rows in random order", "p", "p (Holm)")]
    for r in frame.to_dict("records"):
        ends = "none" if math.isnan(r["low"]) else f"{r['low']:.3f} to {r['high']:.3f}"
        table.append(
            (
                r["heads_read"],
                f"{r['score']:.3f}",
                ends,
                f"{r['null']:.3f}",
                f"{r['p']:.2g}",
                f"{r['p_holm']:.2g}",
            )
        )
    lines = [
        f"mean distance of word starts to the gold times in seconds, "
        f"{len(found.judged)} judged recordings",
        aligned_table(table),
        f"  evenly spaced words: {found.evenly_spaced:.3f}",
    ]
    lines += [
        f"  {name}: {', '.join(map(str, heads))}"
        for name, heads in zip(found.columns["heads_read"], found.of, strict=True)
        if name.endswith("together")
    ]
    return "\n".join(lines)


def words_text(found: ResultRows, top: int) -> str:
    """Format the words of the first recording with their times in seconds."""
    frame: Any = found.to_pandas()
    mine = frame[found.of_recording == 0]
    several = len(found.of) > 1
    known = bool(mine["gold"].notna().any())
    columns = [
        ("word", "word"),
        ("start", "score"),
        *[("error", "sem")] * several,
        ("end", "end"),
        ("evenly spaced", "null"),
        *[("gold start", "gold")] * known,
    ]
    table = [tuple(name for name, _ in columns)]
    for r in mine.head(top).to_dict("records"):
        cells = (r[key] for _, key in columns)
        table.append(tuple(x if isinstance(x, str) else _seconds(x) for x in cells))
    number, shown = len(found.recordings), min(top, len(mine))
    more = f", the first {shown} of {len(mine)} words" if shown < len(mine) else ""
    others = f" (the first of {number} recordings)" if number > 1 else ""
    error = "; error: jackknife over the heads" if several else ""
    return (
        f"words of {found.recordings[0]}{others} in seconds, by "
        f"{', '.join(map(str, found.of))}{more}{error}\n{aligned_table(table)}"
    )


def _seconds(value: float) -> str:
    return "unknown" if math.isnan(value) else f"{value:.2f}"
