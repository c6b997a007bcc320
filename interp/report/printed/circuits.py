"""Results on circuits as text: routes, traces, graphs, loadings, shares, made pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from interp.core.columns import with_noun
from interp.core.ties import within
from interp.report.printed.tables import aligned_table

if TYPE_CHECKING:
    from interp.circuits.made_pairs import MadePairs
    from interp.circuits.why.graph_result import AttributionGraph
    from interp.circuits.why.shares import QKShares
    from interp.core.result_rows import ResultRows

SHOWN = 6


def path_text(results: Sequence[ResultRows], *, top: int = 20) -> str:
    """Format the routes with the largest effects.

    Args:
        results: the effects.
        top: number of routes to print.
    """
    [routes] = results
    lines = [
        f"{routes.model}, {routes.task}: {len(routes)} routes, MLPs {routes.mlps}, "
        f"{len(routes.gap)} pairs, {routes.gap.mean():.4g} {routes.unit} from clean to corrupted"
    ]
    width = max(len(route) for route in routes.route)
    lines += [
        f"  {row['route']:<{width}}  {row['score']:8.4g} ± {row['sem']:.2g} {routes.unit}"
        f"  share {row['share']:.3f} [{row['share_low']:.3f}, {row['share_high']:.3f}]"
        for row in routes.top(top).wide().to_dict("records")
    ]
    return "\n".join(lines)


def trace_text(results: Sequence[ResultRows]) -> str:
    """Format maps: a row per layer, a column per place, gains of probability."""
    return "\n".join(_trace(result) for result in results)


def _trace(found: ResultRows) -> str:
    frame = found.wide()
    table = frame.pivot_table(index="layer", columns="place", values="score", sort=False)
    rows = [("layer", *map(str, table.columns))]
    rows += [
        (str(layer), *("" if math.isnan(x) else f"{x:+.3f}" for x in row))
        for layer, row in zip(table.index, table.to_numpy(), strict=True)
    ]
    layers = f"{found.window} layers of {found.site}" if found.window > 1 else found.site
    cut = f", {found.sever} severed" if found.sever else ""
    left = f" ({found.skipped} more left out: another answer)" if found.skipped else ""
    return (
        f"{found.model}: {layers} restored{cut}, {len(found.clean)} facts{left}; noise on the"
        f" {found.corrupt} lowers the probability of the answer from {found.clean.mean():.3f} to"
        f" {found.corrupted.mean():.3f}\n{aligned_table(rows)}\n"
        f"  largest standard error {frame['sem'].max():.3f}; activations of other noise:"
        f" {frame['null'].min():+.3f} to {frame['null'].max():+.3f}"
    )


def graph_text(
    results: Sequence[AttributionGraph],
    *,
    per: Literal["head", "layer", "token", "edge"] = "head",
    top: int = 12,
) -> str:
    """Format the logits of a graph and its strongest edges.

    Args:
        results: the graph.
        per: groups between which edges are printed; edge for single edges.
        top: number of edges to print.
    """
    [graph] = results
    lines = [repr(graph)]
    for x in graph.nodes:
        if x.kind == "logit":
            lines.append(f"  {graph.described(x)}: {x.activation:+.3f} above the mean logit")
    frame = graph.to_pandas() if per == "edge" else graph.grouped(per)
    table = [("source", "target", "effect", "influence")]
    for r in frame.head(top).to_dict("records"):
        table.append((r["source"], r["target"], f"{r['score']:+.3f}", f"{r['influence']:.3f}"))
    return "\n".join([*lines, aligned_table(table)])


def loadings_text(
    results: Sequence[ResultRows],
    *,
    per: Literal["writer", "source"] | None = None,
    top: int = 10,
) -> str:
    """Format the largest parts of the output of heads.

    Args:
        results: the loadings.
        per: sum over source positions, or over writers.
        top: number of parts to print.
    """
    from interp.circuits.why.loadings import loadings_by

    [loadings] = results
    shown = loadings if per is None else loadings_by(loadings, per)
    whole = float(loadings.per_prompt.sum(0).mean())
    table = [("head", "source", "writer", "logit", "standard error")]
    for r in shown.top(top).to_pandas().to_dict("records"):
        error = f"{r['sem']:.4f}" if r["sem"] == r["sem"] else "one prompt"
        table.append(
            (f"L{r['layer']}H{r['head']}", r["source"], r["writer"], f"{r['score']:+.4f}", error)
        )
    return (
        f"{', '.join(loadings.errors)} of {loadings.facts['model']} on the logit of "
        f"{loadings.direction}: {whole:+.4f} at position {loadings.position}, mean of "
        f"{loadings.per_prompt.shape[1]} prompts\n{aligned_table(table)}"
    )


def shares_text(results: Sequence[QKShares], *, top: int = 8) -> str:
    """Format the largest terms of each head.

    Args:
        results: the shares.
        top: number of terms to print for each head.
    """
    return "\n\n".join(
        _summary_of(result.of(head), top) for result in results for head in result.names
    )


def _summary_of(found: QKShares, top: int) -> str:
    [name] = found.names
    rows = found.top(top, by="relative").to_pandas()
    table = [("query side", "key side", "term", "95 % interval", "relative", "null")]
    for r in rows.to_dict("records"):
        table.append(
            (
                r["query_writer"],
                r["key_writer"],
                f"{r['score']:+.3f}",
                f"{r['low']:+.3f} to {r['high']:+.3f}" if r["low"] == r["low"] else "one prompt",
                f"{r['relative']:+.3f}",
                f"{r['null']:+.3f}" if r["null"] == r["null"] else "none",
            )
        )
    frame = found.wide()
    whole = f"{frame['score'].sum():+.3f} ({frame['relative'].sum():+.3f} relative to the keys)"
    n = sum(1 for x in found.pairs[name] if x)
    pairs = with_noun(sum(found.pairs[name]), "pair")
    return (
        f"{name} of {found.model}: score {whole} at {found.places} of {with_noun(n, 'prompt')} "
        f"({pairs} of query and key); the terms sum to it "
        f"{within(found.errors[name], abs(frame['score']).max())}\n{aligned_table(table)}"
    )


def share_check_text(results: Sequence[ResultRows]) -> str:
    """Format the measured changes beside those that the shares predict."""
    return "\n\n".join(["", *(_checked(result) for result in results)])


def _checked(found: ResultRows) -> str:
    table = [("head", "side", "without", "score", "predicted", "attention", "predicted", "random")]
    for r in found.to_pandas().to_dict("records"):
        table.append(
            (
                f"L{r['layer']}H{r['head']}",
                r["side"],
                r["writer"],
                f"{r['score']:+.3f}",
                f"{r['predicted']:+.3f}",
                f"{r['attention']:+.3f}",
                f"{r['attention_predicted']:+.3f}",
                f"{r['null']:+.3f}",
            )
        )
    lines = []
    for name in ("score", "attention"):
        r, low, high = found.correlations[name]
        lines.append(f"{name} {r:.3f} ({low:.3f} to {high:.3f})")
    return (
        "Change when a writer is removed from one side, on held-out prompts (random: a random "
        "direction of the same length, change of the score):\n"
        f"{aligned_table(table)}\n  correlation of predicted and measured: {', '.join(lines)}"
    )


def pairs_text(results: Sequence[MadePairs]) -> str:
    """Format the first pairs, the model's success on candidates, and what was left out."""
    [pairs] = results
    share, low, high = pairs.preferred_share
    gap = pairs.clean - pairs.contrast
    lines = [
        f"{len(pairs)} pairs of {pairs.name} for {pairs.model}",
        f"  the model prefers the answer in {pairs.preferred} of {pairs.measured} candidates:"
        f" {share:.1%} [{low:.1%}, {high:.1%}]",
        f"  answer minus wrong, logits: {pairs.clean.mean():.2f} after the clean prompt,"
        f" {pairs.contrast.mean():.2f} after the corrupted one (gap {gap.mean():.2f})",
    ]
    if pairs.made["keep"] != "all" or pairs.made["least_probability"] > 0:
        lines.append("  selected by the model's success: results hold where the model succeeds")
    lines += [f"  left out: {count} ({why})" for why, count in pairs.dropped.items()]
    for i in range(min(SHOWN, len(pairs))):
        lines += [
            f"  {pairs.prompts[i]!r} -> {pairs.answers[i]!r} (wrong {pairs.wrong[i]!r})",
            f"    {pairs.corrupted[i]!r}",
        ]
    return "\n".join(lines)
