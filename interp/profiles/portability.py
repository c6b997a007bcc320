"""Portability of descriptions: fitted on one corpus, judged on others."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from interp.core.errors import OptionError
from interp.core.presenter import present
from interp.core.result_rows import ResultRows
from interp.core.statistics import RatioBootstrap
from interp.model.content import model_provenance
from interp.model.model_argument import one_model
from interp.model.segments import special_ids
from interp.profiles.corpus import DocumentCorpus, Sample, TextWindow, sample_corpus
from interp.profiles.explain import Description, describe
from interp.profiles.first_look import Look, first_look, groups_of
from interp.profiles.judgement import DRAWS, PROBABILITIES, cluster_sums, ratio
from interp.profiles.result import EXPLAINED, head_name
from interp.profiles.rows_read import described_sites
from interp.profiles.rules import chosen_rules
from interp.profiles.run import live_rules, next_document, wanted_heads
from interp.profiles.sampled import text_sample
from interp.profiles.second_look import CONTROLS, MEASURES, RUNGS, JudgedRows, second_look
from interp.profiles.steps import ProfileSteps, StoredArrays
from interp.profiles.token_model import token_vectors

if TYPE_CHECKING:
    from interp.core.protocols import Progress
    from interp.model.model import Model
    from interp.profiles.rules import KeyRule

Alteration = Literal["first_token", "packed"]


def portability(
    model: Any,
    corpora: Mapping[str, Any],
    *,
    alter: Sequence[Alteration] = (),
    field: str = "text",
    rules: Iterable[str | KeyRule | Any] | None = None,
    heads: Sequence[str] | None = None,
    n_documents: int = 200,
    n_queries: int | None = 32,
    max_length: int = 256,
    seed: int = 0,
    resume: str | os.PathLike | None = None,
    progress: Progress | None = None,
) -> ResultRows:
    """Fit the description of every head on one corpus, and judge it on the others.

    A description that explains a head on the text that suggested it may fail on other text: on
    code, in dialogue, with another first token, in packed documents. All descriptions are fitted on
    one half of their corpus, and all are judged on the other halves.

    Args:
        model: a model, or anything that `interp.load` accepts.
        corpora: by name, what `interp.profile` accepts as a corpus.
        alter: further corpora, made of the windows of each: "first_token" takes away the first
            token that the tokenizer adds, or puts one where it adds none; "packed" joins documents
            up to the longest window.
        field: field or column of the text, or of token ids.
        rules: see `interp.profile`, as the next ones.
        heads: heads to describe; all by default.
        n_documents: number of random documents of each corpus.
        n_queries: number of random queries read of each document; None: all.
        max_length: longest window, in tokens.
        seed: seed of every random choice.
        resume: folder with finished steps, from which a run that was stopped goes on.
        progress: called with the name of the step, the steps done and their number.

    Returns:
        A row per head, corpus of the fit and corpus of the judgement. `score` is the share of the
        pattern that the rules explain there, `position` that of position; `lost` is what the rules
        of the judged corpus itself explain more. `labels` are rules that describe the head on the
        corpus of the fit, `gone` those of them to which it does not attend beyond position on the
        other one. Intervals are over documents.

    Raises:
        PromptError: a corpus cannot be read, or has too few distinct documents.
        OptionError: there are fewer than two corpora, or an option does not fit.
        UnknownName: there is no such rule or head.
    """
    loaded = one_model(model)
    sites = described_sites(loaded)
    wanted = wanted_heads(loaded, sites, heads)
    sites = [site for site in sites if any(s is site for s, _ in wanted)]
    size = {"n_documents": n_documents, "n_queries": n_queries, "max_length": max_length}
    samples = {
        name: text_sample(loaded, sites, source, field, resume, progress, seed=seed, **size)
        for name, source in corpora.items()
    }
    for name, sample in [*samples.items()]:
        for change in alter:
            rows, altered = _altered(sample.windows, loaded, change)
            samples[f"{name}, {altered}"] = sample_corpus(
                DocumentCorpus(rows), loaded, seed=seed, **size
            )
    if len(samples) < 2:
        raise OptionError(
            "give at least two corpora, or alter one: a description is carried from one to another"
        )
    chosen = chosen_rules(rules, loaded.tokenizer is not None)
    ids = np.concatenate([window.ids for sample in samples.values() for window in sample.windows])
    fitting = [w.ids for sample in samples.values() for w in sample.windows if w.part == 0]
    vectors, n_fitted = token_vectors(loaded, ids), len(fitting) // len(samples)
    look = Look(loaded, sites, chosen, vectors, fitting, n_fitted)
    steps = ProfileSteps(
        loaded,
        samples,
        chosen,
        [site.name for site in sites],
        size,
        resume=resume,
        progress=progress,
        total=len(samples) * (len(samples) + 1),
        name="portability",
    )
    names = [*samples]
    fitted = steps.phase(
        [f"description {at}" for at in range(len(names))],
        lambda at: _fitted(look, samples[names[at]], steps.advance),
        Description,
        [1] * len(names),
    )
    pairs = [(start, to) for to in range(len(names)) for start in range(len(names))]
    judged = steps.phase(
        [f"judged {start} {to}" for start, to in pairs],
        lambda at: _judged(look, fitted[pairs[at][0]], samples[names[pairs[at][1]]], seed, steps),
        _Sums,
        [1] * len(pairs),
    )
    by_pair = {
        (names[start], names[to]): one for (start, to), one in zip(pairs, judged, strict=True)
    }
    rows, quantiles = _rows(look, by_pair, samples, wanted, seed)
    provenance = model_provenance(loaded) | {
        "corpora": {name: dict(sample.facts, hash=sample.hash) for name, sample in samples.items()},
        "rules": [rule.name for rule in chosen],
        "made_by": "interp.profiles.portability",
        "options": size,
        "seed": seed,
    }
    return ResultRows(
        "Portability",
        rows,
        ("stack", "layer", "head", "fitted_on", "judged_on"),
        provenance,
        {"metric": "explained_rules", "unit": EXPLAINED, "probabilities": list(PROBABILITIES)},
        why_no_per_prompt="a share is a ratio of sums over documents",
        arrays={"quantiles": np.array(quantiles)},
        by="lost",
    )


def _altered(
    windows: Sequence[TextWindow], model: Model, change: str
) -> tuple[list[tuple[int, ...]], str]:
    """Return the changed windows as token ids, and what was changed."""
    if change not in ("first_token", "packed"):
        raise OptionError(f"alter={change!r} is not known; known are first_token and packed")
    special = special_ids(model)
    names = ("bos_token_id", "cls_token_id", "eos_token_id")
    known = (getattr(model.tokenizer, name, None) for name in names)
    first = next((x for x in known if x is not None), None)
    starts = [window.ids[0] in special for window in windows]
    if change == "first_token" and all(starts):
        return [window.ids[1:] for window in windows], "without first token"
    if first is None:
        raise OptionError(
            f"{model.name} has no tokenizer with a first or last token; leave out {change}"
        )
    if change == "first_token":
        return [(first, *window.ids) for window in windows], "with first token"
    longest = max(len(window.ids) for window in windows)
    stream = [
        x for window in windows for x in (first, *window.ids[int(window.ids[0] in special) :])
    ]
    cut = range(0, len(stream) - longest + 1, longest)
    return [tuple(stream[at : at + longest]) for at in cut], "packed"


def _fitted(look: Look, sample: Sample, advance: Callable[[], Any]) -> Description:
    """Fit all rungs on the documents of part 0."""
    windows = sample.windows
    groups = [group for group in groups_of(windows) if windows[group[0]].part == 0]
    sums = [first_look(look, [windows[i] for i in group], lambda: None) for group in groups]
    live, _ = live_rules(look, sample)
    description = describe(look, windows, groups, sums, live, lambda: None)
    advance()
    return description


def _judged(
    look: Look, description: Description, sample: Sample, seed: int, steps: ProfileSteps
) -> _Sums:
    """Judge a description on the documents of part 1."""
    rest = [w for w in sample.windows if w.part == 1]
    others = [next_document(rest, at) for at in range(len(rest))]
    judged = second_look(look, rest, others, description, seed, lambda: None)
    steps.advance()
    return _Sums.of(judged, rest, description.rules.numpy())


LEAST_SHARE = 0.05  # of the attention off the sink, from which a rule is named


@dataclass(frozen=True, eq=False)
class _Sums(StoredArrays):
    """Sums per document of a description on a corpus, and the parameters of its rules."""

    nats: np.ndarray  # document, head, rung
    weight: np.ndarray  # document, head
    total: np.ndarray  # document, head, rule
    expected: np.ndarray
    parameters: np.ndarray  # head, rule

    @classmethod
    def of(cls, judged: JudgedRows, windows: Sequence[TextWindow], parameters: np.ndarray) -> _Sums:
        names, at = np.unique([window.cluster for window in windows], return_inverse=True)
        weight = judged.measures[..., MEASURES.index("weight")]
        every = (judged.nats, weight, judged.total, judged.expected)
        return cls(
            *(cluster_sums(x.astype(np.float64), at, len(names)) for x in every),
            parameters=parameters,
        )

    def left(self, head: int, rung: str) -> np.ndarray:
        """Return what a rung leaves unexplained, of every document."""
        return self.nats[:, head, (*RUNGS, *CONTROLS).index(rung)]

    def held(self, head: int, draws: RatioBootstrap) -> set[int]:
        """Return the rules to which a head attends beyond position, by enough and for sure."""
        under = self.weight[:, head]
        rules = set()
        for rule in np.flatnonzero(self.parameters[head] > 0).tolist():
            more = self.total[:, head, rule] - self.expected[:, head, rule]
            if more.sum() < LEAST_SHARE / 2 * under.sum():
                continue
            if self.total[:, head, rule].sum() < LEAST_SHARE * under.sum():
                continue
            if draws.interval(more, under)[0] > 0:
                rules.add(rule)
        return rules

    def reached(self, head: int, rule: int, draws: RatioBootstrap) -> bool:
        """Return True if a head puts more on a rule's keys than position does, for sure."""
        more = self.total[:, head, rule] - self.expected[:, head, rule]
        return draws.interval(more, self.weight[:, head])[0] > 0


