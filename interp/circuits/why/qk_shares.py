"""Exact shares of a head's attention score over pairs of upstream writers.

    found = qk_shares(model, "L1H2", prompts, at="induction")
    found.top(5), found.side("key"), found.plot()

With the scale of each norm held at its value in the run, queries and keys are sums over what was
written to the stream before them: the embedding, positions, heads, MLPs and biases. The score is
then a sum over pairs of a query writer and a key writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from interp.circuits.why.batches import asked_heads, asked_prompts, decomposed
from interp.circuits.why.positions import STRONGEST, Places
from interp.circuits.why.score_parts import ScoreParts, added_scores
from interp.circuits.why.shares import ADDED, QKShares, joined_shares
from interp.circuits.why.stream_parts import MOST_FEATURES, StreamDictionary, StreamParts
from interp.core.errors import OptionError, UnknownName
from interp.model.content import model_provenance
from interp.model.locate.norms import HELD_NORMS
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.core.prompts import Prompts
    from interp.model.calls.sites import Site
    from interp.model.head_arguments import HeadsLike
    from interp.model.model import Model

NullOfShares = Literal["keys", "random-weights", "none"]
NULLS = ("keys", "random-weights", "none")
_PAIRS = 512  # pairs of positions multiplied at once
_Found = dict[int, dict[tuple[str, str], tuple[float, float, float, float]]]


@takes_model
def qk_shares(
    model: Model,
    heads: HeadsLike,
    prompts: Any,
    *,
    at: Any = STRONGEST,
    dictionaries: Sequence[StreamDictionary] = (),
    features: int = MOST_FEATURES,
    null: NullOfShares = "keys",
    seed: int = 0,
) -> QKShares:
    """Split the attention scores of heads over pairs of upstream writers.

    The terms sum to the score before the softmax (and before a soft-cap); the sum is compared with
    the model's own score, and a difference above 1e-5 of the largest score is an error. Rotary
    positions act on each part, norms of queries and keys keep their scale, and with grouped queries
    a head reads the keys of its group. ALiBi and relative positions are a part of their own.

    Args:
        model: The model.
        heads: One head or several, such as "L1H2".
        prompts: Texts or lists of token ids, of any lengths.
        at: The positions: "strongest" (each query's most attended key), the name of a detector such
            as "induction", a predicate as of a detector, or pairs of positions.
        dictionaries: Features of the stream that stand in place of the writers before them; see
            `StreamDictionary`.
        features: Number of features with a row of their own.
        null: "keys": the mean of the term over all visible keys, which is its expected value for a
            key drawn at random; "random-weights": the term in a copy of the model with random
            weights at the same positions; "none".
        seed: Seed of the random weights.

    Raises:
        UnreadableAttention: Scores are not a product of one query and key, the stream is not a
            plain sum, or the terms do not sum to the score.
        OptionError: There is no such head, or the rule names no positions.

    Unit: Attention score (logit of the softmax).

    Cost: A forward pass and one more over random unit vectors per batch of prompts.

    Null: The mean of the term over the visible keys, or random weights.

    Not for: effects of an upstream head through layers in between; every term is a direct path.
        See `check_shares` for what removing a writer does.

    Reference: Kamath et al. 2025, "Tracing Attention Computation Through Feature Interactions".
    """
    if null not in NULLS:
        raise UnknownName("null", null, NULLS)
    if null == "random-weights" and dictionaries:
        raise OptionError("features have no meaning in random weights; use null='keys'")
    chosen, given, places = asked_heads(model, heads), asked_prompts(model, prompts), Places(at)
    result = _shares(model, chosen, given, places, dictionaries, features)
    if null == "none":
        result = replace(result, nulls=np.full(len(result), np.nan), null_kind=null)
    if null == "random-weights":
        result = replace(
            result, nulls=_random(model, chosen, given, places, result, seed), null_kind=null
        )
    provenance = model_provenance(model) | {
        "made_by": "interp.circuits.qk_shares",
        "norms": HELD_NORMS,
        "options": {
            "heads": list(result.names),
            "at": places.label,
            "null": null,
            "seed": seed,
            "dictionaries": [f"{d.site} of layer {d.layer}" for d in dictionaries],
        },
        "prompts": {"design": given.design, "n": len(given), "hash": given.hash},
        "prompts_hash": given.hash,
        "prompt_ids": list(given.prompt_ids),
    }
    return replace(result, made=provenance)


def _shares(
    model: Model,
    chosen: Sequence[tuple[Site, int]],
    given: Prompts,
    places: Places,
    dictionaries: Sequence[StreamDictionary],
    features: int,
) -> QKShares:
    terms: list[_Found] = [{} for _ in chosen]
    errors, pairs = [0.0] * len(chosen), [[0] * len(given) for _ in chosen]
    for which, run in decomposed(model, given):
        stream, added = StreamParts(run, dictionaries, features), added_scores(run)
        for h, (site, head) in enumerate(chosen):
            parts = ScoreParts(stream, added[site], site, head)
            errors[h] = max(errors[h], parts.error)
            for row, number in enumerate(which):
                at = places.of(model, given.part([number]), parts.seen[row], parts.pattern[row])
                pairs[h][number] = len(at)
                if at:
                    terms[h][number] = score_terms(parts, row, at)
    if not any(terms):
        raise OptionError(
            f"no prompt has a position of the rule {places.label!r}; give prompts with such "
            "positions, or another rule"
        )
    capped = any(x[3] == x[3] for t in terms for one in t.values() for x in one.values())
    return joined_shares(
        [
            _of_head(model.name, site, head, t, n, error, places.label, given, capped)
            for (site, head), t, n, error in zip(chosen, terms, pairs, errors, strict=True)
        ]
    )


def score_terms(
    parts: ScoreParts, row: int, at: Sequence[tuple[int, int]]
) -> dict[tuple[str, str], tuple[float, float, float, float]]:
    """Return the mean term, relative term, spread and capped term of each pair of writers."""
    q, k, means = parts.q[row], parts.k[row], parts.key_means(row)
    n = len(parts.names)
    total, relative, capped = (torch.zeros(n, n, dtype=torch.float64) for _ in range(3))
    place = torch.tensor(list(at))
    product = parts.product[row][place[:, 0], place[:, 1]]
    ratio = torch.ones_like(product)
    if parts.added.cap is not None:
        large = product.abs() > 1e-12
        ratio[large] = parts.added.capped(product[large]) / product[large]
    for first in range(0, len(place), _PAIRS):
        i, j = place[first : first + _PAIRS].unbind(1)
        some = slice(first, first + len(i))
        left, right = q[:, i] * parts.scale / len(place), k[:, j]
        total += torch.einsum("apd,bpd->ab", left, right).cpu()
        relative += torch.einsum("apd,bpd->ab", left, right - means[:, i]).cpu()
        if parts.added.cap is not None:
            weighted = left * ratio[some, None]
            capped += torch.einsum("apd,bpd->ab", weighted, right).cpu()
    if parts.added.cap is None:
        capped[:] = torch.nan
    spread = parts.spread(row).tolist()
    terms = {
        (a, b): (float(total[x, y]), float(relative[x, y]), spread[y], float(capped[x, y]))
        for x, a in enumerate(parts.names)
        for y, b in enumerate(parts.names)
    }
    bias, seen = parts.bias[row], parts.seen[row].double()
    if bool(bias.any()):
        here = bias[place[:, 0], place[:, 1]]
        mean = ((bias * seen).sum(1) / seen.sum(1).clamp_min(1))[place[:, 0]]
        value = float(here.mean())
        terms[ADDED, ADDED] = (
            value,
            float((here - mean).mean()),
            1.0,
            value if parts.added.cap is not None else float("nan"),
        )
    return terms


def _of_head(
    model: str,
    site: Site,
    head: int,
    terms: _Found,
    pairs: list[int],
    error: float,
    at: str,
    given: Prompts,
    capped: bool,
) -> QKShares:
    rows = list(dict.fromkeys(name for one in terms.values() for name in one))
    values = np.full((4, len(rows), len(given)), np.nan)
    for number, one in terms.items():
        for i, name in enumerate(rows):  # a feature that is silent in a prompt adds nothing
            values[:, i, number] = one.get(name, (0.0, 0.0, 0.0, 0.0 if capped else np.nan))
    mean = np.nanmean(values[:2], axis=2) if rows and terms else np.zeros((2, len(rows)))
    name = f"L{site.layer}H{head}"
    clusters = given.clusters
    return QKShares(
        model,
        (site.layer,) * len(rows),
        (head,) * len(rows),
        tuple(a for a, _ in rows),
        tuple(b for _, b in rows),
        values[0],
        values[1],
        mean[0] - mean[1],
        np.nanmax(values[2], axis=1) if rows else np.zeros(0),
        at,
        {name: tuple(pairs)},
        {name: error},
        np.nanmean(values[3], axis=1) if capped and rows else None,
        clusters,
    )


def _random(
    model: Model,
    chosen: Sequence[tuple[Site, int]],
    given: Prompts,
    places: Places,
    found: QKShares,
    seed: int,
) -> np.ndarray:
    from interp.model.random_weights import random_init

    other = random_init(model, seed)
    null = _shares(
        other, asked_heads(other, [(s.layer, h) for s, h in chosen]), given, places, (), 0
    )
    labels = zip(null.layers, null.heads_of, null.query_writers, null.key_writers, strict=True)
    mean = dict(zip(labels, np.nanmean(null.per_prompt, axis=1).tolist(), strict=True))
    mine = zip(found.layers, found.heads_of, found.query_writers, found.key_writers, strict=True)
    return np.array([mean.get(label, np.nan) for label in mine])
