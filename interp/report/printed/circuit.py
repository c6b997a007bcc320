"""Text output of `interp circuit`: scores, figures on held-out pairs, controls and notes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.circuits.matters import both_answers
from interp.circuits.published_comparison import published_figures
from interp.core.ties import without_rounding

if TYPE_CHECKING:
    from interp.circuits.edge_evaluation import EdgeEvaluation
    from interp.circuits.head_evaluation import Evaluation
    from interp.circuits.nodes import NodeSet
    from interp.circuits.published import Published
    from interp.circuits.result import Circuit
    from interp.circuits.set_evaluation import SetEvaluation
    from interp.core.result_rows import ResultRows


def found_lines(
    found: Circuit, top: int, *, against: Published | None = None, called: str = ""
) -> str:
    """Format what was found in one model, before it is evaluated."""
    what = f"{'estimate' if _estimated(found) else 'score'} ({found.unit})"
    answers = both_answers(found)
    groups = dict.fromkeys(str(row["summary"]) for row in found.tables.get("groups", ()))
    lines = [f"{found.model}: {answers}" if answers else found.model]
    lines += [f"  {found.task}, {found.method}, {found.level}s: {what}"]
    lines += [f"  {summary}" for summary in groups]
    if found.edges:
        lines += [*_edges(found, top), f"  nodes: {what}"]
    lines += _nodes(found, top)
    if found.chosen is not None:
        lines += _chosen(found.chosen, _estimated(found))
    if against is not None:
        stated, name = published_figures(against.compared(found)), called or against.name
        lines.append(
            f"  {name}: AUROC {stated['auroc']:.3f} [{stated['low']:.3f}, {stated['high']:.3f}];"
            f" {stated['found']:.0f} of its {stated['of']:.0f} heads among the top "
            f"{stated['of']:.0f}"
        )
    lines += [f"  control: {line}" for line in _controls(found)]
    lines += [f"  note: {note}" for note in found.notes]
    return "\n".join(lines) + "\n"


def evaluation_lines(
    measured: Evaluation,
    *,
    held_out: str,
    edges: EdgeEvaluation | str | None = None,
    patched: ResultRows | str | None = None,
    of_set: SetEvaluation | str | None = None,
    maps: Sequence[ResultRows] = (),
) -> str:
    """Format the evaluation of a circuit on held-out pairs."""
    lines: list[str] = []
    if of_set is not None and not isinstance(of_set, str):
        lines += [f"  {line}" for line in of_set.summary()]
    if patched is not None and not isinstance(patched, str):
        lines += _patched(patched)
    lines += _figures(measured, held_out)
    if passes := measured.made.get("forwards"):
        lines.append(f"  note: the evaluation of sizes took {passes:.0f} forward passes more")
    if isinstance(of_set, str):
        lines.append(f"  note: no smallest set was measured: {of_set}")
    if isinstance(patched, str):
        lines.append(f"  note: the nodes were not patched on the held-out pairs: {patched}")
    lines += [line for each in maps for line in _map(each)]
    if edges is not None:
        told_of_edges = edges if isinstance(edges, str) else edges.summary()
        lines.append(f"  edges: {told_of_edges.replace('; built in', chr(10) + '    built in')}")
    return "\n".join(lines) + "\n"


def _chosen(chosen: NodeSet, estimated: bool) -> list[str]:
    """Format the set that the circuit names: its size, its share, its nodes."""
    of = "" if chosen.separated else "all "
    between = "" if chosen.separated else " between them"
    return [
        f"  chosen set: {len(chosen.nodes)} nodes, {of}{len(chosen.edges)} edges{between};"
        f" {chosen.summary()}" + ("; estimates order it" if estimated else ""),
        f"    {' '.join(chosen.nodes)}",
    ]


def _map(found: ResultRows) -> list[str]:
    """Format a map: a row per layer, a column per role or position, shares of the gap."""
    table = found.wide().pivot_table(index="layer", columns="place", values="share", sort=False)
    rows = [["layer", *map(str, table.columns)]]
    rows += [
        [str(i), *(_two(x) for x in row)]
        for i, row in zip(table.index, table.to_numpy(), strict=True)
    ]
    head = (
        f"  {found.site} at one position {found.direction}, held-out pairs: share of the gap"
        f" ({found.forwards:.0f} forward passes)"
    )
    return [head, *_table(rows)]


def _estimated(found: Circuit) -> bool:
    """Return True if the scores are estimates, whose error nobody measured."""
    return bool(found.measured) and all(x.startswith("estimated") for x in found.measured)


def _edges(found: Circuit, top: int) -> list[str]:
    """Format a row per edge, those of the smallest set first, and how the scores were measured."""
    inside = set() if found.chosen is None else set(found.chosen.edges)
    order = sorted(found.edge_ranking, key=lambda i: bool(inside) and found.edges[i] not in inside)
    stated = found.edge_measured or ("",) * len(found.edges)
    sem = np.full(len(found.edges), np.nan) if _estimated(found) else found.edge_sem
    scale = float(np.abs(found.edge_score).max(initial=0.0))
    rows = [
        [
            f"{found.edges[i][0]} -> {found.edges[i][1]}",
            _estimate(found.edge_score[i], sem[i], scale),
            *([stated[i]] if any(stated) else []),
        ]
        for i in order[:top]
    ]
    more = len(found.edges) - len(rows)
    of = f", {len(inside)} of all {len(found.edges)} in the smallest set"
    separated = found.chosen is not None and found.chosen.separated
    return [*_table(rows), *([f"    and {more} more{of if separated else ''}"] if more > 0 else [])]


def _nodes(found: Circuit, top: int) -> list[str]:
    """Format a row per node, without empty columns, and how the scores were measured."""
    names = found.ranking[:top]
    at = [found.nodes.index(name) for name in names]
    sem = np.full(len(found.nodes), np.nan) if _estimated(found) else found.sem
    scale = float(np.abs(found.largest).max(initial=0.0))
    columns: dict[str, list[str]] = {
        "node": list(names),
        "score": [_estimate(found.score[i], sem[i], scale) for i in at],
    }
    if not np.isnan(found.conditional[at]).all():
        columns["with another head out"] = [
            _conditional(
                found.conditional[i], found.conditional_sem[i], found.conditional_on[i], scale
            )
            for i in at
        ]
    guess = np.where(np.isnan(found.score[at]), found.estimate[at], np.nan)
    if not np.isnan(guess).all():
        columns["estimate by gradients"] = ["" if np.isnan(x) else f"{x:.4g}" for x in guess]
    same = len({found.measured[i] for i in at}) == 1
    if not same:
        columns["measured"] = [found.measured[i] for i in at]
    lines = _columns(columns)
    if same and at and found.measured[at[0]]:
        lines.append(f"  {'' if _estimated(found) else 'score: '}{found.measured[at[0]]}")
    return lines


def _patched(patched: ResultRows) -> list[str]:
    """Format the first nodes as patched on the held-out pairs."""
    rows = patched.wide().to_dict("records")
    scale = max((abs(row["effect"]) for row in rows), default=0.0)
    columns = {
        "node": [row["node"] for row in rows],
        "patched": [_estimate(row["effect"], row["sem"], scale) for row in rows],
        "with another head out": [
            _conditional(row["conditional"], row["conditional_sem"], row["conditional_on"], scale)
            for row in rows
        ],
    }
    if not any(columns["with another head out"]):
        del columns["with another head out"]
    return [f"  held-out pairs: effect of each node, patched ({patched.unit})", *_columns(columns)]


def _columns(columns: Mapping[str, list[str]]) -> list[str]:
    """Format columns, with their names where there are more than a node and its number."""
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    return _table(rows if len(columns) == 2 else [list(columns), *rows])


def _figures(measured: Evaluation, held_out: str) -> list[str]:
    low, high = measured.share_interval(measured.inside - measured.empty)
    shaped = measured.shaped_faithfulness
    lines = [
        f"  {held_out}, others {measured.ablation}: the first {measured.chosen} heads keep"
        f" {_two(measured.chosen_faithfulness)} [{_two(low)}, {_two(high)}], random circuits with"
        f" as many in each layer {_two(shaped.mean())} [{_two(shaped.min())},"
        f" {_two(shaped.max())}]",
    ]
    if measured.dependence:
        lines.append(f"  {measured.dependence}")
    if measured.truth:
        known = measured.against_truth()
        lines.append(
            f"  built in {' '.join(measured.truth)}: AUROC {known['auroc']:.3f}"
            f" [{known['low']:.3f}, {known['high']:.3f}]"
        )
    return lines


def _controls(found: Circuit) -> list[str]:
    """Format the rows of a method's controls, and their AUROC if the circuit is known."""
    lines = []
    for row in found.tables.get("controls", ()):
        text = ", ".join(
            f"{x:.3g}" if name == "value" else f"{name} {x:.3g}"
            for name, x in row.items()
            if name != "what"
        )
        lines.append(f"{row['what']}: {text}")
    rankings = [
        f"{row['ranking']} {row['auroc']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
        for row in found.tables.get("evaluation", ())
        if "ranking" in row
    ]
    if rankings:
        lines.append(f"AUROC of the same recipe: {', '.join(rankings)}")
    return lines


def _conditional(value: float, sem: float, on: str, scale: float) -> str:
    return "" if math.isnan(value) else f"{_estimate(value, sem, scale)} ({on} out)"


def _estimate(value: float, sem: float, scale: float) -> str:
    """Format an effect and its error; what is only rounding beside effects of a size is 0."""
    if math.isnan(value):
        return "not patched"
    error = "" if math.isnan(sem) else f" ± {without_rounding(sem, scale):.2g}"
    return f"{without_rounding(value, scale):.4g}{error}"


def _two(x: Any) -> str:
    """Format with two decimal places, and without a sign on zero."""
    return f"{round(float(x), 2) + 0.0:.2f}"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return []
    width = [max(7, *(len(row[i]) for row in rows)) for i in range(len(rows[0]))]
    return [
        "    " + " ".join(f"{cell:<{w}}" for cell, w in zip(row, width, strict=True)).rstrip()
        for row in rows
    ]
