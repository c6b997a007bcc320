"""Trees from single heads, from joined heads and from baselines, with their accuracy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from interp.core.statistics import RatioBootstrap
from interp.syntax.attention import WordAttention
from interp.syntax.gold import DIRECTIONS, PUNCT, argmax_words, base, directed
from interp.syntax.result import SPANNING, Trees
from interp.syntax.spanning import arborescence, arborescence_all, prim, prim_all, rooted
from interp.syntax.treebank import Sentence

Array = np.ndarray
GOLD_ROOT = "arborescence, gold root"
FOUND_ROOT = "arborescence, predicted root"
JOINED = "spanning tree of joined heads"
TOGETHER = 4  # maximum number of joined heads
CANDIDATES = 48  # number of heads tried for directed trees, ranked by single words
JOINABLE = 12  # number of heads that may be joined, ranked by their own trees
NAN = (float("nan"), float("nan"))

# Function that returns the score of every (dependent, head) pair of a sentence, by its index.
Scorer = Callable[[int], Float[Array, "dependent head"]]


@dataclass(frozen=True)
class CountedWords:
    """Sentence restricted to the counted words: all of them, or all but punctuation."""

    kept: Array  # indices of the words
    heads: Array  # gold heads among them; -1 for a root or an excluded head

    @classmethod
    def of(cls, sentence: Sentence, punct: bool) -> CountedWords:
        """Return the words of a sentence, with punctuation or without."""
        words = [i for i, r in enumerate(sentence.relations) if punct or base(r) != PUNCT]
        place = {w: at for at, w in enumerate(words)}
        heads = [place.get(sentence.heads[w], -1) for w in words]
        return cls(np.array(words, dtype=np.int64), np.array(heads, dtype=np.int64))

    @property
    def edges(self) -> int:
        """Count the gold edges among the words."""
        return int((self.heads >= 0).sum())

    def of_score(self, score: Array) -> Array:
        """Return the scores among the words, ready for a tree."""
        part = score[..., self.kept[:, None], self.kept[None, :]]
        return np.ascontiguousarray(part, dtype=np.float64)

    def undirected(self, parents: Array) -> Array:
        """Count the gold edges among parents `[..., word]`."""
        at = np.arange(len(self.heads))
        has = self.heads >= 0
        right = (parents == self.heads) & has
        gold_head = np.where(has, self.heads, 0)
        # the reversed gold edge (w, h): h is attached to w
        turned = (
            np.take_along_axis(parents, np.broadcast_to(gold_head, parents.shape), -1) == at
        ) & has
        return (right | turned).sum(-1)

    def directed(self, heads: Array) -> Array:
        """Count the words that are given their gold head."""
        return ((heads == self.heads) & (self.heads >= 0)).sum(-1)


def words_that_count(sentences: Sequence[Sentence], punct: bool) -> list[CountedWords]:
    """Restrict every sentence to the counted words."""
    return [CountedWords.of(s, punct) for s in sentences]


def uuas_by_head(attention: WordAttention, parts: Sequence[CountedWords]) -> Float[Array, " head"]:
    """Return the share of gold edges in the undirected spanning trees of every head."""
    correct = np.zeros(len(attention.heads))
    total = 0
    for value, part in zip(attention.values, parts, strict=True):
        if part.edges:
            correct += part.undirected(prim_all(part.of_score(value)))
            total += part.edges
    return correct / max(total, 1)


def choose_directed(attention: WordAttention, parts: Sequence[CountedWords]) -> tuple[int, str]:
    """Choose the head and direction whose directed trees from the gold root are best.

    Only the heads with the most correct single words are tried.
    """
    single = np.zeros((len(attention.heads), len(DIRECTIONS)))
    for value, part in zip(attention.values, parts, strict=True):
        for d, direction in enumerate(DIRECTIONS):
            picked = argmax_words(part.of_score(directed(value, direction)))
            single[:, d] += part.directed(picked)
    order = np.argsort(-single.max(1), kind="stable")[:CANDIDATES]
    correct = np.zeros((len(order), len(DIRECTIONS)))
    for value, part in zip(attention.values, parts, strict=True):
        if not part.edges:
            continue
        for d, direction in enumerate(DIRECTIONS):
            score = part.of_score(directed(value[order], direction))
            correct[:, d] += part.directed(arborescence_all(score, root_of(part)))
    head, direction = np.unravel_index(int(correct.argmax()), correct.shape)
    return int(order[head]), DIRECTIONS[int(direction)]


def choose_joined(
    attention: WordAttention, parts: Sequence[CountedWords], uuas: Float[Array, " head"]
) -> list[int]:
    """Choose heads whose mean makes the best trees, added one by one while they help."""
    pool = np.argsort(-uuas, kind="stable")[:JOINABLE]
    chosen, best = [int(pool[0])], float(uuas[pool[0]])
    while len(chosen) < TOGETHER:
        more = [int(h) for h in pool if h not in chosen]
        if not more:
            break
        correct, total = np.zeros(len(more)), 0
        for value, part in zip(attention.values, parts, strict=True):
            if part.edges:
                sums = value[chosen].sum(0) + value[more]
                correct += part.undirected(prim_all(part.of_score(sums)))
                total += part.edges
        at = int(correct.argmax())
        if correct[at] / max(total, 1) <= best:
            break
        best = float(correct[at] / total)
        chosen.append(more[at])
    return chosen


def root_of(part: CountedWords) -> int:
    """Return the gold root, or the first word attached to an excluded word."""
    return int(np.flatnonzero(part.heads < 0)[0])


@dataclass(frozen=True)
class Made:
    """Counts of one method of making trees, per sentence."""

    undirected: Float[Array, " sentence"]
    directed: Float[Array, " sentence"] | None
    edges: Float[Array, " sentence"]
    words: Float[Array, " sentence"]  # number of words in the directed count

    def trees(
        self,
        boot: RatioBootstrap,
        method: str,
        heads: Sequence[str],
        direction: str,
        punct: bool,
        *,
        baseline: bool = False,
    ) -> Trees:
        """Return the shares with their intervals."""
        correct = self.directed
        total = float(self.edges.sum())
        return Trees(
            method=method,
            heads=tuple(heads),
            direction=direction,
            punct=punct,
            uuas=float(self.undirected.sum()) / max(total, 1),
            uuas_interval=boot.interval(self.undirected, self.edges),
            uas=float("nan")
            if correct is None
            else float(correct.sum() / max(self.words.sum(), 1)),
            uas_interval=NAN if correct is None else boot.interval(correct, self.words),
            edges=int(total),
            baseline=baseline,
        )


def make_trees(parts: Sequence[CountedWords], scorer: Scorer, method: str) -> Made:
    """Make the trees of one method for every sentence.

    Predicted roots are counted too: a root is correct if it is also the gold root.
    """
    und, dire, edges, words = (np.zeros(len(parts)) for _ in range(4))
    for at, part in enumerate(parts):
        if len(part.kept) < 2 or not part.edges:
            continue
        heads, is_directed = tree(part, scorer(at), method)
        edges[at] = part.edges
        und[at] = part.undirected(heads)
        if is_directed:
            dire[at] = part.directed(heads)
            words[at] = part.edges
            if method == FOUND_ROOT:
                dire[at] += float(((heads < 0) & (part.heads < 0)).sum())
                words[at] += float((part.heads < 0).sum())
    return Made(und, dire if method not in (SPANNING, JOINED) else None, edges, words)


def tree(
    part: CountedWords, score: Float[Array, "dependent head"], method: str
) -> tuple[Array, bool]:
    """Return the heads of one sentence's words, and whether they have a direction."""
    score = part.of_score(score)
    if method in (SPANNING, JOINED):
        return prim(score), False
    if method == FOUND_ROOT:
        return rooted(score), True
    return arborescence(score, root_of(part)), True


def chain(parts: Sequence[CountedWords], step: int) -> Made:
    """Attach every word to the next one (step 1) or the previous one (-1)."""
    und, dire, edges = (np.zeros(len(parts)) for _ in range(3))
    for at, part in enumerate(parts):
        n = len(part.kept)
        heads = np.arange(n) + step
        heads[(heads < 0) | (heads >= n)] = -1
        und[at], dire[at], edges[at] = part.undirected(heads), part.directed(heads), part.edges
    return Made(und, dire, edges, edges)
