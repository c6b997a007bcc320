"""Choice of the entries of ordered lists: at most five, greedily on one part of the documents.

On top of the model of position come first the places to which a head attends (where distance
explains a fifth of its pattern), then sets of keys to which it attends more than position says,
each possibly from one kind of query, then those that it avoids.

What one entry f adds to a row model q is known in closed form but for one number:

    max over lambda of  sum over rows of  w (lambda P_f - log(1 - Q_f + Q_f exp(lambda))),

P_f and Q_f being what the head and q put on the entry's keys that no entry before it holds. Pooled
over rows this is a bound from below; the sets with the largest bounds are then fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from interp.core.ties import largest
from interp.profiles.list_refit import newton_step, ridge_of
from interp.profiles.ordered_list import ENTRIES, GROUPS, Lists, Page, in_groups

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor

PLACES = 3
PLACED = 0.2  # share of the pattern that distance must explain for a list to begin with places
LEAST_PLACE = 0.1  # share of the attention off the sink from which a place is named
LEAST_GAIN = 0.005  # share of the pattern that an entry must add
LEAST_NATS = 0.005  # per unit of attention off the sink, that it must add
CHOOSING = 64  # pages on which entries are chosen, at most; all of them fit the chosen ones
SHRINKAGE = 5e-5  # of all attention, that every token gets beside what is observed
OUTSIDE = 0.1  # share of a set's attention on keys of no entry up to which it is an inner set
NAMED = 0.9  # share of the best gain from which a fixed set goes before a group of tokens
_SCREENED = 6
_STEPS = 6
_LARGEST = 10.0  # nats of a parameter
_SETTLED = 0.05  # nats of a step after which parameters are no longer moved


def chosen_lists(
    pages: Sequence[Page],
    n_types: int,
    places: Sequence[int],
    excluded: Sequence[int],
    distance: Float[Tensor, " head"],
    pattern: Float[Tensor, " head"],
) -> Lists:
    """Choose and fit the lists of the heads of one attention.

    `places` are the numbers of the sets that are distances, `excluded` those that are no entries of
    their own for all queries; `distance` is the share of the pattern that distance explains, and
    `pattern` the nats of the pattern per unit of attention.
    """
    n_heads = len(pages[0].mass)
    lists = Lists(
        torch.full((n_heads, ENTRIES), -1),
        torch.zeros(n_heads, ENTRIES, dtype=torch.long),
        torch.zeros(n_heads, ENTRIES),
        torch.ones(3, n_heads, n_types),
        torch.zeros(n_heads, n_types),
        torch.zeros(n_heads, dtype=torch.long),
    )
    _choose_places(lists, pages, places, distance)
    _find_favoured(lists, pages)
    order = np.random.default_rng(0).permutation(len(pages))[:CHOOSING]
    pages = [pages[at] for at in sorted(order)]
    least = (LEAST_GAIN * pattern).clamp_min(LEAST_NATS)
    avoids = torch.zeros(n_heads, dtype=torch.long)  # 1 from where no favoured set adds enough
    best = _Best.none(n_heads)
    stale = torch.ones(n_heads, dtype=torch.bool)
    while True:
        _find_best(best, lists, pages, [*places, *excluded], stale)
        which, of_query, gain, inner = best.of(avoids.clamp_max(1))
        adds = (lists.length < ENTRIES) & (avoids < 2) & (gain >= least)
        for head in adds.nonzero().flatten().tolist():
            at = int(lists.n_places[head] if inner[head] else lists.length[head])
            lists.insert(head, at, int(which[head]), int(of_query[head]))
        avoids = torch.where(adds, avoids, avoids + 1)
        stale = adds
        if adds.any():
            _refit(lists, pages, adds)
        elif (avoids > 1).all():
            return lists


def _choose_places(
    lists: Lists,
    pages: Sequence[Page],
    places: Sequence[int],
    distance: Float[Tensor, " head"],
) -> None:
    """Begin the lists of heads with a pattern of distances with up to three places."""
    n_heads = len(lists.sets)
    share, total = torch.zeros(n_heads, len(places)), torch.zeros(n_heads, 1)
    for page in pages:
        masks = page.sets.masks(places).float()
        share += page.mass.flatten(1) @ masks.flatten(1).T
        total += page.weight.sum(1, keepdim=True)
    share /= total.clamp_min(1e-9)
    for head in range(n_heads):
        if distance[head] < PLACED:
            continue
        order = sorted(range(len(places)), key=lambda k: -round(float(share[head, k]), 6))
        named = [k for k in order[:PLACES] if share[head, k] >= LEAST_PLACE]
        for at, k in enumerate(named):
            lists.sets[head, at] = places[k]
        lists.n_places[head] = len(named)
    _refit(lists, pages, torch.ones(n_heads, dtype=torch.bool))


def _find_favoured(lists: Lists, pages: Sequence[Page]) -> None:
    """Find how many times what position gives each head attends to every token."""
    n_heads = len(lists.sets)
    seen, expected = torch.zeros(lists.favour.shape), torch.zeros(lists.favour.shape)
    for page in pages:
        free = page.owner == 0
        guess = torch.bmm(page.weight[:, None], page.base.exp().mul_(free))[:, 0]
        known = page.types >= 0
        at = page.types[known].expand(n_heads, -1)
        for fold in {0, 3 - page.fold}:
            seen[fold].scatter_add_(1, at, (page.mass * free).sum(1)[:, known])
            expected[fold].scatter_add_(1, at, guess[:, known])
    extra = SHRINKAGE * expected.sum(2, keepdim=True).clamp_min(1e-9)
    lists.favour[:] = (seen + extra) / (expected + extra)
    lists.observed[:] = seen[0]


@dataclass
class _Best:
    """The best next set of every head that it attends to, then of those that it avoids.

    An inner set is part of the keys of the entries beyond places, and goes before them.

    Args:
        sets: number of the set.
        kinds: of the kind of query.
        gain: nats that it adds, per unit of attention.
        inner: whether it is an inner set.
    """

    sets: Int[Tensor, "2 head"]
    kinds: Int[Tensor, "2 head"]
    gain: Float[Tensor, "2 head"]
    inner: Bool[Tensor, "2 head"]

    @classmethod
    def none(cls, n_heads: int) -> _Best:
        """Return sets that add nothing."""
        sets, kinds = torch.zeros(2, 2, n_heads, dtype=torch.long)
        gain = torch.zeros(2, n_heads)
        return cls(sets, kinds, gain, torch.zeros(2, n_heads, dtype=torch.bool))

    def of(self, avoids: Int[Tensor, " head"]) -> list[Tensor]:
        """Return set, kind of query, gain, and whether it is inner, each head's on its side."""
        every = self.sets, self.kinds, self.gain, self.inner
        return [values.gather(0, avoids[None])[0] for values in every]


