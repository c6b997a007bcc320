"""Score every head of a model: mean, standard error, sample count and the same score on a null."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from interp.analysis import NULLS, Bound, Null
from interp.asked import Metric, asked_metrics, bound
from interp.catalogue import usual
from interp.engine import applies, batches, engine_used, reduce_patterns
from interp.errors import OptionError, PromptError
from interp.estimate import choose_engine
from interp.model.given import given_models
from interp.model.inputs import probe_inputs
from interp.model.sites import Site
from interp.prompts import Prompts, bos_id, repeats
from interp.provenance import model_provenance
from interp.random_state import drawn_with
from interp.table import HeadTable

if TYPE_CHECKING:
    from interp.model.model import Model

Progress = Callable[[str, int, int], None]
"""Told what runs, how many layers (over all batches) are done and how many there are."""


@dataclass(frozen=True)
class _Scores:
    """Per site: score, standard error `[head]` and number of prompts."""

    score: np.ndarray
    sem: np.ndarray
    n: int


def score(
    model: Any,
    metrics: Metric | Iterable[Metric] | None = None,
    prompts: Any = None,
    *,
    null: Null = "auto",
    seed: int = 0,
    batch_size: int = 16,
    engine: str = "auto",
    progress: Progress | None = None,
) -> HeadTable:
    """Score every head of a model, or of several in one table.

    Args:
        model: what `load` gave, or anything that it takes: a name, a folder, a hub id or a Hugging
            Face model is loaded first. A list of these gives one table; models that are named are
            loaded one after another.
        metrics: names (`"induction"`, `"local_window:width=8"`), analyses, or functions of
            `(query, key)` or `(query, key, tokens)`, each taken for a detector; by default all but
            experiments (the room `interp.special`).
        prompts: texts, ids or `Prompts`, or a mapping of input tensors; random tokens repeated
            twice by default (see `interp.prompts.repeats`).
        null: what `null` is measured on: the same prompts with `shuffled-tokens`, scored where the
            original tokens had their targets; the same architecture with `random-init` weights;
            `auto`: shuffled tokens for detectors that read tokens, random weights for the rest.
        seed: of default prompts, shuffling and random weights.
        batch_size: prompts per forward pass; changes no number.
        engine: "stored" forms a layer's patterns, "streamed" never does, "auto" decides by size.
        progress: see `Progress`.

    `sem` is the standard error over prompts: rows of one prompt are not independent.

    Raises:
        UnknownName: a metric or option that does not exist.
        PromptError: prompts that do not fit the model.
        OptionError: a metric that cannot be computed on this kind of model, an argument that is
            no model or metric, or two models of one name.
        LoadError: a model that cannot be loaded; see `load`.
    """
    models, bounds = given_models(model), asked_metrics(metrics)
    if isinstance(prompts, Iterator):
        prompts = list(prompts)  # every model reads them
    options = {"null": null, "seed": seed, "batch_size": batch_size, "engine": engine}
    tables: list[HeadTable] = []
    for given in models:
        each = given.model()
        own = bounds
        if own is None:
            own = [b for b in map(bound, usual()) if why_not(each, b) is None]
        found = score_each(each, own, prompts, progress=progress, **options)
        tables += [table for _, table in found]
    return HeadTable.concat(tables)


def why_not(model: Model, metric: Bound) -> str | None:
    """One line on why a metric cannot be computed on a model, or None where it can."""
    spread = model.ranks is not None and f"on {model.ranks.size} processes"
    where = (model.elsewhere and f"at {model.elsewhere}") or spread
    if where and not metric.patterned():
        need = "weights" if metric.analysis.kind == "weights" else "activations"
        return f"{metric.label}: its {need} stay where {model.name} runs, {where}"
    if metric.analysis.kind == "weights":
        from interp.model.weights import why_unreadable

        reason = why_unreadable(model, metric.analysis.requires)
        return None if reason is None else f"{metric.label}: {reason}"
    if metric.analysis.kind == "experiment":
        return _lacks(model, metric)
    if not any(applies(metric, site, model) for site in model.sites):
        return f"{metric.label} looks at tokens, and {model.name} reads {model.kind} input"
    return None


def _lacks(model: Model, metric: Bound) -> str | None:
    """What an experiment needs and the model does not have."""
    lacks = {
        "tokens": None if model.takes_text else "reads no tokens",
        "causal": None if model.kind == "causal" else f"is {model.kind}, not causal",
        "tokenizer": "has no tokenizer" if model.tokenizer is None else None,
    }
    why = next((lacks[x] for x in metric.analysis.requires if lacks[x]), None)
    return None if why is None else f"{metric.label}: {model.name} {why}"


def default_prompts(model: Model, seed: int) -> Prompts | Mapping[str, Tensor]:
    """Random tokens repeated twice; noise for models that read no tokens."""
    inputs = probe_inputs(model.module, seed)
    return (
        repeats(model, seed=seed) if set(inputs) <= {"input_ids", "decoder_input_ids"} else inputs
    )


def score_each(
    model: Model,
    bounds: Sequence[Bound],
    prompts: Any = None,
    *,
    null: Null = "auto",
    seed: int = 0,
    batch_size: int = 16,
    engine: str = "auto",
    progress: Progress | None = None,
) -> Iterator[tuple[str, HeadTable]]:
    """Like `score`, one table per metric as soon as it is there; one run serves all patterns."""
    if null not in NULLS:
        raise OptionError(f"null={null!r} is not known; known: {', '.join(NULLS)}")
    for b in bounds:
        reason = why_not(model, b)
        if reason is not None:
            raise OptionError(reason)
    labels = [b.label for b in bounds]
    if len(set(labels)) < len(labels):
        raise OptionError(f"a metric is asked for twice: {', '.join(labels)}")
    tell = progress or (lambda what, done, total: None)
    random = _Lazy(lambda: random_init(model, seed))
    patterned = [b for b in bounds if b.patterned()]
    if patterned:
        given = default_prompts(model, seed) if prompts is None else prompts
        given = given if isinstance(given, (Mapping, Prompts)) else Prompts.of(given, model)
        if isinstance(given, Prompts):
            given.check(model)
        chosen = choose_engine(model, given, batch_size, engine)
        run = _Run(model, given, seed, batch_size, chosen, tell)
        yield from _from_patterns(run, patterned, null, random)
    for b in bounds:
        if b.analysis.kind == "weights":
            yield b.label, _from_weights(model, b, null, seed, random, tell)
        elif b.analysis.kind == "experiment":
            yield b.label, _from_experiment(model, b, null, seed, random, tell)


def _from_patterns(
    run: _Run, bounds: Sequence[Bound], null: Null, random: _Lazy
) -> Iterator[tuple[str, HeadTable]]:
    kinds = {b.label: _null_of(b, null, run.model) for b in bounds}
    scores = run.of(run.model, run.prompts, bounds, "scoring")
    beside: dict[str, dict[Site, _Scores]] = {}
    for kind in ("shuffled-tokens", "random-init"):
        mine = [b for b in bounds if kinds[b.label] == kind]
        if mine:
            beside |= run.null(kind, mine, random)
    about = run.about()
    for b in bounds:
        found = scores[b.label]
        yield b.label, _table(run.model, b, found, beside.get(b.label), kinds[b.label], about)


def _null_of(metric: Bound, null: Null, model: Model) -> Null:
    if null != "auto":
        return null
    if model.elsewhere is not None and metric.analysis.default_null == "random-init":
        return "none"  # random weights would need the room on this machine
    return metric.analysis.default_null


def _from_weights(
    model: Model, metric: Bound, null: Null, seed: int, random: _Lazy, tell: Progress
) -> HeadTable:
    tell(metric.label, 0, 1)
    kind = "random-init" if null in ("auto", "random-init") else "none"  # weights read no tokens
    values = _exact(metric.from_weights(model))
    beside = _exact(metric.from_weights(random.get())) if kind == "random-init" else None
    tell(metric.label, 1, 1)
    about = {"prompts": "none: weights only", "seed": seed, "engine": "weights"}
    return _table(model, metric, values, beside, kind, about)


def _from_experiment(
    model: Model, metric: Bound, null: Null, seed: int, random: _Lazy, tell: Progress
) -> HeadTable:
    if null == "shuffled-tokens":
        raise OptionError(
            f"{metric.label} makes its own prompts; its null is auto, random-init or none"
        )
    found = metric.experiment(model, seed, tell)
    kind, beside = "none", None
    if null == "auto" and found.null is not None:
        kind, beside = found.null_kind, found.null
    elif null != "none":
        kind = "random-init"
        by_name = {site.name: site for site in model.sites}
        drawn = metric.settled(found.settled).experiment(random.get(), seed, tell).values
        beside = {by_name[site.name]: x for site, x in drawn.items()}
    about = {"prompts": "its own", "seed": seed, "engine": "experiment"}
    about |= {"notes": [f"{k}: {v}" for k, v in found.notes.items()]}
    about |= {"headline": found.headline} if found.headline else {}
    scores = {site: _summary(x.double().cpu()) for site, x in found.values.items()}
    nulls = None if beside is None else {s: _summary(x.double().cpu()) for s, x in beside.items()}
    return _table(model, metric, scores, nulls, kind, about)


class _Lazy:
    """The random-weights model, made when first needed."""

    def __init__(self, make: Callable[[], Model]):
        self.make, self.made = make, None

    def get(self) -> Model:
        self.made = self.made or self.make()
        return self.made


@dataclass
class _Run:
    model: Model
    prompts: Prompts | Mapping[str, Tensor]
    seed: int
    batch_size: int
    engine: str
    tell: Progress

    def of(
        self, model: Model, prompts: Any, bounds: Sequence[Bound], what: str
    ) -> dict[str, dict[Site, _Scores]]:
        total = len(self.model.sites) * len(batches(model, prompts, self.batch_size))
        done = 0
        self.tell(what, 0, total)

        def advance() -> None:
            nonlocal done
            done += 1
            self.tell(what, done, total)

        per_prompt = reduce_patterns(
            model,
            prompts,
            bounds,
            batch_size=self.batch_size,
            engine=self.engine,
            advance=advance,
        )
        return {
            p.bound.label: {site: _summary(p.of(site)) for site in p.values} for p in per_prompt
        }

    def null(
        self, kind: str, bounds: Sequence[Bound], random: _Lazy
    ) -> dict[str, dict[Site, _Scores]]:
        if kind == "random-init":
            found = self.of(random.get(), self.prompts, bounds, "null: random weights")
            by_name = {s.name: s for s in self.model.sites}
            return {
                label: {by_name[s.name]: v for s, v in sites.items()}
                for label, sites in found.items()
            }
        if not isinstance(self.prompts, Prompts):
            raise PromptError(
                f"{self.model.name} reads no tokens, so there are none to shuffle; "
                "use null='random-init'"
            )
        first = bos_id(self.model)
        keep = first is not None and all(p[0] == first for p in self.prompts.ids)
        return self.of(
            self.model, self.prompts.shuffled(self.seed, keep), bounds, "null: shuffled tokens"
        )

    def about(self) -> dict[str, Any]:
        if isinstance(self.prompts, Prompts):
            longest = max(map(len, self.prompts.ids))
            what = {
                "prompts": self.prompts.design,
                "prompts_hash": self.prompts.hash,
                "longest": longest,
            }
            what["n_prompts"] = len(self.prompts)
        else:
            what = {
                "prompts": f"given {', '.join(sorted(self.prompts))}",
                "prompts_hash": _tensor_hash(self.prompts),
            }
        return what | {"seed": self.seed, "engine": engine_used(self.model, self.engine)}


def _tensor_hash(inputs: Mapping[str, Tensor]) -> str:
    import hashlib

    digest = hashlib.sha256()
    for name, x in sorted(inputs.items()):
        digest.update(name.encode())
        digest.update(x.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _summary(values: Tensor) -> _Scores:
    """Mean and standard error over the prompts that had rows; `[prompt, head]` in."""
    x = values.numpy()
    counted = ~np.isnan(x).any(1)
    n = int(counted.sum())
    x = x[counted]
    if n == 0:
        nothing = np.full(values.shape[1], np.nan)
        return _Scores(nothing, nothing, 0)
    sem = x.std(0, ddof=1) / np.sqrt(n) if n > 1 else np.full(x.shape[1], np.nan)
    return _Scores(x.mean(0), sem, n)


def _exact(values: Mapping[Site, Tensor]) -> dict[Site, _Scores]:
    found = {}
    for site, x in values.items():
        score = x.detach().double().cpu().numpy()
        found[site] = _Scores(score, np.full(score.shape, np.nan), 1)
    return found


def random_init(model: Model, seed: int) -> Model:
    """The same architecture with fresh random weights; the global generator stays as it was."""
    from interp.model.model import Model
    from interp.model.probe import probe

    with drawn_with(seed):
        module = model.untrained()
    name = f"{model.name} (random weights)"
    if model.ranks is None and {s.module for s in model.sites} <= {
        at for at, _ in module.named_modules()
    }:
        # The same class: its sites lie where they were found. Looked for anew they could be missed,
        # for where random weights write next to nothing, one stream looks like another.
        return Model(module, name, model.sites, model.tokenizer)
    return probe(module, name, model.tokenizer)


def _table(
    model: Model,
    metric: Bound,
    scores: Mapping[Site, _Scores],
    null: Mapping[Site, _Scores] | None,
    null_kind: str,
    about: Mapping[str, Any],
) -> HeadTable:
    records = []
    by_name = {} if null is None else {s.name: v for s, v in null.items()}
    for site, s in scores.items():
        beside = by_name.get(site.name)
        records.append(
            {
                "model": model.name,
                "stack": site.stack,
                "layer": site.layer,
                "metric": metric.label,
                "score": s.score,
                "sem": s.sem,
                "n": s.n,
                "null": None if beside is None else beside.score,
                "null_sem": None if beside is None else beside.sem,
                "unit": metric.analysis.unit,
                "n_kv_heads": site.n_kv_heads,
            }
        )
    provenance = model_provenance(model) | {
        "options": dict(metric.options),
        "null": null_kind,
        "edits": list(model.active_edits),
        "made_by": f"interp.score: {metric.analysis!r}",
    }
    provenance |= dict(about)
    return HeadTable.from_records(records, {(model.name, metric.label): provenance})
