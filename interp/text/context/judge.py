"""Judging of ways to find the sources of an answer, on documents with known sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from interp.cache.confidence import best_separating, fit_confidence, source_shares
from interp.core.errors import OptionError, PromptError, UnknownName
from interp.core.prompts import Prompts
from interp.core.protocols import Progress, silent
from interp.core.result_rows import ResultRows
from interp.core.ties import ordered
from interp.model.content import result_provenance
from interp.model.model_argument import takes_model
from interp.text.chains.chain import Chain, require_answer
from interp.text.context.judgement import judgement_rows, source_precision
from interp.text.context.ways import (
    BASELINE,
    CONTEXT_WAYS,
    FOUND_BY,
    attention_by_head,
    gradient_by_sentence,
    left_out,
    ridge_of_ablations,
)

if TYPE_CHECKING:
    from interp.model.model import Model


@takes_model
def judge_sources(
    model: Model,
    chains: Sequence[Chain],
    *,
    methods: Sequence[str] = FOUND_BY,
    n_heads: int | None = None,
    held_out: float = 0.5,
    candidates: int | None = None,
    n_ablations: int = 64,
    batch_size: int = 4,
    beyond: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> ResultRows:
    """Measure how often each way finds the known sources of answers, on held-out documents.

    For segments of needle prompts too long to intervene on, use `cache.attribute_context`.

    Heads are chosen, and the confidence is calibrated (isotonic regression of the truth on a
    sentence's share of the document's score), on some documents; all numbers are of the others.

    Args:
        model: the model.
        chains: documents with question, answer and known sources, such as `linked_chains(...)`.
        methods: any of `CONTEXT_WAYS`.
        n_heads: number of heads of the way `heads`, those that best separate sources from the rest;
            by default an eighth of all, at least 1 and at most 8.
        held_out: share of the documents on which the ways are judged.
        candidates: intervene only on this many sentences per document, those with most attention
            by the chosen heads (by all, if `heads` is not among the ways); all by default.
        n_ablations: random sets of hidden sentences of the way `ablations`.
        batch_size: interventions per forward pass.
        beyond: allow more tokens than the config states.
        seed: seed of the division and of the ablations.
        progress: callback with the name of the step, the steps done and their total.

    Returns:
        One row per way, and for the baseline `position`: score, the precision at k on held-out
        documents, and the scores of its stated confidence; null is a random order. Intervals are t
        intervals over documents, extended to Wilson's interval of a share of as many documents.
        Facts: random, the null per document; truth, whether each sentence of all held-out documents
        is a source; heads_used, the chosen heads of the way `heads`, best first; documents, the
        names of the held-out ones; answered, whether the model gives each answer itself (where it
        does not, there is no source to be found). By row: confidence, `[way, sentence]`, the stated
        probability of a source; share_points and probability_points, its calibration.

    Raises:
        PromptError: there are fewer than two documents, or one has no known source.
        OptionError: an option is out of range, or a document has no answer.
        UnknownName: a way is not known.

    Unit: precision at k, with k the number of sources of a document.

    Null: sentences in random order; and `position`, which reads nothing.

    Reference: Cohen-Wang et al. 2024, "ContextCite: Attributing Model Generation to Context";
    Chuang et al. 2024, "Lookback Lens"; the choice of heads and the calibration: this project.

    Not for: documents unlike those on which a way is used later: heads and confidence are of
    these.

    Cost: That of `answer_sources`, for every document.
    """
    check_ways(methods)
    if (n_heads is not None and n_heads < 1) or not 0 < held_out < 1:
        raise OptionError(
            f"n_heads={n_heads}, held_out={held_out}: n_heads is at least 1, held_out between 0 "
            "and 1"
        )
    if len(chains) < 2:
        raise PromptError(
            f"{len(chains)} document: heads are chosen on some and judged on others; give at least "
            "two"
        )
    for chain in chains:
        require_answer(chain)
        if not chain.sources:
            raise PromptError(f"{chain.name} has no known source; give its sources=")
    order = np.random.default_rng(seed).permutation(len(chains))
    cut = min(max(1, round(held_out * len(chains))), len(chains) - 1)
    judged, fit = order[:cut], order[cut:]
    progress, attention, right, names = progress or silent, [], [], ()
    for done, chain in enumerate(chains, 1):
        names, mass, hit = attention_by_head(model, chain, beyond=beyond)
        attention.append(mass)
        right.append(hit)
        progress("attention", done, len(chains))
    n_heads = max(1, min(8, len(names) // 8)) if n_heads is None else n_heads
    known_sources = [_truth(chains[i]) for i in fit]
    picked = best_separating([attention[i] for i in fit], known_sources, n_heads)
    scored = []
    for done, (chain, mass) in enumerate(zip(chains, attention, strict=True), 1):
        scored.append(
            scores_by_way(
                model,
                chain,
                mass,
                ways=methods,
                picked=picked,
                candidates=candidates,
                ablations=n_ablations,
                batch_size=batch_size,
                beyond=beyond,
                seed=seed,
            )[0]
        )
        progress("documents", done, len(chains))
    labels = (*(w for w in FOUND_BY if w in methods), BASELINE)
    truth = np.concatenate([_truth(chains[i]) for i in judged])
    precision, stated, points = [], [], []
    for way in labels:
        mine = [scored[i][way] for i in judged]
        precision.append(
            [
                source_precision(s, np.array(chains[i].sources))
                for s, i in zip(mine, judged, strict=True)
            ]
        )
        known = np.concatenate([source_shares(scored[i][way]) for i in fit])
        x, y = fit_confidence(known, np.concatenate(known_sources))
        points.append((x, y))
        stated.append(np.interp(np.concatenate([source_shares(s) for s in mine]), x, y))
    provenance = result_provenance(
        model,
        "interp.text.context.judge_sources",
        Prompts(tuple(c.prompt for c in chains), "documents"),
        seed=seed,
        engine="streamed",
        k=n_heads,
        held_out=held_out,
        candidates=candidates,
        ablations=n_ablations,
        beyond=beyond,
    )
    facts = {
        "truth": truth,
        "heads_used": tuple(names[i] for i in picked) if "heads" in methods else (),
        "documents": tuple(chains[i].name for i in judged),
        "answered": tuple(right[i] for i in judged),
    }
    random = np.array([len(chains[i].sources) / len(chains[i]) for i in judged])
    return judgement_rows(
        labels, np.array(precision), random, np.array(stated), points, facts, provenance
    )


def check_ways(ways: Sequence[str]) -> None:
    """Raise if a way is not known."""
    for way in ways:
        if way not in CONTEXT_WAYS:
            raise UnknownName("way to find sources", way, CONTEXT_WAYS)
    if not ways:
        raise OptionError(f"no way to find sources; give some of {', '.join(CONTEXT_WAYS)}")


def scores_by_way(
    model: Model,
    chain: Chain,
    mass: np.ndarray,
    *,
    ways: Sequence[str],
    picked: Sequence[int],
    candidates: int | None,
    ablations: int,
    batch_size: int,
    beyond: bool,
    seed: int,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], float]:
    """Return scores of a document by way, their standard errors, and the fit of the ridge."""
    scores: dict[str, np.ndarray] = {BASELINE: np.arange(1.0, len(chain) + 1)}
    sems: dict[str, np.ndarray] = {}
    fit = np.nan
    by_heads = mass[list(picked)].sum(0) if len(picked) else mass.mean(0)
    order = np.array(ordered(by_heads if "heads" in ways else mass.mean(0)), dtype=int)
    among = sorted(order[: len(chain) if candidates is None else candidates].tolist())
    if "attention" in ways:
        scores["attention"] = mass.mean(0)
    if "heads" in ways:
        scores["heads"] = by_heads
    if "gradient" in ways:
        scores["gradient"] = gradient_by_sentence(model, chain, beyond=beyond)
    if "ablations" in ways:
        ridge = ridge_of_ablations(
            model, chain, among, ablations=ablations, batch_size=batch_size, seed=seed
        )
        scores["ablations"], sems["ablations"], fit = ridge.weights, ridge.sems, ridge.held_out
    if "leave_one_out" in ways:
        scores["leave_one_out"] = left_out(model, chain, among, batch_size=batch_size)
    return scores, sems, fit


def _truth(chain: Chain) -> np.ndarray:
    marks = np.zeros(len(chain), dtype=bool)
    marks[list(chain.sources)] = True
    return marks
