"""Word alignments of all cross-attention heads, judged by gold alignments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from interp.alignment.links import (
    alignment_error_rate,
    count_links,
    covered,
    forward_steps,
    gold_matrices,
    largest_links,
    require_rows,
    word_weights,
)
from interp.alignment.pair_file import side_words
from interp.alignment.pairs import EncodedPairs, encode_pairs
from interp.alignment.result import HeadAlignments, best_of_layers
from interp.core.errors import OptionError, PromptError
from interp.core.head import Head
from interp.core.protocols import Progress, silent
from interp.core.statistics import holm
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.model.content import result_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

Array = np.ndarray
GoldNull = Literal["shuffled", "other"]
NULL_KINDS = {
    "shuffled": "gold links with the source words of each sentence shuffled",
    "other": "gold links of another sentence",
}


@takes_model
def word_alignment(
    model: Model,
    pairs: Any,
    *,
    rows: Literal["both", "emits", "fed"] = "both",
    select: float = 0.5,
    null: GoldNull = "shuffled",
    n_random: int = 999,
    seed: int = 0,
    batch_size: int = 16,
    progress: Progress | None = None,
) -> HeadAlignments:
    """Compare the word alignments of every cross-attention head with gold alignments.

    A target word is linked to the source word with the largest weight: summed over the tokens of
    the source word, averaged over the rows of the target word, special tokens left out. Heads are
    chosen on some of the pairs and judged on the others.

    Args:
        model: the encoder-decoder model.
        pairs: sentence pairs with gold alignments; see `encode_pairs`.
        rows: the decoder row that stands for a target word: "emits" is the row that predicts it,
            "fed" the next one, which reads it.
        select: share of the pairs on which the best heads are chosen; the others judge.
        null: "shuffled" keeps the links of a sentence and shuffles its source words; "other" takes
            the links of another sentence, which are similar where word order is similar.
        n_random: number of draws of the null.
        seed: seed of the split and of the null.
        batch_size: pairs per forward pass.
        progress: called after each batch.

    Reference: Och and Ney 2003 (error rate); Chen et al. 2020, "Accurate Word Alignment Induction
    from Neural Machine Translation" (the row that is fed the word).

    Raises:
        OptionError: the model has no cross attention, or an option is out of range.
        PromptError: there are fewer than four pairs, or one without a gold alignment.

    Unit: share of links that are wrong or missing, 0 to 1.

    Cost: One forward pass per batch of pairs.

    Null: the gold links of shuffled source words, or of another sentence.

    Not for: showing that the model uses a head: a head can align and write nothing.
    `translation_heads` ablates.
    """
    kinds = require_rows(rows)
    if null not in NULL_KINDS:
        raise OptionError(f"null={null!r} is not known; known: {', '.join(NULL_KINDS)}")
    if not 0 < select < 1 or n_random < 1:
        raise OptionError(
            f"select={select}, n_random={n_random}: select lies between 0 and 1, and at least "
            "one draw of the null is needed"
        )
    encoded = encode_pairs(model, pairs)
    missing = [i for i, pair in enumerate(encoded.pairs) if pair.sure is None and not pair.possible]
    if missing:
        raise PromptError(
            f"pair {missing[0]} has no gold alignment; give one to every pair, such as "
            '"alignment": "0-0 1-1"'
        )
    n = len(encoded)
    if n < 4:
        raise PromptError(f"{n} pairs given; heads are chosen and judged on four or more")
    order = np.random.default_rng(seed).permutation(n)
    cut = min(max(1, round(select * n)), n - 2)
    chosen, judged = sorted(order[:cut].tolist()), sorted(order[cut:].tolist())
    progress = progress or silent
    of: list[Head] = []
    named: list[str] = []
    links: list[Array] = []
    for at, weights in enumerate(pair_weights(model, encoded, kinds, batch_size)):
        progress("aligning", at + 1, n)
        if not of:
            of = [h for kind in kinds for h in weights.heads]
            named = [kind for kind in kinds for _ in weights.heads]
        links.append(np.concatenate([largest_links(weights.weights[kind]) for kind in kinds]))
    gold = [gold_matrices(pair) for pair in encoded.pairs]
    counts = np.stack([_counted(x, *g) for x, g in zip(links, gold, strict=True)], 1)
    drawn = _null_draws(links, gold, judged, null, n_random, seed)
    score = alignment_error_rate(*counts[:, judged].sum(1).T)
    p = (1 + (drawn <= score).sum(0)) / (1 + len(drawn))
    on_chosen = alignment_error_rate(*counts[:, chosen].sum(1).T)
    longest = max(links[i].shape[1] for i in judged)
    padded = [
        np.pad(links[i], ((0, 0), (0, longest - links[i].shape[1])), constant_values=-1)
        for i in judged
    ]
    return HeadAlignments(
        tuple(of),
        tuple(named),
        counts[:, judged],
        counts[:, chosen],
        np.stack([_steps(links[i], encoded.source_words[i]) for i in judged], 1),
        np.stack(padded, 1),
        tuple(_listed(encoded, i) for i in judged),
        tuple(judged),
        drawn.mean(0),
        p,
        holm(p),
        best_of_layers(on_chosen, [head.layer for head in of]),
        NULL_KINDS[null],
        result_provenance(
            model,
            "interp.alignment.word_alignment",
            encoded.prompts,
            seed=seed,
            rows=rows,
            select=select,
            null=null,
            null_draws=n_random,
        ),
    )


class PairWeights:
    """Attention between the words of one pair, for every cross-attention head.

    Args:
        heads: the heads, in the order of the first axis of the weights.
        weights: by convention, `[head, target, source]`.
    """

    def __init__(self, heads: Sequence[Head], weights: Mapping[str, Array]) -> None:
        self.heads, self.weights = tuple(heads), weights


def pair_weights(
    model: Model, encoded: EncodedPairs, kinds: Sequence[Any], batch_size: int
) -> Iterator[PairWeights]:
    """Yield the word-level attention of every pair, in order."""
    start = 0
    for batch in model.batches(encoded.prompts, batch_size):
        patterns: dict[Site, Tensor] = {}

        def visit(
            site: Site, call: Call, real: Tensor, patterns: dict[Site, Tensor] = patterns
        ) -> None:
            if site.stack == "cross":
                model.require_finite(call, site)
                patterns[site] = call.pattern().double().cpu()

        model.read(batch, visit, last=1)
        sites = sorted(patterns, key=lambda site: site.layer)
        heads = [Head(s.layer, h, "cross") for s in sites for h in range(s.n_heads)]
        whole = torch.cat([patterns[site] for site in sites], 1)
        for row, keys in enumerate(batch.ids):
            at = start + row
            pair = encoded.pairs[at]
            pattern = whole[row, :, : len(encoded.prompts.decoder.ids[at]), : len(keys)].numpy()  # type: ignore[union-attr]
            size = len(side_words(pair.source)), len(side_words(pair.target))
            yield PairWeights(
                heads,
                {
                    kind: word_weights(
                        pattern, encoded.source_words[at], encoded.label_words[at], size, kind
                    )
                    for kind in kinds
                },
            )
        start += len(batch)


def _counted(links: Array, sure: Array, possible: Array) -> Array:
    return np.stack(count_links(links, sure, possible), -1)


def _steps(links: Array, source_words: Sequence[int]) -> Array:
    """Return counts of `HeadAlignments.steps`; special tokens are no words of the source."""
    forward, neighbours = forward_steps(links)
    whole = np.full(len(links), len({word for word in source_words if word >= 0}))
    return np.stack([covered(links, max(source_words) + 1), whole, forward, neighbours], -1)


def _listed(encoded: EncodedPairs, at: int) -> Array:
    """Return the gold links of a pair as rows: source, target, 1 if sure."""
    pair = encoded.pairs[at]
    rows = [(s, t, int((s, t) in (pair.sure or ()))) for s, t in sorted(pair.possible)]
    return np.array(rows, np.int64).reshape(-1, 3)


def _null_draws(
    links: Sequence[Array],
    gold: Sequence[tuple[Array, Array]],
    judged: Sequence[int],
    null: GoldNull,
    draws: int,
    seed: int,
) -> Array:
    """Return the error rate of every row against gold of the null, `[draw, row]`."""
    rng = np.random.default_rng([seed, 1])
    totals = np.zeros((draws, len(links[0]), 4), np.int64)
    if null == "shuffled":
        for i in judged:
            sure, possible = gold[i]
            order = rng.permuted(np.tile(np.arange(sure.shape[1]), (draws, 1)), axis=1)
            known = links[i] >= 0
            at = order[:, np.where(known, links[i], 0)]  # [draw, row, target]
            targets = np.arange(len(sure))
            totals[..., 0] += known.sum(1)
            totals[..., 1] += sure.sum()
            totals[..., 2] += (sure[targets, at] & known).sum(-1)
            totals[..., 3] += (possible[targets, at] & known).sum(-1)
    else:
        for draw in range(draws):
            order = rng.permutation(judged).tolist()
            for i, other in zip(order, [*order[1:], order[0]], strict=True):
                totals[draw] += _counted(links[i], *gold[other])
    return alignment_error_rate(*np.moveaxis(totals, -1, 0))
