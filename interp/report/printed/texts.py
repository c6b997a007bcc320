"""Results on texts: anchors, sources of answers, graphs of attention, influence of heads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from interp.core.ties import ranked
from interp.report.printed.tables import aligned_columns

if TYPE_CHECKING:
    from interp.causal.influence.result import TextScores
    from interp.core.result_rows import ResultRows
    from interp.text.chains.anchors_result import Anchors
    from interp.text.graphs.graph import AttentionGraph
    from interp.text.graphs.inputs import GraphInput

SHOWN = 10  # texts of an influence


def receivers_text(heads: ResultRows, top: int) -> str:
    """Format the heads that attend to few sentences."""
    rows = [("head", "kurtosis", "shuffled tokens", "attention per token")]
    for r in heads.top(top).to_pandas().to_dict("records"):
        rows.append(
            (
                f"L{r['layer']}H{r['head']}",
                f"{r['score']:.2f}",
                f"{r['null']:.2f}",
                f"{r['far_attention']:.2g}",
            )
        )
    return aligned_columns(rows)


def anchors_text(results: Sequence[Anchors], *, top: int = 5) -> str:
    """Format the sentences with the largest scores, and the agreement of measures.

    Args:
        results: the anchors.
        top: number of heads and of sentences to print.
    """
    import numpy as np

    [anchors], lines = results, []
    for measure in anchors.measures:
        rows = [("text", "sentence", "score", "average", "")]
        part = anchors[measure].to_pandas()
        part = ranked(part.dropna(subset="score"), "score").head(top)
        for r in part.to_dict("records"):
            words = " ".join(r["text"].split())
            rows.append(
                (
                    r["chain"],
                    str(r["sentence"]),
                    f"{r['score']:.3g}",
                    f"{r['null']:.3g}",
                    words[:60] + "..." * (len(words) > 60),
                )
            )
        lines.append(f"\n{measure} ({part['unit'].iloc[0] if len(part) else 'no sentence'}):")
        lines.append(aligned_columns(rows))
    if len(anchors.measures) > 1:
        rows = [("measure", "other", "Spearman", "95 % interval", "p")]
        for r in anchors.agreement().to_dict("records"):
            if np.isfinite(r["spearman"]):
                interval = f"{r['low']:.2f} to {r['high']:.2f}"
                rows.append(
                    (r["measure"], r["other"], f"{r['spearman']:.2f}", interval, f"{r['p']:.3f}")
                )
        lines.append(f"\nAgreement over sentences:\n{aligned_columns(rows)}")
    return "\n".join(lines)


def judgement_text(judged: ResultRows) -> str:
    """Format how often each way finds the known sources."""
    rows = [
        (
            "way",
            "precision",
            "95 % interval",
            "random order",
            "calibration error",
            "Brier",
            "of base rate",
        )
    ]
    for r in judged.to_pandas().to_dict("records"):
        rows.append(
            (
                r["metric"],
                f"{r['score']:.2f}",
                f"{r['low']:.2f} to {r['high']:.2f}",
                f"{r['null']:.2f}",
                f"{r['calibration_error']:.3f}",
                f"{r['brier']:.3f}",
                f"{r['brier_of_base_rate']:.3f}",
            )
        )
    n, right = len(judged.documents), sum(judged.answered)
    lines = [
        f"On {n} held-out documents with known sources, of which the model answers {right}:\n"
        + aligned_columns(rows)
    ]
    if judged.heads_used:
        lines.append(f"  heads: {' '.join(map(str, judged.heads_used))}")
    return "\n".join(lines)


def answer_text(found: ResultRows, top: int) -> str:
    """Format the sentences on which an answer rests most, by way."""
    lines = []
    for way in dict.fromkeys(found.metric.tolist()):
        part = ranked(found[way].to_pandas(), "score").head(top)
        rows = [("sentence", "score", "confidence", "")]
        for r in part.to_dict("records"):
            words = " ".join(r["text"].split())
            sure = f"{r['confidence']:.2f}" if r["confidence"] == r["confidence"] else "-"
            rows.append(
                (
                    str(r["sentence"]),
                    f"{r['score']:.3g}",
                    sure,
                    words[:70] + "..." * (len(words) > 70),
                )
            )
        unit = part["unit"].iloc[0] if len(part) else ""
        more = f"; correlation {found.fit:.2f} with held-out ablations"
        fit = more if way == "ablations" and found.fit == found.fit else ""
        lines.append(f"\n{way} ({unit}{fit}):\n{aligned_columns(rows)}")
    return "\n".join(lines)


def attention_graph_text(found: AttentionGraph, top: int, draws: int, seed: int) -> str:
    """Format edges, nodes, communities and motifs of a graph."""
    parts = found.components()
    lines = [f"{found!r}"]
    if len(parts) > 1:
        lines.append(
            f"  not connected: the largest component has {len(parts[0])} nodes; paths are counted "
            "where they exist"
        )
    rows = [("edge", "weight", "even attention")]
    for r in found.top(top).to_pandas().to_dict("records"):
        edge = f"{r['source']} {r['source_name']!r} -> {r['target']} {r['target_name']!r}"
        rows.append((edge, f"{r['score']:.3f}", f"{r['null']:.3f}"))
    lines.append(aligned_columns(rows))
    frame = ranked(found.centrality(), "pagerank").head(top)
    rows = [("node", "received", "given", "pagerank", "betweenness", "closeness")]
    for r in frame.to_dict("records"):
        rows.append(
            (
                f"{r['node']} {r['name']!r}",
                f"{r['in_strength']:.3f}",
                f"{r['out_strength']:.3f}",
                f"{r['pagerank']:.3f}",
                f"{r['betweenness']:.3f}",
                f"{r['closeness']:.3f}",
            )
        )
    lines.append(f"\n{aligned_columns(rows)}")
    if not len(found.edges):
        return "\n".join(lines)
    labels, stated = found.communities(n_random=min(draws, 20), seed=seed)
    lines.append(
        f"\n{labels.max() + 1} communities, modularity {stated['modularity']:.3f}; random graphs "
        f"{stated['null']:.3f} ± {stated['null_sd']:.3f} (p {stated['p']:.3f})"
    )
    table = found.motifs(n_random=draws, seed=seed)
    rows = [("motif", "count", "random graphs", "p")]
    for r in table.to_dict("records"):
        rows.append(
            (r["motif"], str(r["count"]), f"{r['null']:.1f} ± {r['sd']:.1f}", f"{r['p']:.3f}")
        )
    if len(rows) > 1:
        lines.append(aligned_columns(rows))
    return "\n".join(lines)


def compared_text(found: AttentionGraph, given: GraphInput, draws: int, seed: int) -> str:
    """Format the comparison of a graph of attention with the edges of its prompt."""
    stated = found.against(given.adjacency, n_random=draws, seed=seed)
    return (
        f"\nAgainst the edges of the graph: AUROC {stated['auroc']:.3f} (nodes exchanged "
        f"{stated['auroc_null']:.3f}, p {stated['auroc_p']:.3f}), precision "
        f"{stated['precision']:.3f} ({stated['precision_null']:.3f})"
    )


def influence_text(results: Sequence[TextScores]) -> str:
    """Format the texts that depend on the heads most, with the meaning of the columns."""
    [scores] = results
    settings, rows = scores.settings, list(scores.top(SHOWN))
    sets = len(settings["random_sets"])
    lines = [
        f"{settings['model']} without {', '.join(settings['heads'])} ({settings['kind']}): the "
        f"first {len(rows)} of {len(scores)} texts",
        "  rise: increase of the loss per predicted token without these heads, as a share of the "
        "loss",
    ]
    if sets:
        lines.append(
            f"  z: the rise minus its mean over {sets} random sets of as many heads of the same "
            f"layers, in units of their standard deviation"
        )
    names = ("rise", *(["z"] if sets else []), "loss, nats/token", "tokens", "text")
    table = [names, *(_cells(row, bool(sets)) for row in rows)]
    width = [max(len(row[at]) for row in table) for at in range(len(names))]
    for row in table:
        cells = [f"{cell:>{w}}" for cell, w in zip(row[:-1], width[:-1], strict=True)]
        lines.append("  ".join(["", *cells, row[-1]]))
    return "\n".join(lines)


def _cells(row: dict[str, Any], compared: bool) -> tuple[str, ...]:
    """Format one text; for one without a score, give the reason."""
    name = str(row["number"] if row["id"] is None else row["id"])
    if math.isnan(row["relative"]):
        name += f": {row['reason']}"
    numbers = [_spelled(row["relative"], "+.3f")]
    numbers += [_spelled(row["z"], "+.1f")] if compared else []
    numbers += [_spelled(row["loss"], ".3f"), str(row["n_scored"])]
    return (*numbers, name)


def _spelled(x: float, how: str) -> str:
    return "none" if math.isnan(x) else format(x, how)
