"""A head as an ordered list of at most five sets of keys, of which the first match counts.

Entries are chosen greedily on one part of the documents, on top of the model of position: first the
places to which a head attends (where distance explains a fifth of its pattern), then sets of keys
to which it attends more than position says, each possibly from one kind of query, then those that
it avoids. What one entry f adds to a row model q is known in closed form but for one number:

    max over lambda of  sum over rows of  w (lambda P_f - log(1 - Q_f + Q_f exp(lambda))),

P_f and Q_f being what the head and q put on the entry's keys that no entry before it holds. Pooled
over rows this is a bound from below; the sets with the largest bounds are then fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from interp.core.ties import largest
from interp.profiles.entries import WindowSets
from interp.profiles.log_linear import RIDGE, log_rows

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor

ENTRIES = 5
PLACES = 3
PLACED = 0.2  # share of the pattern that distance must explain for a list to begin with places
LEAST_PLACE = 0.1  # share of the attention off the sink from which a place is named
LEAST_GAIN = 0.005  # share of the pattern that an entry must add
LEAST_NATS = 0.005  # per unit of attention off the sink, that it must add
CHOOSING = 64  # pages on which entries are chosen, at most; all of them fit the chosen ones
GROUPS = ((3.0, 1e9), (1.6, 1e9), (0.0, 0.3), (0.0, 0.6))
"""Groups of tokens by how many times what position gives a head attends to them."""
SHRINKAGE = 5e-5  # of all attention, that every token gets beside what is observed
OUTSIDE = 0.1  # share of a set's attention on keys of no entry up to which it is an inner set
NAMED = 0.9  # share of the best gain from which a fixed set goes before a group of tokens
_SCREENED = 6
_STEPS = 6
_JOINT = 5  # passes in which position and entries are fitted together
_LARGEST = 10.0  # nats of a parameter
_SETTLED = 0.05  # nats of a step after which parameters are no longer moved
_EVERY = 4  # pages per page whose curvature is summed


@dataclass(eq=False)
class Page:
    """Rows of the heads of one attention on one document, with the sets of keys to choose from.

    Args:
        mass: attention off the sink; rows sum to `weight`.
        visible: keys that a query may see, without the sink.
        weight: attention of every query off the sink.
        base: log probabilities of the model of position.
        sets: the sets of keys, and the kinds of queries, the first of which holds all.
        types: number of the token of every position; -1 for one that the fit has not seen.
        owner: number of the entry, from 1, that holds each pair; 0 where none does.
        fold: which of the estimates of favoured tokens it uses; see `Lists`.
        seen: attention of every query on the keys of no entry, then of every entry.
        guess: what the model of position puts there, of 1.
    """

    mass: Float[Tensor, "head row pos"]
    visible: Bool[Tensor, "row pos"]
    weight: Float[Tensor, "head row"]
    base: Float[Tensor, "head row pos"]
    sets: WindowSets
    types: Int[Tensor, " pos"]
    owner: Int[Tensor, "head row pos"]
    fold: int = 0
    seen: Float[Tensor, "head row owner"] = field(init=False)
    guess: Float[Tensor, "head row owner"] = field(init=False)

    def __post_init__(self) -> None:
        self.seen, self.guess = torch.zeros(2, *self.weight.shape, ENTRIES + 1)

    @cached_property
    def by_position(self) -> Float[Tensor, "head row"]:
        """KL divergence of every row from the model of position, in nats, times its weight."""
        negentropy = torch.special.xlogy(self.mass, self.mass).sum(-1)
        negentropy -= torch.special.xlogy(self.weight, self.weight)
        return negentropy - (self.mass * self.base.clamp_min(-50)).sum(-1)

    def on(self, base: Float[Tensor, "head row pos"]) -> Page:
        """Return the page with another model of position."""
        page = replace(self, base=base)
        page.seen, page.guess = self.seen, on_entries(base.exp(), self.owner)
        return page

    def apart(self, sets: WindowSets, types: Int[Tensor, " pos"]) -> Page:
        """Return the page with other sets and tokens, whose pairs are given to no entry yet."""
        return replace(self, sets=sets, types=types, owner=torch.zeros_like(self.owner))

    def nats(self, parameters: Float[Tensor, "head entry"]) -> Float[Tensor, " head"]:
        """Return the divergence from the model of position and entries, over all rows."""
        values = torch.nn.functional.pad(parameters, (1, 0))[:, None]
        left = torch.log((self.guess * values.exp()).sum(-1).clamp_min(1e-30))
        return (self.by_position - (self.seen * values).sum(-1) + self.weight * left).sum(1)


@dataclass(frozen=True, eq=False)
class Lists:
    """Ordered lists of some heads.

    Args:
        sets: number of the set of every entry; those after the fixed sets are the `GROUPS`, and -1
            is no entry.
        kinds: number of the kind of query of every entry.
        parameters: of every entry, in nats.
        favour: how many times what position gives a head attends to each token, on keys of no
            place of its list: of all pages of the fit, then of each half of them, by which the
            other half is read, so that no page tells its own favourites.
        observed: attention on each token there, on all pages of the fit.
        n_places: entries that are places, of all queries; they come first.
    """

    sets: Int[Tensor, "head entry"]
    kinds: Int[Tensor, "head entry"]
    parameters: Float[Tensor, "head entry"]
    favour: Float[Tensor, "3 head token"]
    observed: Float[Tensor, "head token"]
    n_places: Int[Tensor, " head"]

    @property
    def length(self) -> Int[Tensor, " head"]:
        """Number of entries of each list."""
        return (self.sets >= 0).sum(1)

    def rolled(self) -> Lists:
        """Return the lists, each given to the next head."""
        return Lists(
            self.sets.roll(1, 0),
            self.kinds.roll(1, 0),
            self.parameters.roll(1, 0),
            self.favour.roll(1, 1),
            self.observed.roll(1, 0),
            self.n_places.roll(1, 0),
        )

    def insert(self, head: int, at: int, which: int, kind: int) -> None:
        """Put an entry into a list, before the entries from a place on."""
        for values, new in ((self.sets, which), (self.kinds, kind)):
            values[head, at + 1 :] = values[head, at:-1].clone()
            values[head, at] = new
        self.parameters[head, at + 1 :] = self.parameters[head, at:-1].clone()

    def own(self, page: Page, some: Bool[Tensor, " head"] | None = None) -> None:
        """Give every pair of some heads to the first entry that names it."""
        moved = torch.ones(len(self.sets), dtype=torch.bool) if some is None else some
        heads, sets, fixed = moved.nonzero().flatten(), self.sets[moved], page.sets.n_sets
        used = torch.unique(sets[(sets >= 0) & (sets < fixed)])
        masks = torch.nn.functional.pad(page.sets.masks(used.tolist()), (0, 0, 0, 0, 0, 1))
        at = torch.searchsorted(used, sets).masked_fill((sets < 0) | (sets >= fixed), len(used))
        held = masks[at]
        of_group, entry = (sets >= fixed).nonzero(as_tuple=True)
        ratio = of_tokens(self.favour[page.fold, heads[of_group]], page.types)
        low, high = torch.tensor(GROUPS).T[:, sets[of_group, entry] - fixed, None]
        held[of_group, entry] = ((ratio >= low) & (ratio < high))[:, None]
        held &= page.sets.kinds[self.kinds[moved]][..., None]
        owner = torch.zeros(len(heads), *page.visible.shape, dtype=torch.int8)
        for number in range(ENTRIES, 0, -1):
            owner.masked_fill_(held[:, number - 1], number)
        owner *= page.visible
        page.owner[moved] = owner
        page.seen[moved] = on_entries(page.mass[moved], owner)
        page.guess[moved] = on_entries(page.base[moved].exp(), owner)

    def rows(self, page: Page, some: Bool[Tensor, " head"]) -> Float[Tensor, "head row pos"]:
        """Return the probabilities of the row model of the lists of some heads."""
        raised = parameters_at(self.parameters[some], page.owner[some]).add_(page.base[some]).exp_()
        return raised.div_(raised.sum(-1, keepdim=True).clamp_min(1e-30))

    def keep(self, held: Bool[Tensor, "head entry"]) -> None:
        """Keep some entries of every list, in their order."""
        order = torch.argsort((~held).int(), dim=1, stable=True)
        gone = ~held.gather(1, order)
        for values, none in ((self.sets, -1), (self.kinds, 0), (self.parameters, 0)):
            values[:] = values.gather(1, order).masked_fill(gone, none)


def parameters_at(
    parameters: Float[Tensor, "head entry"], owner: Int[Tensor, "head row pos"]
) -> Float[Tensor, "head row pos"]:
    """Return the parameter of the entry that holds each pair."""
    with_none = torch.nn.functional.pad(parameters, (1, 0))
    return with_none.gather(1, owner.flatten(1).long()).view(owner.shape)


def on_entries(
    pairs: Float[Tensor, "head row pos"], owner: Int[Tensor, "head row pos"]
) -> Float[Tensor, "head row owner"]:
    """Sum a number over the keys of no entry, then of every entry."""
    sums = torch.zeros(*pairs.shape[:2], ENTRIES + 1)
    return sums.scatter_add_(2, owner.long(), pairs)


def of_tokens(
    favour: Float[Tensor, "head token"], types: Int[Tensor, " pos"]
) -> Float[Tensor, "head pos"]:
    """Return the favour of the token of every position; NaN for one that the fit has not seen."""
    return torch.where(types >= 0, favour[:, types.clamp_min(0)], torch.nan)


def in_groups(
    favour: Float[Tensor, "head token"], types: Int[Tensor, " pos"]
) -> Bool[Tensor, "group head pos"]:
    """Return the positions whose tokens are in each of the `GROUPS`."""
    ratio = of_tokens(favour, types)
    return torch.stack([(ratio >= low) & (ratio < high) for low, high in GROUPS])


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
        self.bound = total * _divergence(self.seen, self.expected)

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


def _divergence(p: Tensor, q: Tensor) -> Tensor:
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
    ridge, here = _ridge(pages)[some], lists.parameters[some].double()
    for _ in range(_STEPS):
        raised = guess * torch.nn.functional.pad(here.float(), (1, 0)).exp()[:, None]
        share = raised[..., 1:] / raised.sum(-1, keepdim=True).clamp_min(1e-30)
        weighted = share * weight[..., None]
        mean = weighted.sum(1).double()
        bend = torch.diag_embed(mean) - (weighted.mT @ share).double()
        before = here
        here = (here + _step(seen - mean, bend, here, ridge)).clamp(-_LARGEST, _LARGEST)
        if float((here - before).abs().max()) < _SETTLED:
            break
    lists.parameters[some] = torch.where(lists.sets[some] >= 0, here, 0).float()


def _step(
    slope: Tensor, bend: Tensor, here: Tensor, ridge: Float[Tensor, "head 1"]
) -> Float[Tensor, "head parameter"]:
    """Return a Newton step on the likelihood with a ridge."""
    step = torch.linalg.solve(
        bend + ridge[..., None] * torch.eye(slope.shape[1]), (slope - ridge * here)[..., None]
    )
    return step[..., 0].clamp(-2, 2)


def _ridge(pages: Sequence[Page]) -> Float[Tensor, "head 1"]:
    """Return the weight of the squared parameters of every head."""
    total = torch.stack([page.weight.double().sum(1) for page in pages]).sum(0)
    return RIDGE * total.clamp_min(1e-9)[:, None]


@dataclass(frozen=True, eq=False)
class Refit:
    """Position and entries of all lists, fitted together.

    Args:
        position: parameters of the features of positions.
        entries: of the entries.
        slopes: of the likelihood of every page, there.
        bend: curvature of the likelihood of all pages.
    """

    position: Float[Tensor, "head feature"]
    entries: Float[Tensor, "head entry"]
    slopes: list[Float[Tensor, "head parameter"]]
    bend: Float[Tensor, "head parameter parameter"]


def refit_with_position(
    lists: Lists,
    pages: Sequence[Page],
    features: Sequence[Float[Tensor, "feature row pos"]],
    position: Float[Tensor, "head feature"],
) -> Refit:
    """Fit position and entries together, by Newton; a step that does not help is halved."""
    here = torch.cat([position, lists.parameters], 1).double()
    free = torch.cat([torch.ones_like(position), (lists.sets >= 0).float()], 1).double()
    n, ridge = position.shape[1], _ridge(pages)
    loss = torch.full((len(here), 1), torch.inf, dtype=torch.double)
    trial = here
    slopes: list[Tensor] = []
    bend = torch.zeros(0)
    for left in reversed(range(_JOINT)):
        value = 0.5 * ridge * (trial**2).sum(1, keepdim=True)
        slopes, bend = [], torch.zeros(*here.shape, here.shape[1], dtype=torch.double)
        total, sampled = (torch.zeros(len(here), 1, 1, dtype=torch.double) for _ in range(2))
        for at, (page, places) in enumerate(zip(pages, features, strict=True)):
            parameters = trial[:, :n].float(), trial[:, n:].float()
            slope, nats, bent = slope_of(page, places, *parameters, bent=at % _EVERY == 0)
            slopes.append(slope * free)
            value = value + nats[:, None]
            weight = page.weight.double().sum(1)[:, None, None]
            total += weight
            if bent is not None:
                bend += bent
                sampled += weight
        bend *= total / sampled.clamp_min(1e-9)
        better = value <= loss
        if not left:
            break
        here, loss = torch.where(better, trial, here), torch.where(better, value, loss)
        step = _step(torch.stack(slopes).sum(0), bend, trial, ridge) * free
        last = left == 1  # the last pass is at the best parameters
        trial = torch.where(
            better, here if last else here + step, here if last else (here + trial) / 2
        )
    return Refit(here[:, :n].float(), here[:, n:].float(), slopes, bend)


def slope_of(
    page: Page,
    places: Float[Tensor, "feature row pos"],
    position: Float[Tensor, "head feature"],
    entries: Float[Tensor, "head entry"],
    *,
    bent: bool = False,
) -> tuple[
    Float[Tensor, "head parameter"],
    Float[Tensor, " head"],
    Float[Tensor, "head parameter parameter"] | None,
]:
    """Return the slope of the likelihood of one page, minus its logarithm, and its curvature."""
    flat = places.flatten(1)
    logits = (position @ flat).view(page.mass.shape) + parameters_at(entries, page.owner)
    log_model = log_rows(logits, page.visible)
    nats = -(page.mass * log_model.clamp_min(-50)).sum((1, 2)).double()
    rows = log_model.exp_().mul_(page.weight[..., None])
    apart = page.mass - rows
    of_entries = on_entries(apart, page.owner)[..., 1:].sum(1)
    slope = torch.cat([apart.flatten(1) @ flat.T, of_entries], 1).double()
    if not bent:
        return slope, nats, None
    share = on_entries(rows, page.owner)[..., 1:]
    means = torch.cat([torch.einsum("hrn,frn->hrf", rows, places), share], 2)
    bend = -(means.mT @ (means / page.weight.clamp_min(1e-9)[..., None])).double()
    n = len(places)
    values = rows.flatten(1)
    for entry in range(ENTRIES):
        held = values * (page.owner.flatten(1) == entry + 1)
        both = (held @ flat.T).double()
        bend[:, :n, n + entry] += both
        bend[:, n + entry, :n] += both
        bend[:, n + entry, n + entry] += held.sum(1).double()
    # of a few features at a time, so that their products stay small
    for part in torch.arange(n).split(8):
        products = (flat[part][:, None] * flat[None]).flatten(0, 1)
        bend[:, part, :n] += (values @ products.T).unflatten(1, (len(part), n)).double()
    return slope, nats, bend


def nats_moved(
    refit: Refit, judged: Float[Tensor, "head parameter"], pages: Sequence[Page]
) -> Float[np.ndarray, "page head"]:
    """Return what one more count of each fitted page adds to the nats of the judged ones."""
    ridge = _ridge(pages)[..., None] * torch.eye(judged.shape[1])
    moved = torch.linalg.solve(refit.bend + ridge, judged[..., None])[..., 0]
    return -torch.stack([(slope * moved).sum(1) for slope in refit.slopes]).float().numpy()