def _find_best(
    best: _Best,
    lists: Lists,
    pages: Sequence[Page],
    excluded: Sequence[int],
    some: Bool[Tensor, " head"],
) -> None:
    """Find the sets of keys that add most to the lists of some heads, on each side."""
    if not some.any():
        return
    heads, n_places = some.nonzero().flatten(), lists.n_places[some, None, None]
    within = bool((lists.length > lists.n_places)[some].any())
    sums: dict[bool, tuple[list[Tensor], list[Tensor]]] = {False: ([], [])}
    if within:
        sums[True] = ([], [])
    for page in pages:
        rows = lists.rows(page, some).mul_(page.weight[some, :, None])
        owner, mass = page.owner[some], page.mass[some]
        masks = page.sets.masks().permute(1, 2, 0).float()
        inside = in_groups(lists.favour[page.fold, heads], page.types).float()
        for inner, parts in sums.items():
            open_pairs = owner > n_places if inner else owner == 0
            for values, into in zip((mass, rows), parts, strict=True):
                opened = values * open_pairs
                fixed = torch.bmm(opened.transpose(0, 1), masks).permute(2, 1, 0)
                groups = torch.einsum("hrn,ghn->ghr", opened, inside)
                into.append(torch.cat([fixed, groups]))
    weight = torch.cat([page.weight[some] for page in pages], 1)
    kind = torch.cat([page.sets.kinds for page in pages], 1).float()
    tried = {inner: _Tried.joined(*parts, weight, kind) for inner, parts in sums.items()}
    if within:
        outer, inner = tried[False], tried[True]
        covered = (outer.seen + outer.expected) <= OUTSIDE * (inner.seen + inner.expected)
        inner.bound[~covered] = -1.0
    best.gain[:, some] = 0
    for inner, one in tried.items():
        one.bound[:, list(excluded), 0] = -1.0
        for at, head in enumerate(heads.tolist()):
            one.bound[at, lists.sets[head], lists.kinds[head]] = -1.0  # of no entry: groups, all
            for side in (0, 1):
                which, of_query, gain = one.best(at, avoided=bool(side))
                if gain > best.gain[side, head]:
                    best.sets[side, head], best.kinds[side, head] = which, of_query
                    best.gain[side, head], best.inner[side, head] = gain, inner


