"""Scores of every head of a model: mean, standard error, sample count and null baseline."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from interp.core.errors import OptionError
from interp.core.prompts import Prompts, repeats
from interp.core.protocols import Progress
from interp.core.registry import METRICS
from interp.core.table import HeadTable
from interp.heads.declaration import NULLS, Analysis, BoundAnalysis, Metric, Null, bound
from interp.heads.engine import (
    applies,
    compiled_pass_pays,
    fused_is_faster,
    require_engine,
)
from interp.heads.pieces import Pieces, drawn_elsewhere, without_draws
from interp.heads.score_rows import (
    MetricScores,
    PatternRun,
    Rows,
    means_by_site,
    rows_of,
    table_of_rows,
)
from interp.heads.scoring_without_prompts import WeightsScores, from_experiment, lacks
from interp.heads.segment_targets import require_segments, why_no_segments
from interp.model.content import model_provenance
from interp.model.inputs import least_length, probe_inputs
from interp.model.model_argument import given_models
from interp.model.precision import on_its_device
from interp.model.random_weights import (
    DRAWS,
    DrawMeans,
    KeptNulls,
    RandomWeights,
)
from interp.model.sources.recorded_run import RecordedModel
from interp.model.views import view_for

if TYPE_CHECKING:
    from interp.model.model import Model

_log = logging.getLogger(__name__)
LONGEST_PERIOD = 24  # tokens that are repeated in the longest default prompt
STORED_BYTES = 2**24  # "auto" stores the patterns of a layer up to this size


@on_its_device
def score(
    model: Any,
    metrics: Metric | Iterable[Metric] | None = None,
    prompts: Any = None,
    *,
    null: Null = "auto",
    seed: int = 0,
    batch_size: int = 16,
    engine: str = "auto",
    null_draws: int = DRAWS,
    null_cache: bool | str | Path = True,
    parts: bool = False,
    progress: Progress | None = None,
) -> HeadTable:
    """Score every head of a model, or of several in one table.

    Args:
        model: a loaded model, or anything that `load` accepts: a name, a folder, a hub id or a
            Hugging Face model. A list of these gives one table; models given by name are loaded one
            after another.
        metrics: names (`"induction"`, `"local_window:width=8"`), analyses, or functions of `(query,
            key)` or `(query, key, tokens)`, each used as a detector; by default all but the
            experiments (`interp.heads.experiments`).
        prompts: texts, ids or `Prompts`, or a mapping of input tensors; random tokens repeated
            twice by default (see `interp.core.prompts.repeats`).
        null: the baseline: `shuffled-tokens` uses the same prompts with shuffled tokens, scored at
            the targets of the original tokens; `random-init` uses the same architecture with random
            weights; `auto` uses shuffled tokens for detectors that read tokens and random weights
            for the rest, and compares every head with random weights as well.
        seed: seed of default prompts, shuffling and random weights.
        batch_size: prompts per forward pass; does not affect the numbers.
        engine: "stored" holds a layer's patterns in memory, "streamed" computes them in tiles,
            "fused" computes the attention output in the same pass, in place of the model's kernel,
            so that activations and scores change by float rounding. "auto" takes the fastest that
            fits the model: "stored" for small patterns, otherwise "fused" on the CPU, where it
            applies, and elsewhere "streamed" if patterns are large.
        null_draws: number of draws of random weights; the null is their mean, its error their
            spread, and `p` of a head the probability that one more head of one more draw is as far
            from it. Fewer than three give no p.
        null_cache: scores of random weights are kept per architecture, prompts, metric and seed, so
            that other weights of an architecture need no new ones; the numbers are the same. True
            keeps them in the user's folder (`interp.model.random_weights.null_folder`), a path in
            that folder, False nowhere.
        parts: also report the score on each cluster of prompts, as metrics `induction [period 12]`.
        progress: see `Progress`.

    `sem` is the standard error over clusters of prompts: rows of one prompt are not independent,
    and neither are prompts that share a period, a needle or an order (see `Prompts.clusters`).

    Raises:
        UnknownName: a metric or option does not exist.
        PromptError: the prompts do not fit the model.
        OptionError: a metric cannot be computed on this kind of model, an argument is not a model
            or metric, or two models have the same name.
        LoadError: a model cannot be loaded; see `load`.
    """
    models, bounds = given_models(model), asked_metrics(metrics)
    if isinstance(prompts, Iterator):
        prompts = list(prompts)  # the same prompts for every model
    options = {"null": null, "seed": seed, "batch_size": batch_size, "engine": engine}
    options |= {"null_draws": null_draws, "parts": parts}
    tables: list[HeadTable] = []
    for source in models:
        each, applicable = source.model(), bounds
        if applicable is None:
            applicable = [b for b in map(bound, METRICS.usual()) if why_not(each, b) is None]
        again = any(b.analysis.kind == "experiment" for b in applicable)
        nulls = KeptNulls.of(null_cache)
        random = RandomWeights(each, seed, null_draws, nulls, again=again)
        results = _each(each, applicable, prompts, progress=progress, random=random, **options)
        together, apart = [], []
        for _, part in results:
            (together if isinstance(part, Rows) else apart).append(part)
        tables += [table_of_rows(together), *apart] if together else apart
    return tables[0] if len(tables) == 1 else HeadTable.concat(tables)


def asked_metrics(metrics: Metric | Iterable[Metric] | None) -> list[BoundAnalysis] | None:
    """Return one metric or several; None if none is named. Raises the errors of `bound`."""
    if metrics is None:
        return None
    if isinstance(metrics, Iterable) and not isinstance(metrics, (str, Analysis, BoundAnalysis)):
        return [bound(metric) for metric in metrics]
    return [bound(metrics)]


def why_not(model: Model, metric: BoundAnalysis) -> str | None:
    """Return the reason why a metric cannot be computed on a model, or None if it can."""
    spread = model.ranks is not None and f"on {model.ranks.size} processes"
    where = (model.elsewhere and f"at {model.elsewhere}") or spread
    if where and (not metric.patterned() or metric.analysis.kind == "measurement"):
        need = "weights" if metric.analysis.kind == "weights" else "activations"
        return f"{metric.label}: its {need} are not available here, since {model.name} runs {where}"
    if metric.analysis.kind == "weights":
        from interp.model.locate.weights import why_unreadable

        reason = why_unreadable(model, metric.analysis.requires)
        return None if reason is None else f"{metric.label}: {reason}"
    if metric.analysis.kind == "experiment":
        return lacks(model, metric)
    if metric.analysis.kind == "measurement":
        from interp.heads.measuring import why_unmeasurable

        return why_unmeasurable(model, metric)
    reads = metric.analysis.reads_segments
    reason = why_no_segments(metric, model) if reads else None
    # towers beside a text run on prompts with images, whose segments a detector may name
    sites = (reads and model.joint_sites) or model.sites
    if reason is None and not any(applies(metric, site, model) for site in sites):
        needed = f"tokens, but {model.name} reads {model.kind} input"
        if metric.analysis.sequences == "two":
            needed = f"cross attention, which {model.name} does not have"
        reason = f"{metric.label} needs {needed}"
    return reason


def default_prompts(model: Model, seed: int) -> Prompts | Mapping[str, Tensor]:
    """Return random tokens repeated twice; noise for models without token input.

    Of recorded attention they are the recorded prompts.
    """
    if isinstance(model, RecordedModel):
        return model.prompts
    inputs = probe_inputs(model.module, seed)
    if not set(inputs) <= {"input_ids", "decoder_input_ids"}:
        return inputs
    return repeats(model, seed=seed, max_length=max(LONGEST_PERIOD, least_length(model.config)))


def choose_engine(
    model: Model,
    prompts: Prompts | Mapping[str, Tensor],
    batch_size: int,
    engine: str,
    *,
    may_fuse: bool = False,
) -> str:
    """Return the engine; "auto" streams if a layer's patterns exceed 16 MiB.

    It stores patterns of custom code that cannot be recomputed. With `may_fuse`, for callers
    that need nothing but the reductions, it fuses or streams many smaller ones too, where that is
    faster.
    """
    if model.elsewhere is not None:
        if engine in ("auto", "stored"):
            return "stored"
        raise OptionError(
            f"engine={engine!r}: {model.name} runs at {model.elsewhere}, where patterns are "
            "computed in blocks of rows; use engine='auto'"
        )
    if engine != "auto":
        require_engine(model, engine)
        return engine
    if not isinstance(prompts, Prompts) or all(site.recorded for site in model.sites):
        return "stored"
    batch, length = largest_batch(prompts, batch_size)
    lengths = [len(ids) for ids in prompts.ids]
    if may_fuse and fused_is_faster(model, lengths):
        return "fused"
    stored = fits_stored(batch, model.n_heads, length)
    compiled = may_fuse and compiled_pass_pays(model, lengths)
    return "stored" if stored and not compiled else "streamed"


def fits_stored(batch: int, heads: int, length: int) -> bool:
    """Return True if the patterns of one layer are small enough to be stored by "auto"."""
    return 4 * batch * heads * length**2 <= STORED_BYTES


def largest_batch(prompts: Prompts, batch_size: int) -> tuple[int, int]:
    """Return the number of prompts in the largest batch and the tokens of the longest prompt."""
    return min(batch_size, len(prompts)), max(map(len, prompts.ids))


def score_each(
    model: Model,
    bounds: Sequence[BoundAnalysis],
    prompts: Any = None,
    *,
    null: Null = "auto",
    seed: int = 0,
    batch_size: int = 16,
    engine: str = "auto",
    null_draws: int = DRAWS,
    parts: bool = False,
    progress: Progress | None = None,
    random: RandomWeights | None = None,
    pieces: Pieces | None = None,
) -> Iterator[tuple[str, HeadTable]]:
    """Score like `score`, with one table per metric as soon as it is ready.

    One run serves all patterns. `random` are draws of random weights made earlier, and `pieces`
    values of pieces of the prompts (`score_pieces`); see `score` for the rest.
    """
    options = {"null": null, "seed": seed, "batch_size": batch_size, "engine": engine}
    options |= {"null_draws": null_draws, "parts": parts, "progress": progress, "random": random}
    options |= {"pieces": pieces}
    for label, part in _each(model, bounds, prompts, **options):
        yield label, table_of_rows([part]) if isinstance(part, Rows) else part


def _each(
    model: Model,
    bounds: Sequence[BoundAnalysis],
    prompts: Any,
    *,
    null: Null,
    seed: int,
    batch_size: int,
    engine: str,
    null_draws: int,
    parts: bool,
    progress: Progress | None,
    random: RandomWeights | None = None,
    pieces: Pieces | None = None,
) -> Iterator[tuple[str, Rows | HeadTable]]:
    """Score each metric like `score_each`; those of patterns as rows, not yet a table."""
    if null not in NULLS:
        raise OptionError(f"null={null!r} is not known; known: {', '.join(NULLS)}")
    for b in bounds:
        reason = why_not(model, b)
        if reason is not None:
            raise OptionError(reason)
    labels = [b.label for b in bounds]
    if len(set(labels)) < len(labels):
        raise OptionError(f"a metric is given twice: {', '.join(labels)}; name each only once")
    progress = progress or (lambda what, done, total: None)
    if null_draws < 1:
        raise OptionError(
            f"null_draws={null_draws}: it must be at least 1; null='none' omits the null"
        )
    random = random or RandomWeights(model, seed, null_draws)
    origin = model_provenance(model)
    patterned = [b for b in bounds if b.patterned()]
    on_weights = [b for b in bounds if b.analysis.kind == "weights"]
    weights = WeightsScores(model, on_weights, null, seed, random, progress, origin)
    if patterned:
        inputs = default_prompts(model, seed) if prompts is None else prompts
        inputs = inputs if isinstance(inputs, (Mapping, Prompts)) else Prompts.of(inputs, model)
        if isinstance(inputs, Prompts):
            inputs.check(model)
        for b in patterned:
            if b.analysis.names_segments:
                require_segments(b, model, inputs)
        chosen = choose_engine(model, inputs, batch_size, engine, may_fuse=True)
        seen = view_for(model, inputs) if model.joint_sites else model
        _log.info(
            "scoring %s: %d metrics of patterns, engine %s, %d prompts",
            model.name,
            len(patterned),
            chosen,
            len(inputs) if isinstance(inputs, Prompts) else 1,
        )
        run = PatternRun(seen, inputs, seed, batch_size, chosen, progress, pieces)
        yield from _from_patterns(run, patterned, null, random, origin, parts, weights)
    for b in bounds:
        if b.analysis.kind == "weights":
            yield b.label, weights.table(b)
        elif b.analysis.kind == "experiment":
            yield b.label, from_experiment(model, b, null, seed, random, progress, origin, parts)


def _from_patterns(
    run: PatternRun,
    bounds: Sequence[BoundAnalysis],
    null: Null,
    random: RandomWeights,
    origin: Mapping[str, Any],
    parts: bool,
    weights: WeightsScores,
) -> Iterator[tuple[str, Rows]]:
    kinds = {b.label: null_of(b, null, run.model) for b in bounds}
    if null == "auto" and not isinstance(run.prompts, Prompts):  # given tensors are not shuffled
        kinds = {k: "random-init" if x == "shuffled-tokens" else x for k, x in kinds.items()}
    scores = run.of(run.model, run.prompts, bounds, "scoring")
    shuffled = [b for b in bounds if kinds[b.label] == "shuffled-tokens"]
    beside = run.shuffled(shuffled) if shuffled else {}
    # detectors that read tokens are compared with random weights as well: a random head may also
    # attend to equal tokens more, or less, than to others
    drawn_for = [b for b in bounds if needs_draws(kinds[b.label], null, run.model)]
    about, clusters, ids = run.about(), run.clusters(), run.prompt_ids()
    if run.pieces is not None and drawn_for and not weights.metrics:
        asked = run.asked_draws(drawn_for, about["prompts_hash"])
        short = without_draws(asked, random, drawn_for)
        random = drawn_elsewhere(short, run.pieces, random, run.model)
    draws = _drawn(run, random, drawn_for, weights, about["prompts_hash"]) if drawn_for else {}
    for b in bounds:
        kind, mine = kinds[b.label], draws.get(b.label, ())
        result = MetricScores(scores[b.label], clusters, kind, beside.get(b.label), mine, ids)
        yield b.label, rows_of(run.model, b, result, origin, about, parts=parts)


def _drawn(
    run: PatternRun,
    random: RandomWeights,
    bounds: Sequence[BoundAnalysis],
    weights: WeightsScores,
    prompts_hash: str,
) -> dict[str, list[DrawMeans]]:
    """Return per metric the mean of every head on every draw of random weights.

    Each draw is made once: what the metrics of weights score on it is found on the way.
    """
    asked = run.asked_draws(bounds, prompts_hash)

    def on_draw(model: Model, labels: list[str], what: str) -> dict[str, DrawMeans]:
        mine = [b for b in bounds if b.label in labels]
        scores = run.of(model, run.prompts, mine, what) if mine else {}
        means = {label: means_by_site(values) for label, values in scores.items()}
        return means | weights.on_draw(model, labels, what)

    if weights.metrics:
        asked |= weights.asked()
    draws = random.scores(asked, on_draw)
    weights.draws = draws
    return draws


def null_of(metric: BoundAnalysis, null: Null, model: Model) -> Null:
    """Return the null of a metric on a model."""
    if null != "auto":
        return null
    if isinstance(model, RecordedModel):
        return "none"  # a null needs other prompts, or other weights
    if model.elsewhere is not None and metric.analysis.default_null == "random-init":
        return "none"  # random weights would need the memory of the model on this machine
    return metric.analysis.default_null


def needs_draws(kind: str, null: Null, model: Model) -> bool:
    """Return whether a metric with this kind of null is compared with random weights."""
    return kind == "random-init" or (
        null == "auto" and kind == "shuffled-tokens" and model.elsewhere is None
    )
