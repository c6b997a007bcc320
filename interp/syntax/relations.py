"""Best head of every relation, chosen on some sentences and evaluated on others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.core.statistics import RatioBootstrap, holm
from interp.syntax.attention import WordAttention
from interp.syntax.gold import DIRECTIONS, REACH, Gold, Hits, directed
from interp.syntax.result import Relation

Array = np.ndarray
LEAST = 5  # minimum dependents of a relation on the choosing sentences
TOGETHER = 4  # maximum heads of an ensemble (Limisiewicz et al. 2020)


def relations(
    train: WordAttention,
    test: WordAttention,
    gold: tuple[Gold, Gold],
    hits: tuple[Hits, Hits],
    *,
    random: tuple[Hits, Hits] | None = None,
    shuffled: Hits | None = None,
    seed: int = 0,
) -> list[Relation]:
    """Evaluate all relations that occur in both parts, the most frequent first."""
    choose, report = gold
    boot = RatioBootstrap(len(test), seed=seed)
    out, chances = [], []
    for name in _frequent(choose, report):
        mine, theirs = choose.relation == name, report.relation == name
        head, direction = best_head(hits[0].argmax[:, :, mine])
        offset = best_offset(choose, mine)
        base = report.offset(offset)[theirs]
        correct = hits[1].argmax[head, direction][theirs]
        top_head, top_direction = best_head(hits[1].argmax[:, :, theirs])
        together = _ensemble(train, choose, mine, hits[0].argmax[:, :, mine])
        joined = ensemble_hits(test, report, theirs, together)
        either = int(hits[0].either[:, mine].mean(-1).argmax())
        here, n = report.sentence[theirs], len(test)
        sums = [per_sentence(x, here, n) for x in (correct, base, joined, np.ones(len(here)))]
        interval, p = boot.gain(sums[0], sums[1], sums[3])
        chances.append(p)
        out.append(
            Relation(
                relation=name,
                n=int(theirs.sum()),
                train_n=int(mine.sum()),
                head=train.heads[head],
                direction=DIRECTIONS[direction],
                accuracy=float(correct.mean()),
                interval=boot.interval(sums[0], sums[3]),
                offset=offset,
                baseline=float(base.mean()),
                gain=float(correct.mean() - base.mean()),
                gain_interval=interval,
                p=p,
                oracle=float(hits[1].argmax[top_head, top_direction][theirs].mean()),
                oracle_head=f"{train.heads[top_head]} {DIRECTIONS[top_direction]}",
                ensemble=tuple(f"{train.heads[h]} {DIRECTIONS[d]}" for h, d in together),
                ensemble_accuracy=float(joined.mean()),
                ensemble_interval=boot.interval(sums[2], sums[3]),
                either=float(hits[1].either[either][theirs].mean()),
                either_head=train.heads[either],
                random=_random(random, mine, theirs),
                shuffled=(
                    float("nan")
                    if shuffled is None
                    else float(shuffled.argmax[head, direction][theirs].mean())
                ),
            )
        )
    corrected = holm(np.array(chances)) if chances else []
    return [replace(r, p=float(p)) for r, p in zip(out, corrected, strict=True)]


def per_sentence(
    values: Array, sentence: Int[Array, " dependent"], n_sentences: int
) -> Float[Array, " sentence"]:
    """Sum values by the sentence they are from."""
    return np.bincount(sentence, weights=values.astype(np.float64), minlength=n_sentences)


def best_head(found: Bool[Array, "head direction dependent"]) -> tuple[int, int]:
    """Return the head and direction that find most; the first of equal ones."""
    share = found.mean(-1)
    head, direction = np.unravel_index(int(share.argmax()), share.shape)
    return int(head), int(direction)


def best_offset(gold: Gold, mine: Bool[Array, " dependent"]) -> int:
    """Return the fixed distance that is right most often; the shortest of equal ones."""
    distances = sorted((d for d in range(-REACH, REACH + 1) if d), key=abs)
    right = [int(gold.offset(d)[mine].sum()) for d in distances]
    return distances[int(np.argmax(right))]


def candidate_rows(
    attention: WordAttention, gold: Gold, mine: Bool[Array, " dependent"], direction: int
) -> Float[Array, "head dependent word"]:
    """Return the scores of all candidate head words, with zeros beyond a sentence."""
    places = np.flatnonzero(mine)
    width = int(gold.lengths[gold.sentence[places]].max())
    out = np.zeros((len(attention.heads), len(places), width), dtype=np.float32)
    for at, i in enumerate(places):
        value = directed(attention.values[gold.sentence[i]], DIRECTIONS[direction])
        out[:, at, : value.shape[-1]] = value[:, gold.word[i]]
    return out


def _ensemble(
    attention: WordAttention,
    gold: Gold,
    mine: Bool[Array, " dependent"],
    found: Bool[Array, "head direction dependent"],
) -> list[tuple[int, int]]:
    """Choose heads of one direction one by one, while their mean finds more."""
    first, direction = best_head(found)
    rows = candidate_rows(attention, gold, mine, direction)
    target = gold.head[mine]
    chosen, total = [first], rows[first].copy()
    right = float(found[first, direction].mean())
    while len(chosen) < TOGETHER:
        shares = ((total + rows).argmax(-1) == target).mean(-1)
        shares[chosen] = -1
        more = int(shares.argmax())
        if shares[more] <= right:
            break
        right = float(shares[more])
        chosen.append(more)
        total += rows[more]
    return [(h, direction) for h in chosen]


def ensemble_hits(
    attention: WordAttention,
    gold: Gold,
    mine: Bool[Array, " dependent"],
    members: Sequence[tuple[int, int]],
) -> Bool[Array, " dependent"]:
    """Return the dependents whose head word is found by the mean of some heads."""
    out = []
    for i in np.flatnonzero(mine):
        value = attention.values[gold.sentence[i]]
        mean = sum(directed(value[h], DIRECTIONS[d])[gold.word[i]] for h, d in members)
        out.append(int(np.argmax(mean)) == gold.head[i] and float(np.max(mean)) > 0)
    return np.array(out, dtype=bool)


def _frequent(choose: Gold, report: Gold) -> list[str]:
    names, counts = np.unique(report.relation.astype(str), return_counts=True)
    known = {n for n in names if (choose.relation == n).sum() >= LEAST}
    return [str(n) for n in names[np.argsort(-counts, kind="stable")] if n in known]


def _random(hits: tuple[Hits, Hits] | None, mine: Array, theirs: Array) -> float:
    if hits is None:
        return float("nan")
    head, direction = best_head(hits[0].argmax[:, :, mine])
    return float(hits[1].argmax[head, direction][theirs].mean())
