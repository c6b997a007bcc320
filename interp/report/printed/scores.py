"""Text output of the top heads of each metric."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from interp.core.columns import prompt_counts, with_error
from interp.core.order import end_of
from interp.core.table import HeadTable
from interp.report.printed.verdict import verdict_text

FIRST = 3  # heads per metric
_NULL = {"shuffled-tokens": "shuffled tokens", "random-init": "random weights", "none": ""}


def scored_text(table: HeadTable, k: int | None, by: str = "end") -> str:
    """Format what `interp score` prints of finished models: the verdict, then the long list."""
    parts = []
    for model in table.models:
        part = table.where(model=model)
        verdict = verdict_text(part, hint=k is None)
        parts += [verdict] if verdict else []
        if k is not None or not verdict:
            parts.append(top_heads(part, FIRST if k is None else k, by))
    return "\n".join(parts)


def head_table_text(results: Sequence[HeadTable], *, top: int = 3) -> str:
    """Format the heads with the highest scores, of each metric of each model.

    Args:
        results: the tables.
        top: number of heads to list per metric.
    """
    return "\n".join(scored_text(table, top) for table in results)


def probe_text(results: Sequence[Any], *, top: int = 5) -> str:
    """Format the scores of a probe, and the heads without which it is worse.

    Args:
        results: the probe.
        top: number of heads to list.
    """
    from interp.probes.result import probe_table

    lines = [repr(result) for result in results]
    return "\n".join([*lines, *(top_heads(probe_table(result), top) for result in results if top)])


def top_heads(table: HeadTable, k: int, by: str = "end") -> str:
    """Format a block per model with a row per head, in the order of `HeadTable.top`."""
    provenance = table.provenance
    return "\n".join(
        _block(
            model,
            table.where(model=model),
            k,
            by,
            {m: p for (n, m), p in provenance.items() if n == model},
        )
        for model in table.models
    )


def _block(model: str, table: HeadTable, k: int, by: str, made: Mapping) -> str:
    rows, notes = [], []
    mixed = not {"softmax", "unknown"} >= set(table.to_pandas()["kind"])
    for metric in table.metrics:
        of = table.where(metric=metric)
        null = made[metric].get("null", "")
        best = of.top(k, by=by).to_pandas().to_dict("records")
        scores: Any = of.to_pandas()["score"]
        end = end_of(scores, made[metric].get("end")) if by == "end" else ""
        lowest = (k + 1) // 2 if end == "both" and len(of) > k else -1
        for at, row in enumerate(best):
            head = f"L{row['layer']}H{row['head']}"
            head += f" ({row['kind']})" if mixed else ""
            rows.append(
                (
                    metric if at == 0 else "",
                    head if len(table.stacks) == 1 else f"{row['stack']} {head}",
                    with_error(row["score"], row["sem"]),
                    "" if math.isnan(row["null"]) else with_error(row["null"], row["null_sem"]),
                    _prompts(row),
                    _about(row["unit"], null, end)
                    if at == 0
                    else ("the lowest" if at == lowest else ""),
                )
            )
        if k and not best:
            why = made[metric].get("headline", "no prompt had a row with a target")
            rows.append((metric, "-", "", "", "", why))
        elif best and "headline" in made[metric]:
            notes.append(f"{metric}: {made[metric]['headline']}")
    skipped: dict[str, list[str]] = {}
    for metric in table.metrics:
        skipped.setdefault(made[metric].get("skipped", ""), []).append(metric)
    notes += [f"{', '.join(names)}: {why}" for why, names in skipped.items() if why]
    rows.insert(0, ("metric", "head", "score", "null", "n", ""))
    width = [max(len(row[at]) for row in rows) for at in range(5)]
    lines = [
        "  ".join(f"{cell:<{w}}" for cell, w in zip(row, [*width, 0], strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join([model, *(f"  {line}" for line in [*lines, *notes]), ""])


def _prompts(row: Mapping) -> str:
    """Format the number of prompts, and of clusters if there are fewer."""
    if math.isnan(row["sem"]):
        return ""
    return prompt_counts(row["n"], row["clusters"])


def _about(unit: str, null: str, end: str) -> str:
    beside = f"; null: {_NULL.get(null, null)}" if null not in ("none", "") else ""
    return unit + beside + ("; lowest first" if end == "low" else "")
