"""Table rows from per-trial head scores, with standard errors, nulls and p-values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from interp.core.clusters import (
    PromptValues,
    Summary,
    cluster_summary,
    null_spread,
    p_of_random_weights,
)
from interp.core.table import HeadTable
from interp.heads.declaration import BoundAnalysis
from interp.model.locate.sites import Site

if TYPE_CHECKING:
    from interp.model.model import Model

PerTrial = Mapping[Site, Float[np.ndarray, "trial head"]]


@dataclass(frozen=True)
class MetricScores:
    """Scores of one metric.

    Args:
        values: score of every head in every trial; a single trial if the score is exact.
        clusters: the cluster of each trial; None if every trial is its own cluster.
        null_kind: description of the table's null.
        null: scores of the corresponding null trials, if that is the null.
        draws: mean scores on each draw of random weights, by name of the site. They are the null if
            there is no other, and every p is computed against them.
        ids: identity of each trial; see `PromptValues`.
    """

    values: PerTrial
    clusters: Sequence[str] | None = None
    null_kind: str = "none"
    null: PerTrial | None = None
    draws: Sequence[Mapping[str, np.ndarray]] = field(default_factory=tuple)
    ids: tuple[str, ...] | None = None


def means_by_site(values: PerTrial) -> dict[str, np.ndarray]:
    """Return the mean of every head over trials, by name of the site."""
    return {site.name: cluster_summary(x).score for site, x in values.items()}


class Rows(NamedTuple):
    """Rows of one metric, before they are checked as a table."""

    records: list[dict[str, Any]]
    provenance: dict[tuple[str, str], dict[str, Any]]
    values: dict[tuple[str, str], PromptValues]


def table_of(
    model: Model,
    metric: BoundAnalysis,
    found: MetricScores,
    origin: Mapping[str, Any],
    about: Mapping[str, Any],
    *,
    parts: bool = False,
) -> HeadTable:
    """Return the table of one metric; see `rows_of`."""
    return table_of_rows([rows_of(model, metric, found, origin, about, parts=parts)])


def table_of_rows(rows: Iterable[Rows]) -> HeadTable:
    """Return one table of several metrics, checked once."""
    records: list[dict[str, Any]] = []
    provenance: dict[tuple[str, str], dict[str, Any]] = {}
    values: dict[tuple[str, str], PromptValues] = {}
    for each in rows:
        records += each.records
        provenance |= each.provenance
        values |= each.values
    return HeadTable.from_records(records, provenance).with_prompt_values(values)


def rows_of(
    model: Model,
    metric: BoundAnalysis,
    found: MetricScores,
    origin: Mapping[str, Any],
    about: Mapping[str, Any],
    *,
    parts: bool = False,
) -> Rows:
    """Return the rows of one metric.

    Args:
        model: the scored model.
        metric: the metric with its options.
        found: its scores.
        origin: provenance of the model, taken once for all metrics: it reads all weights.
        about: additional provenance.
        parts: add rows per cluster, as metrics such as `induction [period 12]`.
    """
    made = dict(origin) | {
        "options": dict(metric.options),
        "end": metric.analysis.shown_end,
        "null": found.null_kind,
        "edits": list(model.active_edits),
        "made_by": f"interp.score: {metric.analysis!r}",
    }
    if found.draws:
        made["null_draws"] = len(found.draws)
    if found.clusters is not None:
        made["clusters"] = dict(Counter(found.clusters))
    made |= about
    records = _records(model, metric, found)
    provenance = {(model.name, metric.label): made}
    if parts and found.clusters is not None:
        for label in dict.fromkeys(found.clusters):
            name = f"{metric.label} [{label}]"
            mine = np.array([x == label for x in found.clusters])
            values = {site: x[mine] for site, x in found.values.items()}
            records += [
                row | {"metric": name} for row in _records(model, metric, MetricScores(values))
            ]
            told = {"null": "none", "clusters": {label: int(mine.sum())}}
            provenance[model.name, name] = made | told
    if metric.analysis.kind == "weights":
        return Rows(records, provenance, {})
    sites = {(site.stack, site.layer): x for site, x in found.values.items()}
    clusters = None if found.clusters is None else tuple(map(str, found.clusters))
    null = None
    if found.null is not None:
        null = {(site.stack, site.layer): x for site, x in found.null.items()}
    values = {(model.name, metric.label): PromptValues(sites, clusters, found.ids, null)}
    return Rows(records, provenance, values)


def _records(model: Model, metric: BoundAnalysis, found: MetricScores) -> list[dict[str, Any]]:
    exact = metric.analysis.kind == "weights"
    drawn = {site: _drawn(site, found.draws) for site in found.values}
    against_draws = _against_draws(metric, found, drawn)
    records = []
    for site, values in found.values.items():
        own = cluster_summary(values, found.clusters)
        row = {
            "model": model.name,
            "stack": site.stack,
            "layer": site.layer,
            "metric": metric.label,
            "score": own.score,
            "sem": own.sem,
            "n": own.n,
            "clusters": own.clusters,
            "unit": metric.analysis.unit,
            "n_kv_heads": site.n_kv_heads,
        }
        beside = _null(site, found, drawn[site])
        if beside is not None:
            row |= {"null": beside.score, "null_sem": beside.sem}
            if found.null is None:
                row["null_sd"] = null_spread(drawn[site])
            tests = [against_draws.get(site)]
            tests += [] if exact else [_against_prompts(site, values, own, found, beside)]
            row["p"] = _larger(tests, own.score, needs_draws=found.null is None)
        records.append(row)
    return records


def _drawn(site: Site, draws: Sequence[Mapping[str, np.ndarray]]) -> np.ndarray:
    """Return `[draw, head]`, without the draws on which nothing could be scored."""
    found = [each[site.name] for each in draws if site.name in each]
    kept = [x for x in found if not np.isnan(x).any()]
    return np.stack(kept) if kept else np.zeros((0, site.n_heads))


def _null(site: Site, found: MetricScores, drawn: np.ndarray) -> Summary | None:
    """Return the null of the table: separate null trials, or the draws, each counted as one."""
    if found.null is not None:
        return cluster_summary(found.null[site], found.clusters)
    return cluster_summary(drawn) if len(drawn) else None


def _against_draws(
    metric: BoundAnalysis, found: MetricScores, drawn: Mapping[Site, np.ndarray]
) -> dict[Site, np.ndarray]:
    """Compute p against one more head of one more draw; layers of a stack are pooled."""
    out: dict[Site, np.ndarray] = {}
    for stack in dict.fromkeys(site.stack for site in found.values):
        sites = [s for s in found.values if s.stack == stack and len(drawn[s])]
        scores = [cluster_summary(found.values[s]).score for s in sites]
        scored = {s: x for s, x in zip(sites, scores, strict=True) if not np.isnan(x).any()}
        bounds = metric.analysis.low, metric.analysis.high
        p = p_of_random_weights([*scored.values()], [drawn[s] for s in scored], *bounds)
        out |= dict(zip(scored, p, strict=True))
    return out


def _against_prompts(
    site: Site, values: np.ndarray, own: Summary, found: MetricScores, null: Summary
) -> np.ndarray:
    """Compute p of the difference from the null over prompts, paired if the prompts are equal."""
    from scipy.stats import t as student

    if found.null is not None and found.null[site].shape == values.shape:
        pairs = cluster_summary(values - found.null[site], found.clusters)
        gap, error, clusters = pairs.score, pairs.sem, pairs.clusters
    else:
        gap, error, clusters = own.score - null.score, own.sem, own.clusters
    if clusters < 2:
        return np.full(len(own.score), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.where(gap == 0, 0.0, np.abs(gap) / error)
    return 2 * student.sf(distance, clusters - 1)


def _larger(tests: Sequence[Any], like: np.ndarray, *, needs_draws: bool) -> np.ndarray:
    """Return the largest p of the tests; NaN if the required one against draws is missing."""
    there = [np.asarray(p) for p in tests if p is not None and not np.isnan(p).all()]
    draws = tests[0]
    if not there or (needs_draws and (draws is None or np.isnan(draws).all())):
        return np.full(len(like), np.nan)
    return np.max(there, axis=0)