def _rows(
    look: Look,
    found: Mapping[tuple[str, str], _Sums],
    samples: Mapping[str, Sample],
    wanted: Sequence[tuple],
    seed: int,
) -> tuple[list[dict[str, Any]], list[tuple[float, ...]]]:
    draws = {
        name: RatioBootstrap(len(found[name, name].nats), draws=DRAWS, seed=seed)
        for name in samples
    }
    many = len({site.stack for site in look.sites}) > 1
    rows, quantiles = [], []
    for site, h in wanted:
        head = look.places[site].start + h
        held = {name: found[name, name].held(head, draws[name]) for name in samples}
        for start, to in found:
            mine, native = found[start, to], found[to, to]
            even = mine.left(head, "uniform")
            gone = {rule for rule in held[start] if not native.reached(head, rule, draws[to])}
            share = ratio(draws[to], even - mine.left(head, "rules"), even)
            quantiles.append(share.quantiles)
            less = mine.left(head, "rules") - native.left(head, "rules")
            ends = draws[to].interval(less, even)
            whole = float(even.sum()) if even.sum() > 0 else float("nan")
            rows.append(
                {
                    "stack": site.stack,
                    "layer": site.layer,
                    "head": h,
                    "name": head_name(site.stack, site.layer, h, many),
                    "fitted_on": start,
                    "judged_on": to,
                    "score": share.value,
                    "low": share.low,
                    "high": share.high,
                    "position": float((even - mine.left(head, "position")).sum() / whole),
                    "lost": float(less.sum() / whole),
                    "lost_low": ends[0],
                    "lost_high": ends[1],
                    "labels": ", ".join(look.rules[k].name for k in sorted(held[start])),
                    "gone": ", ".join(look.rules[k].name for k in sorted(gone)),
                    "n": len(even),
                }
            )
    return rows, quantiles


present(
    "Portability",
    summary="interp.report.printed.portability:portability_summary",
    plot="interp.report.printed.portability:portability_figure",
    first_line="interp.report.printed.portability:portability_line",
    text="interp.report.printed.portability:portability_text",
)
