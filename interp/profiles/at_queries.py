"""Lines on what a head does at particular queries, which a list of all its queries misses.

A line is a kind of query and a set of keys. Lines are chosen on one part of the documents and
judged on the other. The first is the one by which the attention at its queries differs most from
what position gives (KL divergence of the two shares on the keys, of one query); a further one from
what position and the lines before it give, so that of sets with the same keys one is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from interp.core.statistics import RatioBootstrap, holm, sign_flip_ps
from interp.core.ties import largest
from interp.profiles.chosen_lists import share_divergence
from interp.profiles.entries import NEXT_COPY, KeySet, QueryKind, judged_kinds
from interp.profiles.judgement import DRAWS, Number, cluster_sums, ratio
from interp.profiles.ordered_list import Page
from interp.profiles.steps import StoredArrays

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor

LINES = 3  # of a head, at most
LEAST = 0.1  # of the attention there, that a line has beyond position, and more than elsewhere
LIFT = 2.0  # times what position gives there, that a line has
LEVEL = 0.05  # of the test of a line, corrected over the lines of its head
PRIOR = 5.0  # queries whose attention is as position gives it, beside those that choose


@dataclass(frozen=True, eq=False)
class QueryLines(StoredArrays):
    """Lines of the heads of one attention.

    Args:
        line_sets: number of the set of keys of every line; -1 for no line.
        line_kinds: number of its kind of query.
        line_sums: on each window that judges, at the queries of a line: attention off the sink on
            its keys, what position gives there, and all.
        n_queries: number of queries of each kind in each of these windows.
    """

    line_sets: Int[np.ndarray, "head line"]
    line_kinds: Int[np.ndarray, "head line"]
    line_sums: Float[np.ndarray, "judged head line sum"]
    n_queries: Int[np.ndarray, "judged kind"]


def chosen_lines(
    pages: Sequence[Page], every: Sequence[KeySet]
) -> tuple[Int[Tensor, "head line"], Int[Tensor, "head line"]]:
    """Choose numbers of sets and of kinds of queries of the lines of all heads, on fitted pages.

    Sets that are limited to a kind of query by themselves, or several places, are not tried.
    """
    excluded = [
        at
        for at, one in enumerate(every)
        if one.phrase.startswith("from ") or (one.positional and not one.place)
    ]
    n_heads, n_sets = len(pages[0].mass), len(pages[0].sets.bits)
    sets, kinds = torch.full((2, n_heads, LINES), -1)
    if not len(pages[0].sets.judged):
        return sets, kinds
    rows = [page.base.exp() * page.weight[..., None] for page in pages]
    both = (torch.cat([page.mass, row]) for page, row in zip(pages, rows, strict=True))
    seen, guess = _on_sets(pages, both).split(n_heads)
    weight = sum((page.weight @ _kinds(page).T).double() for page in pages)
    assert isinstance(weight, torch.Tensor)
    share, position = _shares(seen, guess, weight), _shares(guess, guess, weight)
    beyond = seen - guess
    rest = (weight[:, -1:] - weight[:, :-1]).clamp_min(1e-9)[..., None]
    elsewhere = (beyond[:, -1:] - beyond[:, :-1]) / rest
    more = share - position
    able = (more >= LEAST) & (more - elsewhere >= LEAST) & (share >= LIFT * position)
    able[..., excluded] = False
    narrow = guess[:, -1].argsort(dim=1, stable=True)  # of tied sets the narrowest is named
    for line in range(LINES):
        expected = _shares(guess, guess, weight)
        gain = share_divergence(share, expected) * (able & (share - expected >= LEAST))
        values = gain.gather(2, narrow[:, None].expand_as(gain)).flatten(1)
        best = torch.tensor([largest(each) for each in values])
        some = values.gather(1, best[:, None])[:, 0] > 0
        sets[some, line] = narrow.gather(1, best[:, None] % n_sets)[some, 0]
        kinds[some, line] = best[some] // n_sets
        if line + 1 == LINES or not some.any():
            break
        at = some.nonzero().flatten(), kinds[some, line], sets[some, line]
        odds = (share[at] / (1 - share[at]) * (1 - expected[at]) / expected[at]).float()
        _raise_rows(rows, pages, *at, odds)
        guess[some] = _on_sets(pages, (row[some] for row in rows))
    return sets, kinds


def _kinds(page: Page) -> Float[Tensor, "kind row"]:
    """Return the kinds of queries, the last one being all."""
    return torch.nn.functional.pad(page.sets.judged.float(), (0, 0, 0, 1), value=1.0)


def _on_sets(
    pages: Sequence[Page], pairs: Iterable[Float[Tensor, "head row pos"]]
) -> Float[Tensor, "head kind set"]:
    """Sum a number over the keys of every set, at the queries of every kind."""
    total = torch.zeros(1)
    for page, values in zip(pages, pairs, strict=True):
        masks = page.sets.masks(range(page.sets.n_sets + 1)).float().permute(1, 2, 0)
        per_row = torch.bmm(values.transpose(0, 1), masks)
        of_kinds = (_kinds(page) @ per_row.flatten(1)).double()
        total = total + of_kinds.unflatten(1, per_row.shape[1:])
    return total.transpose(0, 1)


def _shares(
    values: Float[Tensor, "head kind set"],
    guess: Float[Tensor, "head kind set"],
    weight: Float[Tensor, "head kind"],
) -> Float[Tensor, "head kind set"]:
    """Return shares of the attention at every kind but all, with some more queries as expected."""
    under = weight[:, :-1, None]
    expected = guess[:, :-1] / under.clamp_min(1e-9)
    return ((values[:, :-1] + PRIOR * expected) / (under + PRIOR)).clamp(1e-9, 1 - 1e-9)


def _raise_rows(
    rows: Sequence[Float[Tensor, "head row pos"]],
    pages: Sequence[Page],
    heads: Int[Tensor, " some"],
    kinds: Int[Tensor, " some"],
    sets: Int[Tensor, " some"],
    odds: Float[Tensor, " some"],
) -> None:
    """Multiply the keys of a line of some heads, at its queries."""
    for row, page in zip(rows, pages, strict=True):
        held = page.sets.masks(sets.tolist()) & page.sets.judged[kinds][..., None]
        moved = torch.where(held, row[heads] * odds[:, None, None], row[heads])
        under = moved.sum(-1).clamp_min(1e-30)
        row[heads] = moved * (page.weight[heads] / under)[..., None]


def counted_lines(
    page: Page, sets: Int[Tensor, "head line"], kinds: Int[Tensor, "head line"]
) -> Float[np.ndarray, "head line sum"]:
    """Return what is counted of every line on one page."""
    counts = torch.zeros(*sets.shape, 3)
    known = sets >= 0
    heads = known.nonzero()[:, 0]
    if len(heads):
        at = page.sets.judged[kinds[known]]
        keys = page.sets.masks(sets[known].tolist()) & at[..., None]
        weight, guess = page.weight[heads], (page.base.exp() * page.weight[..., None])[heads]
        sums = [(x * keys).sum((1, 2)) for x in (page.mass[heads], guess)]
        counts[known] = torch.stack([*sums, (weight * at).sum(1)], 1)
    return counts.numpy()


@dataclass(frozen=True)
class QueryLine:
    """Share of a head's attention at the queries of one kind on one set of keys.

    Args:
        rule: name of the set of keys.
        kind: the kind of query.
        phrase: the words after "goes".
        per_text: queries of the kind per document that judges.
        share: of the attention off the sink at these queries.
        position: the same of the rows that position predicts.
        n: number of documents that judge and have such queries.
        p: of no difference, by sign flips over documents, corrected over the lines of the head.
    """

    rule: str
    kind: QueryKind
    phrase: str
    per_text: float
    share: Number
    position: float
    n: int
    p: float

    @property
    def name(self) -> str:
        """Name in tables."""
        return f"{self.rule} {self.kind.limit}"

    def plain(self) -> dict[str, Any]:
        """Return the line as plain data."""
        plain = {k: x for k, x in vars(self).items() if k != "kind"} | {"name": self.name}
        return plain | {"queries": self.kind.words, "share": self.share.plain()}


def judged_lines(
    found: QueryLines,
    sets: Sequence[KeySet],
    clusters: Sequence[int],
    head: int,
    seed: int,
) -> list[QueryLine]:
    """Return the lines of a head that hold on the documents that did not choose them.

    Their intervals are over the documents that have such queries.
    """
    names, at = np.unique(np.asarray(clusters), return_inverse=True)
    sums = cluster_sums(found.line_sums[:, head].astype(np.float64), at, len(names))
    mass, guess, weight = sums[:, found.line_sets[head] >= 0].transpose(2, 1, 0)
    p = holm(sign_flip_ps(mass - guess)) if len(mass) else ()
    every = [*judged_kinds().values()]
    rules, per_text = [*(one.rule for one in sets), NEXT_COPY], found.n_queries.sum(0) / len(names)
    lines = []
    for line, corrected in enumerate(p):
        if corrected >= LEVEL:
            continue
        some = weight[line] > 0
        n = int(some.sum())
        draws = RatioBootstrap(n, draws=DRAWS, seed=seed)
        share = ratio(draws, mass[line, some], weight[line, some])
        position = float(guess[line].sum() / max(weight[line].sum(), 1e-9))
        if share.value >= max(position + LEAST, LIFT * position):
            rule, kind = rules[found.line_sets[head, line]], int(found.line_kinds[head, line])
            lines.append(
                QueryLine(
                    rule.name,
                    every[kind],
                    rule.phrase,
                    float(per_text[kind]),
                    share,
                    position,
                    n,
                    float(corrected),
                )
            )
    return lines
