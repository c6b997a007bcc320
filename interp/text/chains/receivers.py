"""Receiver heads: heads whose attention from far behind goes to few sentences of a long text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from interp.cache.windows import cached_heads, cached_sites
from interp.core.clusters import score_columns
from interp.core.errors import OptionError, UnknownName
from interp.core.head import Head
from interp.core.presenter import present
from interp.core.prompts import Prompts
from interp.core.protocols import Progress, silent
from interp.core.result_rows import ResultRows
from interp.core.statistics import finite_mean
from interp.core.ties import ordered, ranked
from interp.draw.parts import FoundPart, result_part
from interp.model.content import result_provenance
from interp.model.model_argument import takes_model
from interp.text.chains.chain import Chain
from interp.text.chains.vertical import APART, vertical_scores, visit_sentence_attention

if TYPE_CHECKING:
    from interp.model.calls.sites import Site
    from interp.model.model import Model
    from interp.text.chains.vertical import SentencePairs

HEADS = 20
"""Receiver heads in the published analysis."""


def receiver_rows(
    heads: Sequence[Head],
    kurtosis: Float[np.ndarray, "head chain"],
    null: Float[np.ndarray, "head chain"],
    vertical: Float[np.ndarray, "head sentence"],
    of_chain: Int[np.ndarray, " sentence"],
    texts: tuple[str, ...],
    chains: tuple[str, ...],
    made: Mapping[str, Any],
) -> ResultRows:
    """Return a row per head; see `receiver_heads` for columns and facts."""
    known = score_columns(kurtosis)
    columns = {
        "layer": [h.layer for h in heads],
        "head": [h.head for h in heads],
        "stack": [h.stack for h in heads],
        "score": known["score"],
        "sem": known["sem"],
        "null": finite_mean(null),
        "n": known["n"],
        "far_attention": np.nanmean(vertical, axis=1) if len(heads) else [],
    }
    facts = {
        "metric": "receiver kurtosis",
        "unit": "excess kurtosis",
        "of_chain": of_chain,
        "texts": texts,
        "chains": chains,
    }
    return ResultRows(
        "ReceiverHeads",
        columns,
        ("layer", "head"),
        made,
        facts,
        kurtosis,
        arrays={"null_kurtosis": null, "vertical": vertical},
    )


def largest_receivers(
    found: ResultRows, k: int = HEADS, chains: Sequence[int] | None = None
) -> tuple[Head, ...]:
    """Return the k heads of largest mean kurtosis, the largest first, on some chains or on all."""
    values = found.per_prompt if chains is None else found.per_prompt[:, list(chains)]
    order = ordered(finite_mean(values))
    heads = found.heads()
    return tuple(heads[i] for i in order[:k])


def received_scores(
    found: ResultRows, chain: str, heads: Sequence[Head] | None = None
) -> np.ndarray:
    """Return the vertical score of each sentence of a chain, averaged over heads."""
    if chain not in found.chains:
        raise UnknownName("chain", chain, found.chains)
    names = found.heads()
    wanted = largest_receivers(found) if heads is None else tuple(heads)
    if missing := [str(h) for h in wanted if h not in names]:
        raise OptionError(f"heads {', '.join(missing)} are not among the rows")
    rows = [names.index(h) for h in wanted]
    return found.vertical[np.ix_(rows, found.of_chain == found.chains.index(chain))].mean(0)


@takes_model
def receiver_heads(
    model: Model,
    chains: Sequence[Chain],
    *,
    min_distance: int = APART,
    null: bool = True,
    beyond: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> ResultRows:
    """Score how narrowly each head attends to single sentences of long texts, from far behind.

    The vertical score of a sentence is the mean attention to it from all sentences at least
    `min_distance` later; the score of a head is the excess (Fisher) kurtosis of its vertical scores
    over sentences, averaged over chains. Heads with a high score attend to few sentences: they are
    receivers. A beginning-of-sequence token belongs to no sentence, so an attention sink on it does
    not count. Kurtosis does not depend on how much a head attends: `far_attention`, the mean
    vertical score, shows which heads hardly attend far behind at all.

    Args:
        model: the model.
        chains: texts in sentences; heads chosen on some should be judged on others.
        min_distance: least distance in sentences; 4 in the published analysis.
        null: also score the chains with their tokens in random order.
        beyond: allow more tokens than the config states.
        seed: seed of the random order.
        progress: callback with the name of the step, the steps done and their total.

    Returns:
        One row per head: layer, head, stack, score (kurtosis, mean over chains) with sem, null, n
        and far_attention. `per_prompt` is the kurtosis on each chain, NaN where a head scores all
        sentences equally. By row: null_kurtosis, `[head, chain]`, and vertical, the vertical score
        of every sentence of all chains. Facts: of_chain, the chain of each sentence; texts, the
        sentences; chains, the names. `received_scores` returns the scores of the sentences
        of a chain.

    Raises:
        PromptError: a chain has too few sentences or too many tokens.
        OptionError: there are no chains, or the model has no causal attention over tokens.

    Unit: excess kurtosis; 0 for a Gaussian, negative where all sentences receive alike.

    Null: the same chains with the tokens of their sentences in random order.

    Cost: One forward pass per chain, two with the null; memory linear in the tokens.

    Reference: Bogdan et al. 2025, "Thought Anchors: Which LLM Reasoning Steps Matter?".

    Not for: texts of few sentences: the kurtosis of a handful of numbers says little.
    """
    if not chains:
        raise OptionError("no chains given; give at least one Chain")
    names = tuple(c.name for c in chains)
    if len(set(names)) < len(names):
        raise OptionError("two chains have the same name; give each its own name=")
    progress = progress or silent
    scores, nulls = [], []
    for done, chain in enumerate(chains, 1):
        scores.append(_vertical(model, chain, min_distance, beyond))
        if null:
            nulls.append(_vertical(model, chain.shuffled(seed), min_distance, beyond))
        progress("chains", done, len(chains))
    kurtosis = np.stack([_kurtosis(v) for v in scores], 1)
    provenance = result_provenance(
        model,
        "interp.text.chains.receiver_heads",
        Prompts(tuple(c.ids for c in chains), "chains"),
        seed=seed,
        engine="streamed",
        apart=min_distance,
        null=null,
        beyond=beyond,
    )
    return receiver_rows(
        cached_heads(model),
        kurtosis,
        np.stack([_kurtosis(v) for v in nulls], 1) if null else np.full_like(kurtosis, np.nan),
        np.concatenate(scores, 1),
        np.concatenate([np.full(len(c), i) for i, c in enumerate(chains)]),
        tuple(t for c in chains for t in c.texts),
        names,
        provenance,
    )


def _vertical(model: Model, chain: Chain, apart: int, beyond: bool) -> np.ndarray:
    scores: dict[Any, np.ndarray] = {}

    def use(site: Site, pairs: SentencePairs) -> None:
        scores[site] = vertical_scores(pairs, apart)

    visit_sentence_attention(model, chain, use, beyond=beyond)
    return np.concatenate([scores[site] for site in cached_sites(model)])


def _kurtosis(vertical: Float[np.ndarray, "head sentence"]) -> Float[np.ndarray, " head"]:
    """Return the biased excess kurtosis over sentences; NaN where all are equal."""
    seen = vertical[:, np.isfinite(vertical).all(0)]
    centred = seen - seen.mean(1, keepdims=True)
    variance = (centred**2).mean(1)
    flat = variance <= (1e-9 * np.abs(seen).max(1)) ** 2
    fourth = (centred**4).mean(1)
    return np.where(flat, np.nan, fourth / np.where(flat, 1, variance) ** 2 - 3)


def receiver_heads_summary(found: ResultRows) -> str:
    """Return the heads of largest kurtosis."""
    largest = np.sort(found.score)[::-1]
    first = ", ".join(
        f"{h} {k:.1f}" for h, k in zip(largest_receivers(found, 3), largest, strict=False)
    )
    return f"ReceiverHeads on {len(found.chains)} chains, largest kurtosis: {first}"


def receivers_part(found: ResultRows) -> FoundPart:
    """Return the heads whose attention from far behind goes to few sentences."""
    frame: Any = ranked(found.to_pandas(), "score")
    notes = {}
    for row in frame.to_dict("records"):
        null = "" if row["null"] != row["null"] else f", {row['null']:.2f} with shuffled tokens"
        error = "" if row["sem"] != row["sem"] else f" ± {row['sem']:.2g}"
        notes[_label(row)] = (
            f"Receiver head: kurtosis {row['score']:.2f}{error} over sentences{null}, on "
            f"{row['n']} texts"
        )
    text = f"{found}. Null: the tokens of each text in random order."
    first = [_label(row) for row in frame.head(3).to_dict("records")]
    return result_part(found, "anchors", "Receiver heads", text, frame, heads=first, notes=notes)


def _label(row: Any) -> str:
    label = f"L{row['layer']}H{row['head']}"
    return label if row["stack"] in (None, "decoder") else f"{row['stack']} {label}"


present("ReceiverHeads", summary=receiver_heads_summary, part=receivers_part)
