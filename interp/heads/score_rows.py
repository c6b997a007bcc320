"""Runs of metrics of patterns, and table rows of per-trial scores with errors, nulls and p."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float
from torch import Tensor

from interp.core.clusters import (
    PromptValues,
    Summary,
    cluster_summary,
    null_spread,
    p_of_random_weights,
)
from interp.core.errors import PromptError
from interp.core.intervals import EXACT, site_intervals
from interp.core.prompts import Prompts, bos_id
from interp.core.protocols import Progress
from interp.core.standard_errors import t_test_p
from interp.core.table import HeadTable
from interp.heads.declaration import BoundAnalysis
from interp.heads.defined_at import left_out_of_two
from interp.heads.engine import ROUNDING, batches, reduce_patterns
from interp.heads.pieces import SCORING, SHUFFLED, PerMetric, Pieces
from interp.model.calls.sites import APART, Site, skipped_layers
from interp.model.content import tensors_hash
from interp.model.segments import special_ids
from interp.model.single_prompts import pictured, single_prompts
from interp.model.views import view_for

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
    """Return the rows of one metric."""
    settings = dict(origin) | {
        "options": dict(metric.options),
        "end": metric.analysis.shown_end,
        "null": found.null_kind,
        "edits": list(model.active_edits),
        "made_by": f"interp.score: {metric.analysis!r}",
    }
    if found.draws:
        settings["null_draws"] = len(found.draws)
    if found.clusters is not None:
        settings["clusters"] = dict(Counter(found.clusters))
    settings |= about
    beside = [s for s in model.sites if s.kind != "softmax" and s not in found.values]
    if beside:
        settings = {k: x for k, x in settings.items() if k != "maps"} | {
            "skipped": skipped_layers(beside)
        }
    apart = [s for s in model.sites if s.stack in APART and s not in found.values]
    scored = metric.patterned() or metric.analysis.kind == "weights"
    if apart and scored and (why := left_out_of_two(metric, apart, model)):
        settings["skipped"] = " ".join(filter(None, [settings.get("skipped"), why]))
    records = _records(model, metric, found)
    provenance = {(model.name, metric.label): settings}
    if parts and found.clusters is not None:
        for label in dict.fromkeys(found.clusters):
            name = f"{metric.label} [{label}]"
            mine = np.array([x == label for x in found.clusters])
            values = {site: x[mine] for site, x in found.values.items()}
            records += [
                row | {"metric": name} for row in _records(model, metric, MetricScores(values))
            ]
            figures = {"null": "none", "clusters": {label: int(mine.sum())}}
            provenance[model.name, name] = settings | figures
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
    bounds = metric.analysis.low, metric.analysis.high
    intervals = {} if exact else site_intervals(found.values, found.clusters, bounds)
    records = []
    for site, values in found.values.items():
        summary = cluster_summary(values, found.clusters)
        row = {
            "model": model.name,
            "stack": site.stack,
            "layer": site.layer,
            "metric": metric.label,
            "score": summary.score,
            "sem": summary.sem,
            "n": summary.n,
            "clusters": summary.clusters,
            "unit": metric.analysis.unit,
            "n_kv_heads": site.n_kv_heads,
            "kind": site.kind,
        } | (intervals[site].columns if site in intervals else {"why_no_interval": EXACT})
        beside = _null(site, found, drawn[site])
        if beside is not None:
            row |= {"null": beside.score, "null_sem": beside.sem}
            if found.null is None:
                row["null_sd"] = null_spread(drawn[site])
            tests = [against_draws.get(site)]
            tests += [] if exact else [_against_prompts(site, values, summary, found, beside)]
            row["p"] = _larger(tests, summary.score, needs_draws=found.null is None)
        records.append(row)
    return records


def _drawn(site: Site, draws: Sequence[Mapping[str, np.ndarray]]) -> np.ndarray:
    """Return `[draw, head]`, without the draws on which nothing could be scored."""
    means = [each[site.name] for each in draws if site.name in each]
    complete = [x for x in means if not np.isnan(x).any()]
    return np.stack(complete) if complete else np.zeros((0, site.n_heads))


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
    if found.null is not None and found.null[site].shape == values.shape:
        pairs = cluster_summary(values - found.null[site], found.clusters)
        gap, error, clusters = pairs.score, pairs.sem, pairs.clusters
    else:
        gap, error, clusters = own.score - null.score, own.sem, own.clusters
    if clusters < 2:
        return np.full(len(own.score), np.nan)
    return t_test_p(gap, error, clusters - 1)


def _larger(tests: Sequence[Any], like: np.ndarray, *, needs_draws: bool) -> np.ndarray:
    """Return the largest p of the tests; NaN if the required one against draws is missing."""
    there = [np.asarray(p) for p in tests if p is not None and not np.isnan(p).all()]
    draws = tests[0]
    if not there or (needs_draws and (draws is None or np.isnan(draws).all())):
        return np.full(len(like), np.nan)
    return np.max(there, axis=0)


@dataclass
class PatternRun:
    """Metrics of one model on its prompts, in one forward pass per batch.

    Args:
        model: the scored model.
        prompts: the prompts, or a mapping of input tensors.
        seed: seed of the shuffled tokens.
        batch_size: prompts per forward pass.
        engine: the engine, chosen for all prompts together.
        progress: receives the progress.
        pieces: values that were computed on pieces of the prompts, read in place of a run.
    """

    model: Model
    prompts: Prompts | Mapping[str, Tensor]
    seed: int
    batch_size: int
    engine: str
    progress: Progress
    pieces: Pieces | None = None
    masks: dict[str, str] = field(default_factory=dict)
    """Structure of the mask by name of the attention, as it was recognised in the scored model."""

    def of(
        self, model: Model, prompts: Any, bounds: Sequence[BoundAnalysis], what: str
    ) -> PerMetric:
        """Return the value of every head on every prompt, by metric and attention."""
        stored = None if self.pieces is None else self.pieces.whole(what, bounds, self.model)
        if stored is not None and self.pieces is not None:
            self.masks |= self.pieces.masks(what) if what == SCORING else {}
            return stored
        # a draw of random weights whose pieces are kept is not made, and has no model
        model = view_for(model, prompts) if model.joint_sites else model
        total = len(self.model.sites) * len(batches(model, prompts, self.batch_size))
        done = 0
        self.progress(what, 0, total)

        def advance() -> None:
            nonlocal done
            done += 1
            self.progress(what, done, total)

        scores: PerMetric = {}
        if rest := [b for b in bounds if b.analysis.kind != "measurement"]:
            per_prompt = reduce_patterns(
                model,
                prompts,
                rest,
                batch_size=self.batch_size,
                engine=self.engine,
                advance=advance,
                masks=self.masks if what == SCORING else None,
            )
            scores = {p.bound.label: {s: p.of(s).numpy() for s in p.values} for p in per_prompt}
        if measures := [b for b in bounds if b not in rest]:
            from interp.heads.measuring import measure_layers

            scores |= measure_layers(model, prompts, measures, self.batch_size, self.engine)
        return scores

    def asked_draws(
        self, bounds: Sequence[BoundAnalysis], prompts_hash: str
    ) -> dict[str, dict[str, Any]]:
        """Return, by label, what scores on random weights depend on besides the architecture."""
        about = {"prompts": prompts_hash, "engine": self.engine, "batch_size": self.batch_size}
        asked = {b.label: b.identity() | about for b in bounds}
        for b in bounds:
            if b.analysis.names_segments:  # the tokenizer says which tokens are special
                asked[b.label]["special_ids"] = special_ids(self.model)
        return asked

    def shuffled(self, bounds: Sequence[BoundAnalysis]) -> PerMetric:
        """Return the scores of the same prompts with their tokens in random order."""
        return self.of(self.model, self.shuffled_prompts(), bounds, SHUFFLED)

    def shuffled_prompts(self) -> Prompts:
        """Return the prompts with their tokens in random order."""
        if not isinstance(self.prompts, Prompts):
            why = f"{self.model.name} does not read tokens, so there are none to shuffle; use "
            raise PromptError(f"{why}null='random-init'")
        first, ids = bos_id(self.model), self.prompts.ids
        keep = first is not None and all(p[0] == first for p in ids)
        return self.prompts.shuffled(self.seed, keep)

    def clusters(self) -> tuple[str, ...] | None:
        """Return the cluster of each prompt."""
        return self.prompts.clusters if isinstance(self.prompts, Prompts) else None

    def prompt_ids(self) -> tuple[str, ...] | None:
        """Return the identity of each prompt."""
        if isinstance(self.prompts, Prompts):
            return self.prompts.prompt_ids
        rows = len(next(iter(self.prompts.values())))
        one = ({name: x[i] for name, x in self.prompts.items()} for i in range(rows))
        pictures = pictured(self.model, self.prompts)
        parts = single_prompts(self.model, self.prompts) if pictures else one
        return tuple(tensors_hash(each)[:16] for each in parts)

    def about(self) -> dict[str, Any]:
        """Return the provenance of the run besides that of the model."""
        if isinstance(self.prompts, Prompts):
            longest = max(map(len, self.prompts.ids))
            what: dict[str, Any] = {"prompts": self.prompts.design, "max_length": longest}
            what["prompts_hash"] = self.prompts.hash
            what["n_prompts"] = len(self.prompts)
        else:
            what = {
                "prompts": f"given {', '.join(sorted(self.prompts))}",
                "prompts_hash": tensors_hash(self.prompts),
            }
        what |= {"masks": _by_layers(self.masks)} if self.masks else {}
        what |= {"rounding": ROUNDING} if self.engine == "fused" else {}
        return what | {"seed": self.seed, "engine": engine_used(self.model, self.engine)}


def _by_layers(masks: Mapping[str, str]) -> str:
    """Return one text for all attentions, or the attentions of each text."""
    kinds: dict[str, list[str]] = {}
    for name, kind in masks.items():
        kinds.setdefault(kind, []).append(name)
    if len(kinds) == 1:
        return next(iter(kinds))
    return "; ".join(f"{kind} in {', '.join(names)}" for kind, names in kinds.items())


def engine_used(model: Model, engine: str) -> str:
    """Return the engine that runs when this one is requested, as provenance names it.

    Attention in custom code whose pattern cannot be recomputed is stored with any engine.
    """
    if model.elsewhere is not None:
        return "rows in blocks, where the model runs"
    apart = {
        "stored (recorded)": [site.name for site in model.sites if site.recorded],
        "rows of maps in blocks": [site.name for site in model.sites if site.kind != "softmax"],
    }
    for how, names in apart.items():
        if len(names) == len(model.sites):
            return how
    return "; ".join(
        [engine, *(f"{how} in {', '.join(names)}" for how, names in apart.items() if names)]
    )
