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
from dataclasses import dataclass
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
    """

    mass: Float[Tensor, "head row pos"]
    visible: Bool[Tensor, "row pos"]
    weight: Float[Tensor, "head row"]
    base: Float[Tensor, "head row pos"]
    sets: WindowSets
    types: Int[Tensor, " pos"]
    owner: Int[Tensor, "head row pos"]
    fold: int = 0


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

    def own(self, page: Page) -> None:
        """Give every pair to the first entry that names it."""
        fixed = page.sets.n_sets
        used = sorted({x for x in self.sets.flatten().tolist() if 0 <= x < fixed})
        masks = page.sets.masks(used)
        page.owner = torch.zeros(page.mass.shape, dtype=torch.int8)
        for entry in range(ENTRIES):
            for which in sorted(set(self.sets[:, entry].tolist()) - {-1}):
                heads = (self.sets[:, entry] == which).nonzero().flatten()
                if which < fixed:
                    held = masks[used.index(which)].expand(len(heads), -1, -1)
                else:
                    low, high = GROUPS[which - fixed]
                    inside = of_tokens(self.favour[page.fold, heads], page.types)
                    held = ((inside >= low) & (inside < high))[:, None]
                kinds = page.sets.kinds[self.kinds[heads, entry]][..., None]
                mine = page.owner[heads]
                free = held & kinds & page.visible & (mine == 0)
                page.owner[heads] = mine.masked_fill_(free, entry + 1)

    def log_rows(self, page: Page, without: int | None = None) -> Float[Tensor, "head row pos"]:
        """Return log probabilities of the row model of the list, possibly without one entry."""
        parameters = self.parameters
        if without is not None:
            parameters = parameters.clone()
            parameters[:, without] = 0
        return log_rows(page.base + spread(parameters, page.owner), page.visible)

    def keep(self, held: Bool[Tensor, "head entry"]) -> None:
        """Keep some entries of every list, in their order."""
        order = torch.argsort((~held).int(), dim=1, stable=True)
        gone = ~held.gather(1, order)
        for values, none in ((self.sets, -1), (self.kinds, 0), (self.parameters, 0)):
            values[:] = values.gather(1, order).masked_fill(gone, none)


def spread(
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


def members(
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
    least = (LEAST_GAIN * pattern).clamp_min(LEAST_NATS)
    side = torch.ones(n_heads)  # sets that a head attends to, then those that it avoids
    for _ in range(2 * ENTRIES):
        length = lists.length
        open_heads = (length < ENTRIES) & (side != 0)
        if not open_heads.any():
            break
        best = _best_sets(lists, pages, [*places, *excluded], side)
        add = open_heads & (best.gain >= least)
        side = torch.where(add, side, torch.where(side > 0, -1.0, 0.0))
        for head in add.nonzero().flatten().tolist():
            at = int(lists.n_places[head] if best.inner[head] else length[head])
            lists.insert(head, at, int(best.sets[head]), int(best.kinds[head]))
        if add.any():
            _refit(lists, pages)
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
    _refit(lists, pages)


def _find_favoured(lists: Lists, pages: Sequence[Page]) -> None:
    """Find how many times what position gives each head attends to every token."""
    n_heads = len(lists.sets)
    seen, expected = torch.zeros(lists.favour.shape), torch.zeros(lists.favour.shape)
    for page in pages:
        free = page.owner == 0
        guess = (page.base.exp() * free * page.weight[..., None]).sum(1)
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
    """The best next set of every head, its kind of query, and the nats that it adds.

    An inner set is part of the keys of the entries beyond places, and goes before them.
    """

    sets: Int[Tensor, " head"]
    kinds: Int[Tensor, " head"]
    gain: Float[Tensor, " head"]
    inner: Bool[Tensor, " head"]


def _best_sets(
    lists: Lists, pages: Sequence[Page], excluded: Sequence[int], side: Float[Tensor, " head"]
) -> _Best:
    """Return the set of keys that adds most to every list, on its side."""
    n_heads, n_places = len(side), lists.n_places[:, None, None]
    sums: dict[bool, tuple[list[Tensor], list[Tensor]]] = {False: ([], []), True: ([], [])}
    for page in pages:
        rows = lists.log_rows(page).exp_().mul_(page.weight[..., None])
        masks = page.sets.masks().permute(1, 2, 0).float()
        inside = members(lists.favour[page.fold], page.types).float()
        for inner, parts in sums.items():
            open_pairs = page.owner > n_places if inner else page.owner == 0
            for values, into in zip((page.mass, rows), parts, strict=True):
                opened = values * open_pairs
                fixed = torch.bmm(opened.transpose(0, 1), masks).permute(2, 1, 0)
                groups = torch.einsum("hrn,ghn->ghr", opened, inside)
                into.append(torch.cat([fixed, groups]))
    weight = torch.cat([page.weight for page in pages], 1)
    kind = torch.cat([page.sets.kinds for page in pages], 1).float()
    outer, inner = (_Tried.joined(*parts, weight, kind) for parts in sums.values())
    covered = (outer.seen + outer.expected) <= OUTSIDE * (inner.seen + inner.expected)
    inner.bound[~covered] = -1.0
    best = _Best(
        torch.zeros(n_heads, dtype=torch.long),
        torch.zeros(n_heads, dtype=torch.long),
        torch.zeros(n_heads),
        torch.zeros(n_heads, dtype=torch.bool),
    )
    for one in (outer, inner):
        one.bound[(one.seen - one.expected) * side[:, None, None] <= 0] = -1.0
        one.bound[:, list(excluded), 0] = -1.0
        for head in range(n_heads):
            one.bound[head, lists.sets[head], lists.kinds[head]] = -1.0  # of no entry: groups, all
            which, of_query, gain = one.best(head)
            if gain > best.gain[head]:
                best.sets[head], best.kinds[head] = which, of_query
                best.gain[head], best.inner[head] = gain, one is inner
    return best


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

    def best(self, head: int) -> tuple[int, int, float]:
        """Return set, kind of query, and gain in nats per unit of attention, of one head."""
        _, n_sets, n_kinds = self.bound.shape
        n_fixed = n_sets - len(GROUPS)
        bounds = self.bound[head].flatten()
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


def _refit(lists: Lists, pages: Sequence[Page]) -> None:
    """Fit the parameters of all entries of every list together, by Newton."""
    n_heads, size = lists.sets.shape
    for page in pages:
        lists.own(page)
    here = lists.parameters.double()
    for _ in range(_STEPS):
        slope = torch.zeros(n_heads, size, dtype=torch.double)
        bend = torch.zeros(n_heads, size, size, dtype=torch.double)
        for page in pages:
            logits = page.base + spread(here.float(), page.owner)
            rows = log_rows(logits, page.visible).exp_()
            share = on_entries(rows, page.owner)[..., 1:]
            slope += on_entries(page.mass, page.owner)[..., 1:].sum(1).double()
            weighted = share * page.weight[..., None]
            slope -= weighted.sum(1).double()
            bend += torch.diag_embed(weighted.sum(1)).double() - (weighted.mT @ share).double()
        before = here
        here = (here + _step(slope, bend, here, pages)).clamp(-_LARGEST, _LARGEST)
        if float((here - before).abs().max()) < _SETTLED:
            break
    lists.parameters[:] = torch.where(lists.sets >= 0, here, 0).float()


def _step(
    slope: Tensor, bend: Tensor, here: Tensor, pages: Sequence[Page]
) -> Float[Tensor, "head parameter"]:
    """Return a Newton step on the likelihood with a ridge."""
    ridge = _ridge(pages)
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
        step = _step(torch.stack(slopes).sum(0), bend, trial, pages) * free
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
    logits = (position @ flat).view(page.mass.shape) + spread(entries, page.owner)
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


def influence_of(
    refit: Refit, judged: Float[Tensor, "head parameter"], pages: Sequence[Page]
) -> Float[np.ndarray, "page head"]:
    """Return what one more count of each fitted page adds to the nats of the judged ones."""
    ridge = _ridge(pages)[..., None] * torch.eye(judged.shape[1])
    moved = torch.linalg.solve(refit.bend + ridge, judged[..., None])[..., 0]
    return -torch.stack([(slope * moved).sum(1) for slope in refit.slopes]).float().numpy()