class _Tried:
    """Attention on every set of keys of every query, and what each would add at least.

    Args:
        observed: attention of the head on the keys of a set.
        guessed: attention of the row model on them.
        weight: of the queries.
        kind: kinds of the queries.
    """

    def __init__(
        self,
        observed: Float[Tensor, "set head row"],
        guessed: Float[Tensor, "set head row"],
        weight: Float[Tensor, "head row"],
        kind: Float[Tensor, "kind row"],
    ) -> None:
        self.observed, self.guessed, self.weight, self.kind = observed, guessed, weight, kind
        total = (weight @ kind.T).clamp_min(1e-9)[:, None]
        self.seen, self.expected = ((x @ kind.T).movedim(0, 1) / total for x in (observed, guessed))
        self.bound = total * share_divergence(self.seen, self.expected)

    @classmethod
    def joined(
        cls, seen: list[Tensor], expected: list[Tensor], weight: Tensor, kind: Tensor
    ) -> _Tried:
        """Join pages."""
        return cls(torch.cat(seen, 2), torch.cat(expected, 2), weight, kind)

    def best(self, head: int, *, avoided: bool) -> tuple[int, int, float]:
        """Return set, kind of query, and gain in nats per unit of attention, of one head."""
        _, n_sets, n_kinds = self.bound.shape
        n_fixed = n_sets - len(GROUPS)
        more = self.seen[head] - self.expected[head]
        bounds = self.bound[head].masked_fill(more >= 0 if avoided else more <= 0, -1).flatten()
        parts = (bounds, bounds[: n_fixed * n_kinds])
        first = [part.topk(min(_SCREENED, len(part))).indices for part in parts]
        tried = torch.unique(torch.cat(first))
        tried = tried[bounds[tried] > 0]
        if not len(tried):
            return 0, 0, 0.0
        sets, of_query = tried // n_kinds, tried % n_kinds
        rows, weight = self.kind[of_query], self.weight[head]
        gain = _gain(
            self.observed[sets, head] * rows, self.guessed[sets, head] * rows, weight * rows
        )
        at = largest(torch.where(sets < n_fixed, gain / NAMED, gain))
        return int(sets[at]), int(of_query[at]), float(gain[at] / weight.sum().clamp_min(1e-9))


def share_divergence(p: Float[Tensor, "*x"], q: Float[Tensor, "*x"]) -> Float[Tensor, "*x"]:
    """Return the KL divergence of two shares."""
    p, q = (x.double().clamp(1e-9, 1 - 1e-9) for x in (p, q))
    return (p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()).float()


def _gain(
    seen: Float[Tensor, "set row"], expected: Float[Tensor, "set row"], weight: Tensor
) -> Float[Tensor, " set"]:
    """Return the nats that each set adds with its best parameter, by Newton on one number."""
    q = (expected / weight.clamp_min(1e-9)).clamp(0, 1 - 1e-9).double()
    weight, total = weight.double(), seen.double().sum(1)
    here = torch.zeros(len(seen), 1, dtype=torch.double)
    for _ in range(_STEPS):
        raised = q * here.exp()
        share = raised / (1 - q + raised)
        slope = total - (weight * share).sum(1)
        bend = (weight * share * (1 - share)).sum(1) + 1e-6
        here = (here + (slope / bend).clamp(-2, 2)[:, None]).clamp(-_LARGEST, _LARGEST)
    left = (weight * torch.log1p(q * torch.expm1(here))).sum(1)
    return (here[:, 0] * total - left).float()


def _refit(lists: Lists, pages: Sequence[Page], some: Bool[Tensor, " head"]) -> None:
    """Fit the parameters of all entries of the lists of some heads together, by Newton."""
    for page in pages:
        lists.own(page, some)
    seen = torch.stack([page.seen[some].sum(1) for page in pages]).sum(0)[:, 1:].double()
    guess = torch.cat([page.guess[some] for page in pages], 1)
    weight = torch.cat([page.weight[some] for page in pages], 1)
    ridge, here = ridge_of(pages)[some], lists.parameters[some].double()
    for _ in range(_STEPS):
        raised = guess * torch.nn.functional.pad(here.float(), (1, 0)).exp()[:, None]
        share = raised[..., 1:] / raised.sum(-1, keepdim=True).clamp_min(1e-30)
        weighted = share * weight[..., None]
        mean = weighted.sum(1).double()
        bend = torch.diag_embed(mean) - (weighted.mT @ share).double()
        before = here
        here = (here + newton_step(seen - mean, bend, here, ridge)).clamp(-_LARGEST, _LARGEST)
        if float((here - before).abs().max()) < _SETTLED:
            break
    lists.parameters[some] = torch.where(lists.sets[some] >= 0, here, 0).float()
